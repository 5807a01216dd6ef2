package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"mesh/lab/fault"
	"mesh/lab/volatile"
)

// Held is a scenario's name that this process alone may change, until Release.
// Not safe for concurrent use.
type Held struct {
	// Record is what the store knows, as it is on disk; nil: nothing.
	Record *Record

	lab  *Lab
	name string
	lock *lock
}

// Hold takes a scenario, raised or not, for changing it. Where another command
// changes it, the error (exit code 2) says which.
func (l *Lab) Hold(name string) (*Held, error) {
	held, err := l.hold(name)
	if err != nil {
		return nil, err
	}
	h := &Held{lab: l, name: name, lock: held}
	r, err := readRecord(l.Directory(name))
	switch {
	case err == nil:
		h.Record = &r
	case !errors.Is(err, fs.ErrNotExist):
		h.Release()
		return nil, err
	}
	return h, nil
}

// Release gives the name up. Idempotent.
func (h *Held) Release() {
	if h.lock != nil {
		h.lock.release()
		h.lock = nil
	}
}

// Begin marks the record as changed by this process, in that phase, by that
// work, and makes what changes it at once; nil: nothing more.
func (h *Held) Begin(phase Phase, work Work, change func(*Record)) error {
	self, err := h.lab.cfg.Computer.Self()
	if err != nil {
		return err
	}
	return h.Update(func(r *Record) {
		r.Phase, r.Process, r.Work = phase, self, &work
		if change != nil {
			change(r)
		}
	})
}

// Room tells whether a scenario that is not raised would be admitted now, beside
// all others; if not, its error (exit code 4) says what is missing.
func (l *Lab) Room(ctx context.Context, p Plan) error { return l.room(ctx, p) }

// Create writes the first record of a scenario that is not raised: of one that
// is made, by this process, from what was. It is admitted as a raise is.
func (h *Held) Create(ctx context.Context, r Record) error {
	self, err := h.lab.cfg.Computer.Self()
	if err != nil {
		return err
	}
	r.Format, r.Process = recordFormat, self
	r.Since = h.lab.cfg.Now().UTC().Truncate(time.Second)
	return h.lab.admit(ctx, r.Plan, false, func() error {
		if err := os.MkdirAll(r.Plan.Directory, 0o755); err != nil {
			return err
		}
		if err := writeRecord(r.Plan.Directory, r); err != nil {
			return err
		}
		h.Record = &r
		return nil
	})
}

// Update changes the record, durably.
func (h *Held) Update(change func(*Record)) error {
	next := *h.Record
	change(&next)
	if err := writeRecord(next.Plan.Directory, next); err != nil {
		return err
	}
	*h.Record = next
	return nil
}

// Remove undoes all that the record names, as Destroy does.
func (h *Held) Remove(ctx context.Context) error {
	if h.Record == nil {
		return nil
	}
	if err := h.lab.remove(ctx, *h.Record); err != nil {
		return err
	}
	h.Record = nil
	return nil
}

// StrikeAgain does to machines that were restored those of the record's faults
// that do not come back with their memory and their disks: what a hypervisor does
// to a machine ends with it, and a clock that was set anew has no step. Machines
// that are to stay paused are paused.
func (h *Held) StrikeAgain(ctx context.Context, clockKept bool, machines ...Machine) error {
	s := &striker{h.lab, h.Record}
	for _, m := range machines {
		paused := len(s.having(fault.Pause, m)) > 0
		for _, f := range h.Record.Faults {
			for _, t := range f.On {
				if f.OfWorld() || f.State != InForce || t.Name != m.Name {
					continue
				}
				var err error
				switch f.Kind {
				case fault.Pause, fault.DiskSlow, fault.DiskDetached, fault.DiskError, fault.LinkDown:
					err = s.strikeMachine(ctx, f.Fault, m, t)
				case fault.ClockStep:
					if !clockKept && !paused {
						err = s.stepAgain(ctx, m, f)
					}
				}
				if err != nil {
					return fmt.Errorf("fault %s: machine %s: %w", f.Name, m.Name, err)
				}
			}
		}
	}
	return nil
}

// ServeDisks has the record's disks served, as Lab.ServeDisks does.
func (h *Held) ServeDisks(ctx context.Context) error {
	return (&striker{h.lab, h.Record}).serveAgain(ctx)
}

// Strikes names a fault of a kind that strikes a machine; empty: none does.
func (h *Held) Strikes(k fault.Kind, m Machine) string {
	for _, f := range h.Record.Faults {
		if f.Kind == k && f.strikes(m) {
			return f.Name
		}
	}
	return ""
}

// SpareDisks ends the failing of all disks, so that they can be flushed and stood
// on. The record keeps the faults: FailDisk.
func (h *Held) SpareDisks(ctx context.Context) error {
	s := &striker{h.lab, h.Record}
	for _, m := range h.Record.Plan.Machines {
		if err := s.spareDisk(ctx, m); err != nil {
			return fmt.Errorf("let the disk of machine %s work: %w", m.Name, err)
		}
	}
	return nil
}

// FailDisk makes the disk that m names fail as the record's faults in force have
// it for that machine; there may be none. A disk that nobody serves is left alone.
func (h *Held) FailDisk(ctx context.Context, m Machine) error {
	s := &striker{h.lab, h.Record}
	for _, f := range h.Record.Faults {
		if f.Kind != fault.DiskError || f.State != InForce || !f.strikes(m) {
			continue
		}
		if err := s.diskError(ctx, m, diskFault(f.How)); err != nil && !errors.Is(err, volatile.ErrAbsent) {
			return fmt.Errorf("fault %s: %w", f.Name, err)
		}
	}
	return nil
}
