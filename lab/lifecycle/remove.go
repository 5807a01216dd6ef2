package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
)

// Destroy removes everything that a scenario's record names, and warm images
// that were left unfinished, as one of its raise may be. It needs neither the
// scenario's file nor anything of it to be whole. It tells whether there was
// anything; nothing is success.
func (l *Lab) Destroy(ctx context.Context, name string) (bool, error) {
	if err := CheckName(name); err != nil {
		return false, err
	}
	if _, err := os.Lstat(l.Directory(name)); errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err := l.needRoot("destroy " + name); err != nil {
		return false, err
	}
	held, err := l.hold(name)
	if err != nil {
		return false, err
	}
	defer held.release()
	record, err := readRecord(l.Directory(name))
	if errors.Is(err, os.ErrNotExist) {
		// Cut off before the first record: nothing else was made.
		err = removeAll(l.Directory(name))
		l.tidy()
		return true, err
	}
	if err != nil {
		return false, err
	}
	done := l.cfg.Progress.Step("destroy " + name)
	err = errors.Join(l.remove(ctx, record), l.reapWarm(ctx))
	done(err)
	if err != nil {
		return true, &Error{
			What: "destroy " + name + ": not all could be removed", Where: l.Directory(name), Why: err.Error(),
			Next: fmt.Sprintf("`lab destroy %s` again; the record still names what is left", name),
			Code: codeFailed, Cause: err,
		}
	}
	return true, nil
}

// Reap puts right what Abandoned lists: a scenario whose snapshot was cut off
// runs on, all others are destroyed, and so are unfinished warm images. Layers
// that nobody uses are removed.
func (l *Lab) Reap(ctx context.Context) ([]Abandoned, error) {
	all, err := l.Abandoned()
	if err != nil {
		return nil, err
	}
	var reaped []Abandoned
	var problems []error
	for _, a := range all {
		if err := l.reap(ctx, a); err != nil {
			problems = append(problems, err)
			continue
		}
		reaped = append(reaped, a)
	}
	problems = append(problems, l.reapWarm(ctx))
	l.sweepLocks()
	l.tidy()
	return reaped, errors.Join(problems...)
}

// reap puts one thing right that was abandoned.
func (l *Lab) reap(ctx context.Context, a Abandoned) error {
	if a.Kind == KindWarm {
		return l.reapOneWarm(ctx, a.digest)
	}
	r, err := l.Record(a.Name)
	if err == nil && r.runsOn() {
		return l.runOn(ctx, a.Name)
	}
	_, err = l.Destroy(ctx, a.Name)
	return err
}

// runsOn says whether a scenario at which somebody was cut off can go on.
func (r Record) runsOn() bool {
	return r.Phase == Snapshotting || r.Phase == Restoring && r.Work.Machine != ""
}

// runOn settles a scenario whose snapshot, or the restore of one of whose machines,
// was cut off.
func (l *Lab) runOn(ctx context.Context, name string) error {
	if err := l.needRoot("let scenario " + name + " run on"); err != nil {
		return err
	}
	h, err := l.Hold(name)
	if err != nil {
		return err
	}
	defer h.Release()
	if h.Record == nil || !h.Record.runsOn() {
		return nil // somebody else did it meanwhile
	}
	if h.Record.Phase == Restoring {
		return h.LeaveOff(ctx)
	}
	ran := slices.DeleteFunc(slices.Clone(h.Record.Plan.Machines), func(m Machine) bool {
		return h.Record.Machines[m.Name].Off || slices.Contains(h.Record.Work.Paused, m.Name)
	})
	if err := h.Settle(ctx); err != nil {
		return err
	}
	h.SetClocks(ctx, ran...)
	return nil
}

// remove undoes a run, the lock of its scenario being held.
func (l *Lab) remove(ctx context.Context, r Record) error {
	self, err := l.cfg.Computer.Self()
	if err != nil {
		return err
	}
	r.Phase, r.Process = Destroying, self
	if err := writeRecord(r.Plan.Directory, r); err != nil {
		return err
	}
	if err := l.removeMachines(ctx, r); err != nil {
		return err
	}
	if err := l.cfg.Volatile.Remove(ctx, l.VolatileOf(r.Plan)); err != nil {
		return err
	}
	if err := l.cfg.World.Remove(ctx, r.Plan.World, r.World); err != nil {
		return fmt.Errorf("remove the world: %w", err)
	}
	if err := os.RemoveAll(r.Plan.Runtime); err != nil {
		return fmt.Errorf("remove runtime directory: %w", err)
	}
	if err := l.cfg.Daemon.Release(ctx); err != nil {
		return fmt.Errorf("release the hypervisor: %w", err)
	}
	if err := removeAll(r.Plan.Directory); err != nil {
		return fmt.Errorf("remove %s: %w", r.Plan.Directory, err)
	}
	l.tidy()
	return nil
}

// removeMachines ends the run's domains, if any can exist.
func (l *Lab) removeMachines(ctx context.Context, r Record) error {
	begun := false
	for i, s := range r.Plan.Steps {
		begun = begun || s.Kind == StepMachine && r.Steps[i].State != ""
	}
	if !begun {
		return nil
	}
	if err := l.cfg.Daemon.Ensure(ctx); err != nil {
		return fmt.Errorf("hypervisor: %w", err)
	}
	if err := l.end(ctx, r.Plan, r.Plan.Machines...); err != nil {
		return err
	}
	var problems []error
	for _, m := range r.Plan.Machines {
		if err := l.cfg.Hypervisor.Forget(ctx, m.Spec.Name); err != nil {
			problems = append(problems, fmt.Errorf("forget machine %s: %w", m.Spec.Name, err))
		}
	}
	return errors.Join(problems...)
}
