package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"mesh/lab/machine"
)

// resumeLimit bounds how long one machine may take to run on: what the hypervisor
// is at may have to end first.
const resumeLimit = 90 * time.Second

// Settle ends the taking of a snapshot, whether it came to its end, failed or
// was cut off: every machine runs on, and the record says on which disk, which
// fails as the one before did. A machine that does not run on is named in the
// error; the record then stays as it is, so that settling can be tried again.
func (h *Held) Settle(ctx context.Context) error {
	l, r := h.lab, h.Record
	if err := l.cfg.Daemon.Ensure(ctx); err != nil {
		return fmt.Errorf("hypervisor: %w", err)
	}
	machines := slices.Clone(r.Plan.Machines)
	problems := make([]error, len(machines))
	var settling sync.WaitGroup
	for i := range machines {
		m := &machines[i]
		next, moving := r.Work.Disks[m.Name]
		if !moving {
			continue
		}
		settling.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, resumeLimit)
			defer cancel()
			err := l.settleMachine(ctx, m, next, slices.Contains(r.Work.Paused, m.Name))
			if err == nil {
				err = h.FailDisk(ctx, *m)
			}
			if err != nil {
				problems[i] = fmt.Errorf("let machine %s run on: %w", m.Name, err)
			}
		})
	}
	settling.Wait()
	if err := errors.Join(problems...); err != nil {
		return err
	}
	err := h.Update(func(r *Record) {
		r.Plan.Machines, r.Phase, r.Work = machines, Raised, nil
	})
	if err == nil {
		l.tidy()
	}
	return err
}

// settleMachine resumes a machine, unless it is to stay paused, and finds out on
// which disk it is: next, or the one that it had. It asks last: whoever was killed
// may have left the hypervisor at it. A machine that is gone goes on with next if
// that is there: nothing was written to the old one since.
func (l *Lab) settleMachine(ctx context.Context, m *Machine, next string, paused bool) (err error) {
	if !paused {
		err = l.cfg.Hypervisor.Resume(ctx, m.Spec.Name)
	}
	var disk string
	if err == nil {
		disk, err = l.cfg.Memory.Disk(ctx, m.Spec.Name)
	}
	if errors.Is(err, machine.ErrAbsent) {
		err = nil
		if _, missing := os.Stat(next); missing == nil {
			disk = next
		}
	}
	if err == nil && disk == next {
		m.Layers = append([]string{LayerID(m.Spec.Disk)}, m.Layers...)
		m.Spec.Disk = next
	}
	return err
}
