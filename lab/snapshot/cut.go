package snapshot

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"

	"mesh/lab/lifecycle"
	"mesh/lab/machine"
)

// cut stops every machine, then writes down what all of them and the world are,
// and leaves them stopped.
func (t *taking) cut(ctx context.Context, work lifecycle.Work) error {
	done := t.cfg.Ports.Progress.Step("all machines pause; their memory is written")
	err := t.pause(ctx)
	if err == nil {
		err = t.held.SpareDisks(ctx) // nobody runs who could notice
	}
	if err == nil {
		err = t.write(ctx, work)
	}
	done(err)
	return err
}

// on lists the machines whose power is on.
func (t *taking) on() (all []lifecycle.Machine) {
	for _, m := range t.held.Record.Plan.Machines {
		if t.was[m.Name] != "" {
			all = append(all, m)
		}
	}
	return all
}

// pause stops all machines, and measures how far apart.
func (t *taking) pause(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, pauseLimit, fmt.Errorf("it does not stop within %s", pauseLimit))
	defer cancel()
	var running []string
	for _, m := range t.on() {
		if t.was[m.Name] == machine.Running {
			running = append(running, m.Spec.Name)
		}
	}
	skew, err := t.cfg.Ports.Memory.PauseAll(ctx, running)
	t.m.SkewSeconds = float64(skew.Microseconds()) / 1e6
	t.m.Taken = t.now()
	return err
}

// write writes down what the world is, and what each machine holds in memory.
func (t *taking) write(ctx context.Context, work lifecycle.Work) error {
	state, err := t.cfg.Ports.World.Whole(ctx, t.held.Record.Plan.World)
	if err != nil {
		return fmt.Errorf("ask the world for its state: %w", err)
	}
	t.m.World = jsontext.Value(state)
	group, ctx := errgroup.WithContext(ctx)
	for _, m := range t.on() {
		group.Go(func() error {
			ctx, cancel := context.WithTimeoutCause(ctx, memoryLimit, fmt.Errorf("not within %s", memoryLimit))
			defer cancel()
			err := t.cfg.Ports.Memory.Snapshot(ctx, m.Spec.Name, filepath.Join(t.dir, memoryFile(m.Name)), work.Disks[m.Name])
			if err != nil {
				return fmt.Errorf("write the memory of machine %s: %w", m.Name, err)
			}
			m.Spec.Disk = work.Disks[m.Name]
			return t.held.FailDisk(ctx, m) // before it runs on
		})
	}
	return group.Wait()
}
