package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"mesh/lab/lifecycle"
)

// ForkOptions say what is forked.
type ForkOptions struct {
	Scenario string
	Snapshot string // that the fork runs on from; zero: from how the scenario is now
	As       string // the fork's name; zero: the scenario's with a number
	Frozen   bool   // leave the guests' clocks as they were
}

// Fork makes a second running scenario beside one, from a snapshot or from how it
// is now. In the latter case it is paused for as long as a snapshot takes; that
// one is never listed, and its memory is gone once the fork stands.
func (s *Snapshots) Fork(ctx context.Context, o ForkOptions) (Restored, error) {
	as, err := s.forkName(o)
	if err != nil {
		return Restored{}, err
	}
	restore := RestoreOptions{Scenario: o.Scenario, Snapshot: o.Snapshot, As: as, Frozen: o.Frozen}
	if o.Snapshot != "" {
		return s.Restore(ctx, restore)
	}
	what := "fork " + o.Scenario
	if r, err := s.cfg.Lab.Record(as); err == nil {
		return Restored{}, &lifecycle.Error{
			What: what + ": scenario " + r.Plan.Name + " is raised already", Next: "choose another name with --as", Code: codeUsage,
		}
	}
	h, err := s.raised(ctx, what, o.Scenario)
	if err != nil {
		return Restored{}, err
	}
	defer h.Release() // so long nobody sweeps what the fork is made of
	name, err := s.passing(o.Scenario)
	if err != nil {
		return Restored{}, err
	}
	t := &taking{Snapshots: s, held: h, m: Manifest{ID: s.cfg.NewID(), Scenario: o.Scenario, Name: name}}
	if err := t.take(ctx); err != nil {
		return Restored{}, failure(ctx, what, err, "the scenario runs on as it was")
	}
	var clocks sync.WaitGroup
	clocks.Go(func() { h.SetClocks(ctx, t.running()...) }) // meanwhile, as for any snapshot
	defer clocks.Wait()
	t.describe()
	forked, err := s.restore(ctx, t.m, restore)
	return forked, errors.Join(err, s.store.Discard(o.Scenario, name))
}

// forkName finds or checks the name of a fork.
func (s *Snapshots) forkName(o ForkOptions) (string, error) {
	if o.As != "" {
		return o.As, lifecycle.CheckName(o.As)
	}
	taken, err := s.cfg.Lab.Names()
	if err != nil {
		return "", err
	}
	for n := 2; ; n++ {
		if name := fmt.Sprintf("%s-%d", o.Scenario, n); !slices.Contains(taken, name) {
			return name, lifecycle.CheckName(name)
		}
	}
}

// passing is a name for a snapshot that is not to stay.
func (s *Snapshots) passing(scenario string) (string, error) {
	all, err := s.store.names(scenario)
	for n := 1; ; n++ {
		if name := fmt.Sprintf("fork-%d", n); err != nil || !slices.Contains(all, name) {
			return name, err
		}
	}
}
