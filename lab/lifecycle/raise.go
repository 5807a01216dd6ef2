package lifecycle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// RaiseOptions are how a raise is carried out; they change nothing of what it makes.
type RaiseOptions struct {
	Keep  bool  // when it fails or is interrupted, leave what stands
	Wait  bool  // for room, where the lab machine has too little now
	Files fs.FS // the directory of the scenario's document; must hold every file that the plan places
}

// raise is one run of a plan.
type raise struct {
	*Lab
	plan  Plan
	files fs.FS
	saved map[string][]byte // by name; never written anywhere; used by placement only, which is sequential
	watch *watch            // of the run

	mu     sync.Mutex
	record Record // guarded by mu; on disk always as it is here
}

// Raise carries out a plan. When it fails or ctx ends, everything is undone
// unless Keep is set; then the scenario is partial, and raising it again goes on
// where it stopped. On errors of the operator (exit code 2) and of the lab
// machine (4) nothing was made.
func (l *Lab) Raise(ctx context.Context, p Plan, o RaiseOptions) (Record, error) {
	if err := l.preflight(p); err != nil {
		return Record{}, err
	}
	held, err := l.hold(p.Name)
	if err != nil {
		return Record{}, err
	}
	defer held.release()
	record, err := l.begin(ctx, p, o.Wait)
	if err != nil {
		return Record{}, err
	}
	r := &raise{Lab: l, plan: record.Plan, files: o.Files, saved: map[string][]byte{}, record: record}
	if err = r.run(ctx); err == nil {
		return r.record, nil
	}
	return r.record, r.giveUp(ctx, err, o.Keep)
}

// begin makes sure that the name is free and writes the first record; or, where
// the same plan was stopped and kept, gives its record to go on with: there was
// room for it once, and part of that is in use.
func (l *Lab) begin(ctx context.Context, p Plan, wait bool) (Record, error) {
	self, err := l.cfg.Computer.Self()
	if err != nil {
		return Record{}, err
	}
	old, err := readRecord(p.Directory)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return Record{}, err
	case old.Phase == Partial && samePlan(old.Plan, p):
		old.Phase, old.Process = Raising, self
		return old, writeRecord(p.Directory, old)
	case old.Phase != Raising && old.Phase != Destroying:
		return Record{}, taken(old)
	default: // the lock is ours, so whoever was at it is gone
		l.cfg.Progress.Note("an earlier raise of %s was cut off; removing what it left", p.Name)
		if err := l.remove(ctx, old); err != nil {
			return Record{}, err
		}
	}
	record := newRecord(p, self, l.cfg.Now())
	return record, l.admit(ctx, p, wait, func() error {
		if err := os.MkdirAll(p.Directory, 0o755); err != nil {
			return fmt.Errorf("make scenario's directory: %w", err)
		}
		return writeRecord(p.Directory, record)
	})
}

// samePlan compares plans of which one may have been in a file, and names the
// layers that its raise had found.
func samePlan(a, b Plan) bool {
	a.Machines = slices.Clone(a.Machines)
	for i := range a.Machines {
		a.Machines[i].Layers = nil
	}
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errors.Join(errX, errY) == nil && bytes.Equal(x, y)
}

func taken(old Record) error {
	name := old.Plan.Name
	e := &Error{
		What: "scenario " + name + " is raised already",
		Why:  "it stands since " + old.Since.Format(time.RFC3339),
		Next: fmt.Sprintf("`lab destroy %s` first, or raise another beside it with --as NAME", name),
		Code: codeUsage,
	}
	switch old.Phase {
	case Snapshotting, Restoring:
		e.What = fmt.Sprintf("scenario %s is not free: %s snapshot %s was cut off", name, old.Phase, old.Work.Snapshot)
		e.Next = "`lab reap` puts it right, or raise another beside it with --as NAME"
	case Partial:
		e.What = "scenario " + name + " is raised in part, from another declaration or with other options"
		e.Why = "raising can only go on with the same"
	}
	return e
}

