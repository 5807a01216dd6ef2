package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mesh/lab/fault"
	"mesh/lab/lifecycle"
)

// target reads a target of the small scenario.
func target(words ...string) (targets []fault.Target) {
	for _, w := range words {
		t, err := fault.ParseTarget(w)
		if err != nil {
			panic(err)
		}
		targets = append(targets, t)
	}
	return targets
}

// everyFault is one fault of each kind that the fake can be struck by.
func everyFault() []fault.Fault {
	return []fault.Fault{
		{Kind: fault.PowerCut, On: target("one")},
		{Kind: fault.Pause, On: target("one")},
		{Kind: fault.DiskFull, On: target("one", "two"), Leave: 1 << 20},
		{Kind: fault.DiskSlow, On: target("one"), Rate: 8 << 20, Ops: 10},
		{Kind: fault.DiskDetached, On: target("one")},
		{Kind: fault.DiskError, On: target("two"), How: fault.Writes},
		{Kind: fault.Memory, On: target("one"), Size: 1<<20 + 1},
		{Kind: fault.ClockStep, On: target("one", "two"), By: -fault.Duration(36 * time.Hour)},
		{Kind: fault.ClockDrift, On: target("one"), Drift: -500},
		{Kind: fault.LinkDown, On: target("machine:one")},
		{Kind: fault.LinkDown, On: target("router:gate")},
		{Kind: fault.LinkDown, On: target("one@public")},
		{Kind: fault.Partition, On: target("one"), From: target("two")},
		{Kind: fault.Loss, On: target("two"), Share: 300_000, Direction: fault.In},
		{Kind: fault.Delay, On: target("router:gate"), Delay: fault.Duration(time.Second)},
		{Kind: fault.RateLimit, On: target("one", "two"), Rate: 1e6},
		{Kind: fault.DNSFailing, How: fault.Silent},
		{Kind: fault.ServiceStopped, On: target("dhcp")},
		{Kind: fault.IssuerSlow, Delay: fault.Duration(time.Second)},
		{Kind: fault.IssuerRefusing},
		{Kind: fault.IssuerLimited},
		{Kind: fault.IssuerExpired},
		{Kind: fault.IssuerBadNonces, Share: 1},
	}
}

// Every fault is seen, is listed with its name, and is gone once undone.
func TestFaults(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	before := b.Conditions()
	for _, f := range everyFault() {
		added, err := b.AddFault(t.Context(), "a", f)
		if err != nil {
			t.Errorf("%v: %v", f, err)
			continue
		}
		listed, err := b.Faults("a")
		if err != nil || len(listed) != 1 || listed[0].Name != added.Name || listed[0].State != lifecycle.InForce {
			t.Errorf("%v: listed %+v, %v", f, listed, err)
		}
		if b.Conditions() == before {
			t.Errorf("%v: nothing is to be seen of it", f)
		}
		if err := b.RemoveFaults(t.Context(), "a", added.Name); err != nil {
			t.Errorf("undo %v: %v", f, err)
		}
		if diff := cmp.Diff(before, b.Conditions()); diff != "" {
			t.Errorf("%v: (-before +after)\n%s", f, diff)
		}
	}
}

// Faults in any order, undone in any order, one by one or together, leave
// everything as it was.
func TestFaultsAnyOrder(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	before := b.Conditions()
	// Power and a disk that is away keep others from striking and from being undone.
	kinds := slices.DeleteFunc(everyFault(), func(f fault.Fault) bool {
		return slices.Contains([]fault.Kind{fault.PowerCut, fault.Pause, fault.DiskDetached}, f.Kind)
	})
	rapid.Check(t, func(rt *rapid.T) {
		var names []string
		for _, f := range rapid.Permutation(kinds).Draw(rt, "order")[:rapid.IntRange(1, 8).Draw(rt, "faults")] {
			added, err := b.AddFault(t.Context(), "a", f)
			if err != nil {
				rt.Fatal(err)
			}
			names = append(names, added.Name)
		}
		names = rapid.Permutation(names).Draw(rt, "undone")
		singly := rapid.IntRange(0, len(names)).Draw(rt, "singly")
		for _, name := range names[:singly] {
			if err := b.RemoveFaults(t.Context(), "a", name); err != nil {
				rt.Fatal(err)
			}
		}
		if err := b.RemoveFaults(t.Context(), "a"); err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(before, b.Conditions()); diff != "" {
			rt.Fatalf("(-before +after)\n%s", diff)
		}
	})
}

