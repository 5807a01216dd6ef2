package system

import "time"

// OldLinux is Linux without openat2.
func OldLinux() *Linux {
	l := &Linux{}
	l.old.Store(true)
	return l
}

// Transient runs what changes packages, and waits for it that long.
func Transient(runtime string, limit time.Duration) Runner {
	return transient{runtime, packagesUnit, limit}
}

// Bounded ends commands that take longer.
func Bounded(limit time.Duration) Runner { return bounded{direct{}, limit} }

// BoundedAnswers is the same for those whose output is an answer.
func BoundedAnswers(limit time.Duration) Runner { return bounded{answers{}, limit} }

// HeldBy says who has a record lock on a file.
func HeldBy(path string) string { return heldBy(path) }

// Remembering answers from memory as long as state says the same.
func Remembering(runner Runner, state func() string) Runner {
	return &remembering{runner: runner, state: state}
}

// StateOf tells states of directories apart.
var StateOf = stateOf

// PodmanState tells states of podman's storage apart.
var PodmanState = podmanState
