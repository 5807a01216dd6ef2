package system

// OldLinux is Linux without openat2.
func OldLinux() *Linux {
	l := &Linux{}
	l.old.Store(true)
	return l
}

// Transient runs what changes packages.
func Transient(runtime string) Runner { return transient{runtime} }

// HeldBy says who has a record lock on a file.
func HeldBy(path string) string { return heldBy(path) }
