package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"mesh/lab/fault"
	"mesh/lab/machine"
	"mesh/lab/volatile"
	"mesh/lab/world"
)

// Volatile lets the disks of a run lose what was not flushed when the power of
// their machine is cut.
type Volatile interface {
	// Start starts the process that serves the disks, which outlives the caller;
	// from then on the hypervisor uses them through it.
	Start(ctx context.Context, c volatile.Config) (world.Process, error)
	// Remove ends the process, known or not, and removes all that it made; nothing
	// there is success. No machine may have one of the disks, unless the process
	// has ended already: such a machine gets errors from then on.
	Remove(ctx context.Context, c volatile.Config) error
	// Status asks the process.
	Status(ctx context.Context, c volatile.Config) (volatile.Status, error)
}

// DisksRecord is how the disks of a run are kept.
type DisksRecord struct {
	Process world.Process `json:"process"` // that serves them; zero: none
	// Plain is why none does: what was not flushed then survives a power cut.
	Plain string `json:"plain,omitempty"`
}

// VolatileOf is where the disks of a plan are served.
func (l *Lab) VolatileOf(p Plan) volatile.Config {
	return volatile.Config{
		Directory: l.Layers(), Mount: mountOf(l.Layers(), p), Control: volatile.Control(p.Runtime),
		Log: filepath.Join(p.Directory, "disks.log"),
	}
}

func mountOf(layers string, p Plan) string { return volatile.Mount(layers, p.Run) }

// ServeDisks has the disks of a plan served, unless that process of the record
// does it already, or the record says why none does. Machines that stand have lost
// their disks for good: they get errors until they end. Where it cannot be done,
// which is told, machines use the files themselves. The error is ctx's, or that
// an earlier try could not be cleared.
func (l *Lab) ServeDisks(ctx context.Context, p Plan, was DisksRecord) (DisksRecord, error) {
	if was.Plain != "" || l.cfg.Computer.Alive(was.Process) {
		return was, nil
	}
	c := l.VolatileOf(p)
	if err := l.cfg.Volatile.Remove(ctx, c); err != nil {
		return was, fmt.Errorf("clear what served the disks earlier: %w", err)
	}
	for _, dir := range []string{p.Runtime, c.Directory} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return was, fmt.Errorf("make directory: %w", err)
		}
	}
	process, err := l.cfg.Volatile.Start(ctx, c)
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
		defer cancel()
		if left := l.cfg.Volatile.Remove(undo, c); left != nil {
			return was, errors.Join(err, left)
		}
		if ctx.Err() != nil {
			return was, context.Cause(ctx)
		}
		l.cfg.Progress.Note("a power cut will not lose what a machine did not flush: %v", err)
		return DisksRecord{Plain: err.Error()}, nil
	}
	return DisksRecord{Process: process}, nil
}

// serveAgain has the disks served whose process was killed.
func (s *striker) serveAgain(ctx context.Context) error {
	is, err := s.ServeDisks(ctx, s.r.Plan, s.r.Disks)
	if err != nil || is == s.r.Disks {
		return err
	}
	return s.update(func(r *Record) { r.Disks = is })
}

// serveDisks is the step.
func (r *raise) serveDisks(ctx context.Context) error {
	r.mu.Lock()
	was := r.record.Disks
	r.mu.Unlock()
	is, err := r.ServeDisks(ctx, r.plan, was)
	if err != nil {
		return err
	}
	if is.Plain == "" {
		r.watch.disks(is.Process)
	}
	return r.update(func(rec *Record) { rec.Disks = is })
}

// DisksStatus is how the disks of a scenario are kept.
type DisksStatus struct {
	// Volatile: what a machine has not flushed is lost when its power is cut.
	Volatile bool                  `json:"volatile"`
	PID      int                   `json:"pid,omitempty"`
	Log      string                `json:"log,omitempty"`
	Disks    []volatile.DiskStatus `json:"disks,omitempty"`
	// Lost are the machines that get errors from their disks: the process that
	// served them was killed.
	Lost    []string `json:"lost,omitempty"`
	Problem string   `json:"problem,omitempty"`
}

// disksStatus looks at the disks; machines are asked already, in the plan's order.
func (l *Lab) disksStatus(ctx context.Context, r Record, machines []MachineStatus) DisksStatus {
	s := DisksStatus{Volatile: r.Disks.Plain == "", PID: r.Disks.Process.PID, Problem: r.Disks.Plain}
	if !s.Volatile || s.PID == 0 {
		s.Volatile = false
		return s
	}
	c := l.VolatileOf(r.Plan)
	s.Log = c.Log
	if !l.cfg.Computer.Alive(r.Disks.Process) {
		s.Lost = lost(r, machines, nil)
		s.Problem = "the process that serves them does not run: machines get errors from their disks"
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	answer, err := l.cfg.Volatile.Status(ctx, c)
	if err != nil {
		s.Problem = err.Error()
		return s
	}
	s.Disks, s.Lost = answer.Disks, lost(r, machines, answer.Disks)
	return s
}

// lost lists the machines that live and have none of the disks that are served.
func lost(r Record, machines []MachineStatus, served []volatile.DiskStatus) (names []string) {
	for i, m := range r.Plan.Machines {
		lives := machines[i].State == string(machine.Running) || machines[i].State == string(machine.Paused)
		has := slices.ContainsFunc(served, func(d volatile.DiskStatus) bool { return d.Open && d.Name == filepath.Base(m.Spec.Disk) })
		without := slices.ContainsFunc(r.Faults, func(f FaultRecord) bool { return f.Kind == fault.DiskDetached && f.strikes(m) })
		if lives && !has && !without {
			names = append(names, m.Name)
		}
	}
	return names
}
