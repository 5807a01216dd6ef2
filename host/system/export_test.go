package system

// OldLinux is Linux without openat2.
func OldLinux() *Linux {
	l := &Linux{}
	l.old.Store(true)
	return l
}

// Transient runs what changes packages.
func Transient(runtime string) Runner { return transient{runtime, packagesUnit} }

// HeldBy says who has a record lock on a file.
func HeldBy(path string) string { return heldBy(path) }

// Remembering answers from memory as long as state says the same.
func Remembering(runner Runner, state func() string) Runner {
	return &remembering{runner: runner, state: state}
}

// StateOf tells states of directories apart.
var StateOf = stateOf
