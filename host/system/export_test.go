package system

// OldLinux is Linux without openat2.
func OldLinux() *Linux {
	l := &Linux{}
	l.old.Store(true)
	return l
}