// A fault that is cut off at any point, as by a kill, can be undone by whoever
// comes next, and then nothing is left of it.
func TestFaultCutOff(t *testing.T) {
	for _, f := range everyFault() {
		if f.Kind == fault.PowerCut {
			continue // machines are ended in goroutines, which cannot be ended so; see TestPowerCutBrokenOff
		}
		for at := 1; ; at++ {
			b := newBed(t, t.TempDir())
			b.raise(t, "a")
			before := b.Conditions()
			n := 0
			b.Hook = func(string, bool) error {
				if n++; n >= at {
					runtime.Goexit() // nothing is done any more
				}
				return nil
			}
			whole := false
			var process sync.WaitGroup
			process.Go(func() {
				_, err := b.AddFault(t.Context(), "a", f)
				whole = err == nil
			})
			process.Wait()
			b.Hook = nil
			if whole {
				break // it has no such point
			}
			if err := b.lab().RemoveFaults(t.Context(), "a"); err != nil {
				t.Errorf("%v, cut off at %d: undo: %v", f, at, err)
			}
			if diff := cmp.Diff(before, b.Conditions()); diff != "" {
				t.Errorf("%v, cut off at %d: (-before +after)\n%s", f, at, diff)
			}
		}
	}
}

// A fault that fails is undone at once, and is not listed.
func TestFaultFails(t *testing.T) {
	for _, f := range everyFault() {
		if f.Kind == fault.PowerCut {
			continue // it is tried until it succeeds
		}
		b := newBed(t, t.TempDir())
		b.raise(t, "a")
		before := b.Conditions()
		failed := false
		b.Hook = func(op string, after bool) error {
			if failed {
				return nil
			}
			failed = true
			return errors.New("injected")
		}
		_, err := b.AddFault(t.Context(), "a", f)
		if err == nil || !strings.Contains(err.Error(), "injected") {
			t.Errorf("%v: %v", f, err)
		}
		b.Hook = nil
		if listed, err := b.Faults("a"); err != nil || len(listed) > 0 {
			t.Errorf("%v: listed: %v, %v", f, listed, err)
		}
		if diff := cmp.Diff(before, b.Conditions()); diff != "" {
			t.Errorf("%v: (-before +after)\n%s", f, diff)
		}
	}
}

// What cannot be is refused, and changes nothing.
func TestFaultRefused(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	add := func(f fault.Fault) error {
		_, err := b.AddFault(t.Context(), "a", f)
		return err
	}
	slow := fault.Fault{Kind: fault.DiskSlow, On: target("one"), Ops: 1}
	if err := add(slow); err != nil {
		t.Fatal(err)
	}
	if err := add(fault.Fault{Name: "cut", Kind: fault.PowerCut, On: target("two")}); err != nil {
		t.Fatal(err)
	}
	before := b.Conditions()
	for says, f := range map[string]fault.Fault{
		"already":                   slow,
		"has a fault cut":           {Name: "cut", Kind: fault.IssuerSlow, Delay: 1},
		"machine two is off":        {Kind: fault.Memory, On: target("two"), Size: 1},
		"there is no machine":       {Kind: fault.Pause, On: target("tow")},
		"disk-slow needs it":        {Kind: fault.DiskSlow, On: target("one")},
		"loss needs it":             {Kind: fault.Loss, On: target("one")},
		"there is no kind \"lost\"": {Kind: "lost", On: target("one")},
	} {
		if err := add(f); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v; want %q", f, err, says)
		} else if code := exitCode(err); code != 2 && code != 1 {
			t.Errorf("%v: exit code %d", f, code)
		}
	}
	if err := b.RemoveFaults(t.Context(), "a", "ct"); exitCode(err) != 2 {
		t.Errorf("undo what is none: %v", err)
	}
	if diff := cmp.Diff(before, b.Conditions()); diff != "" {
		t.Errorf("(-before +after)\n%s", diff)
	}
	if _, err := b.AddFault(t.Context(), "nobody", slow); !errors.Is(err, lifecycle.ErrAbsent) {
		t.Errorf("of no scenario: %v", err)
	}
}

