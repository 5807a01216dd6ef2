package lifecycle

import (
	"context"
	"fmt"

	"mesh/lab/guest"
	"mesh/lab/machine"
)

// Cut takes a machine's power away: it ends at once. A machine that is off stays
// off.
func (l *Lab) Cut(ctx context.Context, name, machineName string) error {
	return l.change(ctx, name, machineName, func(r *Record, m Machine) error {
		was := r.Machines[m.Name]
		was.Off = true
		r.Machines[m.Name] = was
		if err := writeRecord(r.Plan.Directory, *r); err != nil {
			return err
		}
		return l.end(ctx, r.Plan, m)
	})
}

// PowerOn gives a machine its power back, as it was declared, on the disk that
// it left behind, and waits until it is ready. One that runs is left alone.
func (l *Lab) PowerOn(ctx context.Context, name, machineName string) error {
	return l.change(ctx, name, machineName, func(r *Record, m Machine) error {
		if state, err := l.cfg.Hypervisor.State(ctx, m.Spec.Name); err == nil && state == machine.Running && !r.Machines[m.Name].Off {
			return nil
		}
		// A machine that was left half started is begun anew.
		if err := l.end(ctx, r.Plan, m); err != nil {
			return err
		}
		begun := l.cfg.Now()
		limit := limit(StepBoot, r.Accelerator)
		ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w after %s", errTimeout, limit))
		defer cancel()
		err := l.watched(ctx, r.Plan, func(ctx context.Context, w *watch) error {
			if err := l.create(ctx, m, r.Accelerator); err != nil {
				return err
			}
			if err := l.attach(ctx, r.Plan, m); err != nil {
				return err
			}
			w.add(m)
			return l.bootMachine(ctx, r.Plan, m, guest.Identity{})
		})
		if err != nil {
			return fmt.Errorf("power on machine %s: %w", m.Name, err)
		}
		r.Machines[m.Name] = MachineRecord{
			Accelerator: r.Accelerator, Start: StartCold, ReadySeconds: l.since(begun),
		}
		return writeRecord(r.Plan.Directory, *r)
	})
}

// change holds a raised scenario while work changes one machine of it.
func (l *Lab) change(ctx context.Context, name, machineName string, work func(*Record, Machine) error) error {
	if _, _, err := l.Find(name, machineName); err != nil {
		return err
	}
	if err := l.needRoot("change machine " + machineName + " of " + name); err != nil {
		return err
	}
	held, err := l.hold(name)
	if err != nil {
		return err
	}
	defer held.release()
	r, m, err := l.Find(name, machineName) // as it is under the lock
	if err != nil {
		return err
	}
	if r.Phase != Raised && r.Phase != Partial {
		return &Error{
			What: fmt.Sprintf("scenario %s is not raised", name), Why: l.abandoned(r),
			Next: "`lab reap` removes what an interrupted command left", Code: codeFailed,
		}
	}
	if err := l.cfg.Daemon.Ensure(ctx); err != nil {
		return fmt.Errorf("hypervisor: %w", err)
	}
	return work(&r, m)
}
