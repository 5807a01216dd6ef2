package snapshot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mesh/lab/lifecycle"
	"mesh/lab/machine"
)

// RestoreOptions say what is restored, and how.
type RestoreOptions struct {
	Scenario string
	Snapshot string
	As       string // scenario's name, beside the first; zero: in its place
	Machine  string // this one only, in its place; zero: all
	Frozen   bool   // leave the guests' clocks as they were
}

// Restored is what came of a restore.
type Restored struct {
	Scenario string   `json:"scenario"`
	Snapshot string   `json:"snapshot"`
	ID       string   `json:"id"`
	Machines []string `json:"machines"` // that run on from the snapshot
	Seconds  float64  `json:"seconds"`
	NewRoots bool     `json:"new_roots"` // the world's issuer is another one; what it had issued before is trusted no more
}

// Restore makes a scenario run on from a snapshot. Disks of many layers become
// such of two first, in the snapshot itself. Whatever can be found out
// before is found out before anything is touched. In place, what ran is ended;
// if restoring fails then, it can be tried again. Beside it, a failure leaves
// nothing.
func (s *Snapshots) Restore(ctx context.Context, o RestoreOptions) (Restored, error) {
	if err := s.flatten(ctx, o.Scenario, o.Snapshot); err != nil {
		return Restored{}, failure(ctx, "restore snapshot "+o.Snapshot+" of "+o.Scenario, err, "nothing was changed")
	}
	m, done, err := s.store.Use(ctx, o.Scenario, o.Snapshot)
	if err != nil {
		return Restored{}, err
	}
	defer done()
	return s.restore(ctx, m, o)
}

// restore restores a snapshot that nobody can remove meanwhile.
func (s *Snapshots) restore(ctx context.Context, m Manifest, o RestoreOptions) (Restored, error) {
	r := &restoring{Snapshots: s, m: m, o: o, begun: s.cfg.Ports.Now()}
	if err := r.options(); err != nil {
		return Restored{}, err
	}
	what := fmt.Sprintf("restore snapshot %s of %s", m.Name, m.Scenario)
	if o.As != "" {
		what += " as " + o.As
	}
	var err error
	if r.held, err = s.held(what, r.name()); err != nil {
		return Restored{}, err
	}
	defer r.held.Release()
	end, err := r.enter(ctx, what)
	if err != nil {
		undo, cancel := undoing(ctx)
		defer cancel()
		err = errors.Join(err, s.cfg.Ports.Daemon.Release(undo)) // it may have been begun for this
		return Restored{}, failure(ctx, what, err, "nothing was changed")
	}
	defer end()
	if err := r.begin(ctx); err != nil {
		return Restored{}, failure(ctx, what, err, "`lab status "+r.name()+"` tells what stands")
	}
	if err := r.run(ctx); err != nil {
		return Restored{}, r.giveUp(ctx, what, err)
	}
	return r.result(), nil
}

// enter finds all that would keep the restore from working, and waits until
// machines may begin to run. The returned function tells that they have done so.
func (r *restoring) enter(ctx context.Context, what string) (end func(), err error) {
	if err := r.admit(ctx); err != nil {
		return nil, err
	}
	return r.cfg.Lab.Turn(ctx, lifecycle.Beginning{Accelerator: r.m.Platform.Accelerator, Machines: len(r.machines), What: what})
}

// restoring is one restore.
type restoring struct {
	*Snapshots
	m     Manifest
	o     RestoreOptions
	held  *lifecycle.Held
	begun time.Time

	plan     lifecycle.Plan      // of the scenario as it will be
	machines []lifecycle.Machine // of plan, that are restored
	fresh    bool                // nothing of the scenario stands: it is made
	newWorld bool
	roots    bool // the world's issuer has a new root
}

func (r *restoring) name() string {
	if r.o.As != "" {
		return r.o.As
	}
	return r.m.Scenario
}

// options finds out whether what is asked for makes sense.
func (r *restoring) options() error {
	wrong := func(what, next string) error { return &lifecycle.Error{What: what, Next: next, Code: codeUsage} }
	switch {
	case r.o.Machine != "" && r.o.As != "":
		return wrong("one machine cannot be restored as another scenario", "leave out --machine or --as")
	case r.o.Machine != "":
		_, err := r.m.Plan.Machine(r.o.Machine)
		return err
	case r.o.As == r.m.Scenario:
		return wrong("scenario "+r.o.As+" cannot stand beside itself", "leave out --as to restore in its place")
	}
	return nil
}

// begin writes down what is about to be made. What is in its place and does not
// fit is removed.
func (r *restoring) begin(ctx context.Context) error {
	if r.fresh {
		if err := r.held.Remove(ctx); err != nil { // of another declaration, or cut off
			return err
		}
		if err := r.cfg.Ports.Daemon.Ensure(ctx); err != nil { // nobody had needed it any more
			return fmt.Errorf("hypervisor: %w", err)
		}
		return r.held.Create(ctx, lifecycle.Record{
			Phase: lifecycle.Raising, Accelerator: r.m.Platform.Accelerator, Why: "it is the snapshot's",
			Machines: map[string]lifecycle.MachineRecord{}, Steps: r.m.Steps, Plan: r.plan,
			Faults: r.m.Faults, Snapshots: r.ancestors(),
		})
	}
	return r.held.Begin(lifecycle.Restoring, lifecycle.Work{Snapshot: r.m.Name, Machine: r.o.Machine}, func(rec *lifecycle.Record) {
		rec.Plan, rec.Accelerator = r.plan, r.m.Platform.Accelerator
		if r.o.Machine == "" {
			rec.Faults = r.m.Faults
		}
	})
}

// ancestors are the snapshots that the scenario comes of afterwards.
func (r *restoring) ancestors() []string { return append([]string{r.m.ID}, r.m.Ancestors...) }

// giveUp ends a restore that failed or was interrupted.
func (r *restoring) giveUp(ctx context.Context, what string, err error) error {
	undo, cancel := undoing(ctx)
	defer cancel()
	if r.fresh {
		undone := r.held.Remove(undo)
		next := "nothing of it was left"
		if undone != nil {
			next = "not all of it could be undone: `lab destroy " + r.name() + "`"
		}
		return failure(ctx, what, errors.Join(err, undone), next)
	}
	if r.o.Machine != "" {
		return failure(ctx, what, errors.Join(err, r.held.LeaveOff(undo)), fmt.Sprintf(
			"the other machines run on: restore this one again, or `lab power on %s %s` boots it from its disk at the snapshot", r.name(), r.o.Machine))
	}
	ended := r.cfg.Lab.End(undo, r.plan, r.machines...)
	return failure(ctx, what, errors.Join(err, ended), fmt.Sprintf(
		"what ran had been ended: restore again, this snapshot or another, or `lab destroy %s` (its snapshots stay)", r.name()))
}

func (r *restoring) result() Restored {
	out := Restored{
		Scenario: r.name(), Snapshot: r.m.Name, ID: r.m.ID, NewRoots: r.roots,
		Seconds: float64(r.cfg.Ports.Now().Sub(r.begun).Milliseconds()) / 1000,
	}
	for _, m := range r.machines {
		out.Machines = append(out.Machines, m.Name)
	}
	return out
}

// state is what the snapshot knows of a machine.
func (r *restoring) state(name string) Machine {
	for _, one := range r.m.Machines {
		if one.Name == name {
			return one
		}
	}
	return Machine{}
}

// spec is a machine as it is restored.
func (r *restoring) spec(m lifecycle.Machine) machine.Spec {
	spec := m.Spec
	spec.Accelerator = r.m.Platform.Accelerator
	return spec
}