// Which reads of a disk go on although it fails is said when it is struck, where
// reads are to fail at all.
func TestDiskErrorSaysWhatItDoesNotStrike(t *testing.T) {
	for how, want := range map[fault.How]bool{fault.Reads: true, fault.All: true, "": true, fault.Writes: false} {
		b := newBed(t, t.TempDir())
		b.raise(t, "a")
		if _, err := b.AddFault(t.Context(), "a", fault.Fault{Kind: fault.DiskError, On: target("one"), How: how}); err != nil {
			t.Fatal(err)
		}
		if told := strings.Contains(strings.Join(b.Narration.lines, "\n"), "all else of its disk can still be read"); told != want {
			t.Errorf("%q: told %v, want %v", how, told, want)
		}
	}
}

// Faults of a machine hold when its power is cut and given back, and when it is
// reset; giving power back undoes the fault that cut it.
func TestFaultsHold(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	none := b.Conditions()
	for _, f := range []fault.Fault{
		{Kind: fault.DiskSlow, On: target("one"), Ops: 7},
		{Kind: fault.Memory, On: target("one"), Size: 5 << 20},
		{Kind: fault.ClockStep, On: target("one"), By: fault.Duration(time.Hour)},
		{Kind: fault.LinkDown, On: target("machine:one")},
		{Kind: fault.DiskFull, On: target("one")},
		{Kind: fault.DiskError, On: target("one")},
	} {
		if _, err := b.AddFault(t.Context(), "a", f); err != nil {
			t.Fatal(err)
		}
	}
	struck := b.Conditions()
	for what, do := range map[string]func(context.Context, string, string) error{
		"reset": b.Reset,
		"power": func(ctx context.Context, name, machine string) error {
			if err := b.Cut(ctx, name, machine); err != nil {
				return err
			}
			if listed, err := b.Faults(name); err != nil || listed[len(listed)-1].Kind != fault.PowerCut {
				t.Errorf("after the cut: %v, %v", listed, err)
			}
			return b.PowerOn(ctx, name, machine)
		},
		"pause": func(ctx context.Context, name, machine string) error {
			return errors.Join(b.Pause(ctx, name, machine), b.Pause(ctx, name, machine), b.Resume(ctx, name, machine))
		},
	} {
		if err := do(t.Context(), "a", "one"); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if diff := cmp.Diff(struck, b.Conditions()); diff != "" {
			t.Errorf("%s (-before +after):\n%s", what, diff)
		}
	}
	if err := b.RemoveFaults(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(none, b.Conditions()); diff != "" {
		t.Errorf("undone (-before +after):\n%s", diff)
	}
}

// Power given to one of the machines that a fault took it from leaves the fault
// to the others.
func TestPowerCutOfSeveral(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	if _, err := b.AddFault(t.Context(), "a", fault.Fault{Name: "both", Kind: fault.PowerCut, On: target("one", "two")}); err != nil {
		t.Fatal(err)
	}
	if err := b.PowerOn(t.Context(), "a", "one"); err != nil {
		t.Fatal(err)
	}
	listed, err := b.Faults("a")
	if err != nil || len(listed) != 1 || fmt.Sprint(listed[0].On) != "[machine:two]" {
		t.Errorf("listed %v, %v", listed, err)
	}
	if err := b.RemoveFaults(t.Context(), "a", "both"); err != nil {
		t.Fatal(err)
	}
	if s, err := b.Status(t.Context(), "a"); err != nil || s.Machines[1].State != "running" {
		t.Errorf("%+v, %v", s.Machines, err)
	}
}

// A power cut that is broken off is undone.
func TestPowerCutBrokenOff(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	before := b.Conditions()
	ctx, cancel := context.WithCancel(t.Context())
	b.Hook = func(string, bool) error {
		if ctx.Err() != nil {
			return nil
		}
		cancel()
		return errors.New("injected")
	}
	if err := b.Cut(ctx, "a", "one"); err == nil {
		t.Error("it did not fail")
	}
	b.Hook = nil
	if listed, err := b.Faults("a"); err != nil || len(listed) > 0 {
		t.Errorf("listed: %v, %v", listed, err)
	}
	if diff := cmp.Diff(before, b.Conditions()); diff != "" {
		t.Errorf("(-before +after)\n%s", diff)
	}
}

// A name that is given twice is undone once.
func TestFaultNamedTwice(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	if _, err := b.AddFault(t.Context(), "a", fault.Fault{Kind: fault.IssuerExpired, Name: "old"}); err != nil {
		t.Fatal(err)
	}
	if err := b.RemoveFaults(t.Context(), "a", "old", "old"); err != nil {
		t.Error(err)
	}
	if listed, err := b.Faults("a"); err != nil || len(listed) != 0 {
		t.Errorf("in force afterwards: %v, %v", listed, err)
	}
}
