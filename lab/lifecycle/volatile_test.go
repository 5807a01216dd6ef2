package lifecycle_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/lifecycle"
)

// TestPlainDisks: where disks cannot be served a raise says so and does without,
// and so do status and a power cut.
func TestPlainDisks(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.NoFUSE = true
	r := b.raise(t, "a")
	const why = "the kernel has no FUSE"
	if !strings.Contains(r.Disks.Plain, why) {
		t.Errorf("record: %+v", r.Disks)
	}
	s, err := b.Status(t.Context(), "a")
	if err != nil || s.Disks.Volatile || !strings.Contains(s.Disks.Problem, why) {
		t.Errorf("status: %+v, %v", s.Disks, err)
	}
	must(t, b.Cut(t.Context(), "a", "one"))
	said := b.Narration.String()
	for _, want := range []string{"a power cut will not lose what a machine did not flush: ", "what machine one has not flushed survives here: "} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not said:\n%s", want, said)
		}
	}
	if _, err := b.Destroy(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	b.wantNothingLeft(t)
}

// TestDisksKilled: a scenario whose disks nobody serves any more is abandoned, its
// status says what machines get, and it is reaped whole.
func TestDisksKilled(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	if s, err := b.Status(t.Context(), "a"); err != nil || !s.Disks.Volatile || s.Disks.Problem != "" || s.Disks.PID == 0 {
		t.Errorf("status before: %+v, %v", s.Disks, err)
	}
	b.KillServers()
	s, err := b.Status(t.Context(), "a")
	if err != nil || !strings.Contains(s.Disks.Problem, "errors from their disks") || !strings.Contains(s.Abandoned, "process of its disks") {
		t.Errorf("status after: %+v, %q, %v", s.Disks, s.Abandoned, err)
	}
	if diff := cmp.Diff([]string{"one", "two"}, s.Disks.Lost); diff != "" {
		t.Errorf("machines that get errors (-want +got):\n%s", diff)
	}
	if reaped, err := b.Reap(t.Context()); err != nil || len(reaped) != 1 {
		t.Errorf("reaped %v, %v", reaped, err)
	}
	b.wantNothingLeft(t)
}

// TestDisksKilledAndServedAgain: power that is given back finds the disks served
// again; until then each machine's status says that it gets errors.
func TestDisksKilledAndServedAgain(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	b.KillServers()
	for _, lost := range [][]string{{"two"}, nil} {
		one := map[bool]string{true: "one", false: "two"}[lost != nil]
		must(t, b.Cut(t.Context(), "a", one))
		must(t, b.PowerOn(t.Context(), "a", one))
		s, err := b.Status(t.Context(), "a")
		if err != nil || s.Abandoned != "" || s.Disks.Problem != "" {
			t.Errorf("status with %s on again: %+v, %q, %v", one, s.Disks, s.Abandoned, err)
		}
		if diff := cmp.Diff(lost, s.Disks.Lost); diff != "" {
			t.Errorf("machines that get errors (-want +got):\n%s", diff)
		}
	}
	_, err := b.Destroy(t.Context(), "a")
	must(t, err)
	b.wantNothingLeft(t)
}

// TestDisksKilledWhileRaising: the raise ends at once, says why and leaves nothing.
func TestDisksKilledWhileRaising(t *testing.T) {
	b := newBed(t, t.TempDir())
	plan := b.hanging(t, func(lifecycle.Plan) { b.KillServers() })
	_, err := b.Raise(soon(t), plan, lifecycle.RaiseOptions{Files: files})
	if err == nil || !strings.Contains(err.Error(), "the process of the disks died") {
		t.Errorf("%v, want that the process of the disks died", err)
	}
	b.wantNothingLeft(t)
}
