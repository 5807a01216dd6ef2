package systemtest

import (
	"strings"
)

// swap is a call that said it was done and may be done behind the next change.
type swap struct {
	op     Op
	wanted bool          // what the call does next is to be put off
	behind func(Op) bool // whether it is, behind this change
	do     func()        // nil: there is none
	passed bool          // the change it is behind has been
}

// catchUp does what was put off: once the change it is put off behind has been,
// or at once when next is none of those. The machine may be cut there as at any
// call.
func (d *Disk) catchUp(next Op) error {
	switch {
	case d.swap.do == nil:
		return nil
	case !d.swap.passed && next.Changes && d.swap.behind(next):
		d.swap.passed = true
		return nil
	}
	late := d.swap
	d.swap = swap{}
	late.op.fixed = true
	if err := d.allow(late.op); err != nil {
		return err
	}
	late.do()
	return nil
}

// conclude ends what was put off: what was to be behind a change that came is
// lost, what no change came behind of is done.
func (d *Disk) conclude() {
	if d.swap.do != nil && !d.swap.passed {
		d.swap.do()
	}
	d.swap = swap{}
}

// deferred says whether do is put off, and keeps it if so.
func (d *Disk) deferred(do func()) bool {
	if !d.swap.wanted {
		return false
	}
	d.swap.wanted, d.swap.do = false, do
	return true
}

// Swapped is a hook under which of two changes, one right behind the other, at
// places in the program that match, the second is made first, on top of what
// next does. The place of a call begins with its name; pairs of which neither is
// a sync are not asked about, because no disk orders them.
func Swapped(match func(first, second string) bool, next func(Op) error) func(Op) error {
	return func(op Op) error {
		if op.fixed || !swappable[op.Name] {
			return next(op)
		}
		first := op.Name + " < " + place()
		return &putOff{behind: func(second Op) bool {
			syncs := strings.HasPrefix(op.Name, "sync") != strings.HasPrefix(second.Name, "sync")
			return syncs && swappable[second.Name] && match(first, second.Name+" < "+place())
		}}
	}
}

// swappable are the calls that give nothing back but an error.
var swappable = map[string]bool{
	"write": true, "sync": true, "sync directory": true, "rename": true, "unlink": true, "rmdir": true,
}

// putOff makes a call be done behind the change that follows it, if behind says
// so of that one, and before it otherwise.
type putOff struct{ behind func(second Op) bool }

func (*putOff) Error() string { return "this call is put off" }
