package snapshot_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/fault"
	"mesh/lab/snapshot"
)

// Machines that were paused for a cut have the lab machine's clock again
// afterwards, and a step that a fault has it take. One that is to have another
// clock, or stays paused, keeps its own.
func TestClocksAreSetAfterTheCut(t *testing.T) {
	one := []fault.Target{{Kind: fault.Machine, Name: "one"}}
	tests := []struct {
		name   string
		before func(b *bed) error
		want   []string
	}{
		{"all", func(*bed) error { return nil }, []string{"settle one", "settle two"}},
		{"under a step", func(b *bed) error {
			_, err := b.AddFault(t.Context(), "a", fault.Fault{Kind: fault.ClockStep, On: one, By: fault.Duration(time.Hour)})
			return err
		}, []string{"settle one", "settle two", "step-again one"}},
		{"under a drift", func(b *bed) error {
			_, err := b.AddFault(t.Context(), "a", fault.Fault{Kind: fault.ClockDrift, On: one, Drift: 100})
			return err
		}, []string{"settle two"}},
		{"paused", func(b *bed) error {
			_, err := b.AddFault(t.Context(), "a", fault.Fault{Kind: fault.Pause, On: one})
			return err
		}, []string{"settle two"}},
		{"off", func(b *bed) error { return b.Cut(t.Context(), "a", "one") }, []string{"settle two"}},
		{"frozen", func(b *bed) error {
			b.take(t, "a", "earlier")
			_, err := b.Snapshots.Restore(t.Context(), snapshot.RestoreOptions{Scenario: "a", Snapshot: "earlier", Frozen: true})
			return err
		}, nil},
		{"one frozen", func(b *bed) error {
			b.take(t, "a", "earlier")
			_, err := b.Snapshots.Restore(t.Context(), snapshot.RestoreOptions{Scenario: "a", Snapshot: "earlier", Machine: "one", Frozen: true})
			return err
		}, []string{"settle two"}},
		{"frozen, and booted since", func(b *bed) error {
			b.take(t, "a", "earlier")
			_, err := b.Snapshots.Restore(t.Context(), snapshot.RestoreOptions{Scenario: "a", Snapshot: "earlier", Frozen: true})
			return errors.Join(err, b.Reset(t.Context(), "a", "one"), b.Cut(t.Context(), "a", "two"), b.PowerOn(t.Context(), "a", "two"))
		}, []string{"settle one", "settle two"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBed(t, t.TempDir())
			b.raise(t, "a")
			must(t, tt.before(b))
			var set []string
			b.Hook = func(op string, after bool) error {
				word, of, _ := strings.Cut(op, " ")
				switch {
				case after:
				case word == "settle":
					set = append(set, "settle "+of[strings.LastIndexByte(of, '.')+1:])
				case word == "exec" && strings.Contains(op, " step-again "):
					name, _, _ := strings.Cut(of, ":")
					set = append(set, "step-again "+name[strings.LastIndexByte(name, '.')+1:])
				}
				return nil
			}
			b.take(t, "a", "first")
			slices.Sort(set)
			if diff := cmp.Diff(tt.want, set); diff != "" {
				t.Errorf("clocks (-want +got):\n%s\n%s", diff, b.told.String())
			}
		})
	}
}

// A fork's source, and a scenario of which no snapshot could be taken, stood too.
func TestClocksAreSetHoweverTheCutEnds(t *testing.T) {
	for what, do := range map[string]func(b *bed) error{
		"forked": func(b *bed) error {
			_, err := b.Snapshots.Fork(t.Context(), snapshot.ForkOptions{Scenario: "a", As: "b"})
			return err
		},
		"failed": func(b *bed) error {
			if _, err := b.Snapshots.Take(t.Context(), "a", "first", ""); err == nil {
				return errors.New("a snapshot was taken")
			}
			return nil
		},
	} {
		b := newBed(t, t.TempDir())
		b.raise(t, "a")
		run := ""
		if r, err := b.Record("a"); err == nil {
			run = r.Plan.Machines[0].Spec.Name
		}
		set := 0
		b.Hook = func(op string, after bool) error {
			if !after && op == "settle "+run {
				set++
			}
			if what == "failed" && !after && strings.HasPrefix(op, "snapshot ") {
				return errors.New("no")
			}
			return nil
		}
		if err := do(b); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if set != 1 {
			t.Errorf("%s: the clock of the source was set %d times, want 1", what, set)
		}
	}
}

// A clock that cannot be set is told, and the snapshot is one.
func TestClockThatCannotBeSet(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	b.Hook = func(op string, after bool) error {
		if !after && strings.HasPrefix(op, "settle ") && strings.HasSuffix(op, "two") {
			return errors.New("the agent is busy")
		}
		return nil
	}
	b.take(t, "a", "first")
	if told := b.told.String(); !strings.Contains(told, "the clock of machine two is behind by as long as it stood: ") || strings.Contains(told, "clock of machine one") {
		t.Error(told)
	}
}

// A scenario that runs on because the taking of a snapshot was cut off has its
// clocks set, too.
func TestClocksAreSetByReap(t *testing.T) {
	b, n, at := beginWalk(t, t.TempDir(), "take"), 0, 0
	b.Hook = func(op string, after bool) error {
		if n++; at == 0 && !after && strings.HasPrefix(op, "resume ") {
			at = n
		}
		return nil
	}
	must(t, walks["take"](t.Context(), b))
	dir := t.TempDir()
	beginWalk(t, dir, "take")
	killed(t, dir, "take", at)
	b = newBed(t, dir)
	set := 0
	b.Hook = func(op string, after bool) error {
		if !after && strings.HasPrefix(op, "settle ") {
			set++
		}
		return nil
	}
	b.reap(t)
	if set != 2 {
		t.Errorf("%d clocks were set, not 2: %s", set, b.told.String())
	}
}
