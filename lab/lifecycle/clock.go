package lifecycle

import (
	"context"
	"fmt"
	"sync"
	"time"

	"mesh/lab/fault"
	"mesh/lab/guest"
)

// clockLimit bounds the setting of one machine's clock. One whose agent does not
// answer, as while it boots, keeps what it has.
const clockLimit = 10 * time.Second

// SetClocks gives machines that stood for a while, and run again, the clock of
// the lab machine, with the step that a fault in force has it take. It leaves
// those alone that are to have another clock: of a restore with the clocks frozen,
// or under a drift. A clock that cannot be set is told, and is no failure. It
// returns when it is done; the record is only read.
func (h *Held) SetClocks(ctx context.Context, machines ...Machine) {
	s := &striker{h.lab, h.Record}
	var setting sync.WaitGroup
	for _, m := range machines {
		if h.Record.Machines[m.Name].Frozen || len(s.having(fault.ClockDrift, m)) > 0 {
			continue
		}
		setting.Go(func() {
			ctx, cancel := context.WithTimeoutCause(ctx, clockLimit, fmt.Errorf("not within %s", clockLimit))
			defer cancel()
			if err := s.setClock(ctx, m); err != nil {
				h.lab.cfg.Progress.Note("the clock of machine %s is behind by as long as it stood: %v", m.Name, err)
			}
		})
	}
	setting.Wait()
}

func (s *striker) setClock(ctx context.Context, m Machine) error {
	if err := s.cfg.Guest.Wait(ctx, m.Spec.Name); err != nil {
		return err
	}
	if _, err := s.cfg.Guest.Settle(ctx, m.Spec.Name, guest.Identity{Silent: true}); err != nil {
		return err
	}
	for _, f := range s.r.Faults {
		if f.Kind != fault.ClockStep || f.State != InForce || !f.strikes(m) {
			continue
		}
		if err := s.stepAgain(ctx, m, f); err != nil {
			return fmt.Errorf("fault %s: %w", f.Name, err)
		}
	}
	return nil
}

// stepAgain has a clock that was set since take the step of a fault once more,
// whatever the guest remembers of it.
func (s *striker) stepAgain(ctx context.Context, m Machine, f FaultRecord) error {
	return s.inside(ctx, m, "step-again", f.Name, int64(f.By))
}
