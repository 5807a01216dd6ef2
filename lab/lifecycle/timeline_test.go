package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/fault"
)

func timeline(t *testing.T, text string) fault.Timeline {
	t.Helper()
	parsed, err := fault.ParseTimeline("t.yaml", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// A timeline does its steps in order and no sooner than it says; what no step
// undoes stays.
func TestTimeline(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	storm := timeline(t, `
steps:
  - {at: 60ms, fault: disk-slow, on: two, operations: 5}
  - {at: 0s, fault: loss, on: one, share: 1%, for: 30ms}
  - {at: 40ms, fault: memory, on: one, size: 1MiB, name: tight}
  - {at: 50ms, undo: all}
  - {at: 55ms, undo: tight}
`)
	var told []string
	err := b.RunTimeline(t.Context(), "a", storm, func(elapsed time.Duration, s fault.Step) {
		if elapsed < time.Duration(s.At) {
			t.Errorf("%v happens after %v, want %v", s, elapsed, s.At)
		}
		told = append(told, s.String())
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"loss-one: loss machine:one share=1%", "undo loss-one", "tight: memory machine:one size=1MiB", "undo all",
		"undo tight", "disk-slow-two: disk-slow machine:two operations=5",
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	if listed, err := b.Faults("a"); err != nil || len(listed) != 1 || listed[0].Name != "disk-slow-two" {
		t.Errorf("in force afterwards: %v, %v", listed, err)
	}
}

// A timeline that is interrupted, or of which a step fails, undoes what it did and
// nothing else.
func TestTimelineBrokenOff(t *testing.T) {
	for what, text := range map[string]string{
		"interrupted": "steps: [{at: 0s, fault: loss, on: one, share: 1%}, {at: 1ms, fault: pause, on: two}, {at: 1h, undo: all}]",
		"failed":      "steps: [{at: 0s, fault: pause, on: two, name: mine}, {at: 1ms, fault: memory, on: two, size: 1MiB}]",
	} {
		t.Run(what, func(t *testing.T) {
			b := newBed(t, t.TempDir())
			b.raise(t, "a")
			if _, err := b.AddFault(t.Context(), "a", fault.Fault{Kind: fault.IssuerExpired}); err != nil {
				t.Fatal(err)
			}
			before := b.Conditions()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			steps := 0
			err := b.RunTimeline(ctx, "a", timeline(t, text), func(time.Duration, fault.Step) {
				if steps++; steps == 2 && what == "interrupted" {
					time.AfterFunc(20*time.Millisecond, cancel)
				}
			})
			if what == "interrupted" && !errors.Is(err, context.Canceled) || what == "failed" && !strings.Contains(fmt.Sprint(err), "t.yaml:1: machine two is paused") {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff(before, b.Conditions()); diff != "" {
				t.Errorf("(-before +after)\n%s", diff)
			}
		})
	}
}

// What somebody else undid meanwhile keeps nothing of a timeline from being undone.
func TestTimelineOfWhatIsUndoneMeanwhile(t *testing.T) {
	for what, until := range map[string]string{"by its end": "40ms", "by an interruption": "1h"} {
		b := newBed(t, t.TempDir())
		b.raise(t, "a")
		ctx, cancel := context.WithCancel(t.Context())
		text := "steps: [{at: 0s, fault: loss, on: one, share: 1%}, {at: 1ms, fault: pause, on: two}, {at: 2ms, fault: issuer-expired}, {at: " + until + ", undo: all}]"
		steps := 0
		err := b.RunTimeline(ctx, "a", timeline(t, text), func(time.Duration, fault.Step) {
			if steps++; steps != 3 {
				return
			}
			if err := b.RemoveFaults(t.Context(), "a", "pause-two"); err != nil {
				t.Error(err)
			}
			if what == "by an interruption" {
				time.AfterFunc(20*time.Millisecond, cancel)
			}
		})
		cancel()
		if (err == nil) != (what == "by its end") {
			t.Errorf("%s: %v", what, err)
		}
		if listed, err := b.Faults("a"); err != nil || len(listed) != 0 {
			t.Errorf("%s: in force afterwards: %v, %v", what, listed, err)
		}
	}
}