// run does what is not done yet.
func (r *raise) run(ctx context.Context) error {
	return r.watched(ctx, r.plan, func(ctx context.Context, w *watch) error {
		r.watch = w
		r.watchKept()
		if err := r.steps(ctx); err != nil {
			return err
		}
		return r.update(func(rec *Record) { rec.Phase = Raised })
	})
}

// watchKept goes on watching what an earlier raise left running.
func (r *raise) watchKept() {
	for _, s := range r.plan.Steps {
		if r.state(s.ID) != Done {
			continue
		}
		switch s.Kind {
		case StepWorld:
			r.watch.world(r.record.World)
		case StepDisks:
			if r.record.Disks.Plain == "" {
				r.watch.disks(r.record.Disks.Process)
			}
		case StepJoin:
			if m, err := r.plan.Machine(s.Machine); err == nil {
				r.watch.add(m)
			}
		}
	}
}

// steps does each step as soon as those that it comes after are done.
func (r *raise) steps(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	done := map[string]chan struct{}{}
	for _, s := range r.plan.Steps {
		done[s.ID] = make(chan struct{})
	}
	for _, s := range r.plan.Steps {
		g.Go(func() error {
			for _, id := range s.After {
				select {
				case <-done[id]:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			if s.Kind == StepBoot {
				begun, err := r.Turn(ctx, Beginning{Accelerator: r.accelerator(), Cold: r.warmOf(s.Machine) == "", What: s.About})
				if err != nil {
					return err
				}
				defer begun()
			}
			if err := r.step(ctx, s); err != nil {
				return err
			}
			close(done[s.ID])
			return nil
		})
	}
	return g.Wait()
}

// step does one step between two writings of the record.
func (r *raise) step(ctx context.Context, s Step) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// A daemon may have ended since.
	if r.state(s.ID) == Done && s.Kind != StepDaemon && !r.neededAgain(s) {
		return nil
	}
	again := r.state(s.ID) != ""
	if err := r.mark(StepRecord{ID: s.ID, State: Started}); err != nil {
		return err
	}
	limit := r.limit(s.Kind)
	timed, cancel := context.WithTimeoutCause(ctx, limit, errTimeout)
	defer cancel()
	begun := r.cfg.Now()
	end := r.cfg.Progress.Step(s.About)
	err := r.act(timed, s, again)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(timed), errTimeout) {
		err = r.late(s, limit, err)
	}
	end(err)
	result := StepRecord{ID: s.ID, State: Done, Seconds: r.since(begun)}
	if err != nil {
		result.State, result.Error = Failed, r.redact(err.Error())
	}
	return errors.Join(err, r.mark(result))
}

// act does what a step is for. again is set when an earlier try may have left
// something.
func (r *raise) act(ctx context.Context, s Step, again bool) error {
	switch s.Kind {
	case StepDaemon:
		return r.daemon(ctx)
	case StepRepository:
		return r.repository(ctx)
	case StepDisk:
		return r.disk(ctx, s.Machine)
	case StepKeys:
		return r.keys()
	case StepWarm:
		return r.findWarm(ctx, s.ID)
	case StepDisks:
		return r.serveDisks(ctx)
	case StepWorld:
		return r.startWorld(ctx, again)
	case StepMachine:
		return r.stand(ctx, s.Machine, again)
	case StepJoin:
		return r.join(ctx, s.Machine, again)
	case StepBoot:
		return r.boot(ctx, s.Machine)
	case StepPlace:
		return r.place(ctx, s)
	}
	return fmt.Errorf("step %s: unknown kind %q", s.ID, s.Kind)
}

// update changes the record, on disk first of all.
func (r *raise) update(change func(*Record)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.record)
	return writeRecord(r.plan.Directory, r.record)
}

func (r *raise) mark(s StepRecord) error {
	return r.update(func(rec *Record) { *rec.step(s.ID) = s })
}

func (r *raise) state(id string) StepState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record.step(id).State
}

// machine is a machine of the plan, on the layers that the raise has found.
func (r *raise) machine(name string) (Machine, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record.Plan.Machine(name)
}

// since is how long ago something was, in seconds.
func (l *Lab) since(then time.Time) float64 {
	return float64(l.cfg.Now().Sub(then).Milliseconds()) / 1000
}
