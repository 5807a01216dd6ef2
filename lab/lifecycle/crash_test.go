package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"mesh/lab/lifecycle"
)

// The test binary is also the process that is killed: with these variables set
// it raises in a directory and kills itself at the N-th point.
const (
	childDir  = "LIFECYCLE_TEST_DIR"
	childKill = "LIFECYCLE_TEST_KILL"
	childAt   = "LIFECYCLE_TEST_KILL_AT" // not empty: also when it begins what starts so
)

// TestChild is no test: it is the process that TestCaseL2Kill kills.
func TestChild(t *testing.T) {
	dir := os.Getenv(childDir)
	if dir == "" {
		t.Skip("only run by TestCaseL2Kill, in a process of its own")
	}
	at, err := strconv.Atoi(os.Getenv(childKill))
	if err != nil {
		t.Fatal(err)
	}
	b := newBed(t, dir)
	points := 0
	before := os.Getenv(childAt)
	b.Hook = func(op string, _ bool) error {
		if points++; points == at || before != "" && strings.HasPrefix(op, before) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	}
	b.raise(t, "a")
	fmt.Printf("points=%d\n", points)
}

// child runs TestChild, and tells whether it was killed and how many points it passed.
func child(t *testing.T, dir string, kill int) (killed bool, points int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), childDir+"="+dir, childKill+"="+strconv.Itoa(kill))
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
			return true, 0
		}
	}
	if err != nil {
		t.Fatalf("raise in a process of its own: %v\n%s", err, out)
	}
	_, rest, _ := strings.Cut(string(out), "points=")
	points, err = strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return false, points
}

// A raise that is killed at any point is said to be abandoned, and reaping it
// leaves nothing; destroying it does too.
func TestCaseL2Kill(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a process for each point")
	}
	_, points := child(t, t.TempDir(), 0)
	if points < 30 {
		t.Fatalf("only %d points to be killed at", points)
	}
	for at := 1; at <= points; at++ {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if killed, _ := child(t, dir, at); !killed {
				t.Fatal("was not killed")
			}
			b := newBed(t, dir)
			abandoned, err := b.Abandoned()
			if err != nil || len(abandoned) == 0 || abandoned[0].Name != "a" {
				t.Fatalf("Abandoned() = %v, %v", abandoned, err)
			}
			for _, image := range abandoned[1:] {
				if image.Kind != lifecycle.KindWarm {
					t.Errorf("Abandoned() = %v", abandoned)
				}
			}
			if at%2 == 0 {
				_, err = b.Reap(t.Context())
			} else {
				_, err = b.Destroy(t.Context(), "a")
			}
			if err != nil {
				t.Fatal(err)
			}
			b.wantNothingLeft(t)
		})
	}
}

// After a raise that was killed, raising again needs no manual step.
func TestCaseL3RaiseAfterKill(t *testing.T) {
	dir := t.TempDir()
	if killed, _ := child(t, dir, 20); !killed {
		t.Fatal("was not killed")
	}
	b := newBed(t, dir)
	b.raise(t, "a")
	if !strings.Contains(b.Narration.String(), "an earlier raise of a was cut off") {
		t.Error("nothing was said about the earlier raise")
	}
}

// points counts the hook's calls in an undisturbed raise.
func points(t *testing.T) int {
	t.Helper()
	b := newBed(t, t.TempDir())
	n := 0
	b.Hook = func(string, bool) error { n++; return nil }
	b.raise(t, "a")
	return n
}

// A raise that is interrupted at any point leaves nothing, and ends with 130.
func TestCaseL2Interrupt(t *testing.T) {
	for at := range points(t) {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			b := newBed(t, t.TempDir())
			ctx, cancel := context.WithCancel(t.Context())
			n := 0
			b.Hook = func(string, bool) error {
				if n++; n == at+1 {
					cancel()
				}
				return nil
			}
			_, err := b.Raise(ctx, b.plan(t, "a"), lifecycle.RaiseOptions{Files: files})
			if err == nil { // cancelled when all was done
				_, err = b.Destroy(t.Context(), "a")
				if err != nil {
					t.Fatal(err)
				}
			} else if code := exitCode(err); code != 130 {
				t.Errorf("exit code %d: %v", code, err)
			}
			b.wantNothingLeft(t)
		})
	}
}

// A raise in which anything fails undoes itself, with exit code 1; then it can
// be raised. Where it fails to start warm, it boots and says why.
func TestCaseL3FailAnywhere(t *testing.T) {
	for at := range points(t) {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			b := newBed(t, t.TempDir())
			n := 0
			b.Hook = func(op string, _ bool) error {
				if n++; n == at+1 {
					return errors.New("injected into " + op)
				}
				return nil
			}
			r, err := b.Raise(t.Context(), b.plan(t, "a"), lifecycle.RaiseOptions{Files: files})
			if err == nil && r.Disks.Plain != "" {
				if said := b.Narration.String(); !strings.Contains(said, "a power cut will not lose") || !strings.Contains(said, "injected into") {
					t.Errorf("plain disks without saying why:\n%s", said)
				}
				return
			}
			if err == nil && r.Machines["one"].Start+r.Machines["two"].Start != "warmwarm" {
				if said := b.Narration.String(); !strings.Contains(said, "no warm start of ") || !strings.Contains(said, "injected into") {
					t.Errorf("booted without saying why:\n%s", said)
				}
				return
			}
			if code := exitCode(err); code != 1 {
				t.Errorf("exit code %d: %v", code, err)
			}
			if err == nil || !strings.Contains(err.Error(), "injected into") {
				t.Errorf("the reason is not told: %v", err)
			}
			b.wantNothingLeft(t)
			b.raise(t, "a")
		})
	}
}

// A raise kept at any point is partial; the same raise goes on, and every step
// is done.
func TestCaseL2KeepAndGoOn(t *testing.T) {
	for at := range points(t) {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			b := newBed(t, t.TempDir())
			var n atomic.Int64
			b.Hook = func(op string, _ bool) error {
				if n.Add(1) == int64(at)+1 {
					return errors.New("injected into " + op)
				}
				return nil
			}
			plan := b.plan(t, "a")
			keep := lifecycle.RaiseOptions{Files: files, Keep: true}
			if r, err := b.Raise(t.Context(), plan, keep); err == nil {
				if r.Machines["one"].Start+r.Machines["two"].Start == "warmwarm" && r.Disks.Plain == "" {
					t.Fatal("did not fail")
				}
				return // it could not start warm, and booted; or its disks could not be served
			}
			if s, err := b.Status(t.Context(), "a"); err != nil || s.Phase != lifecycle.Partial {
				t.Fatalf("phase %q, %v", s.Phase, err)
			}
			r, err := b.lab().Raise(t.Context(), plan, keep)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range r.Steps {
				if s.State != lifecycle.Done {
					t.Errorf("step %s is %q", s.ID, s.State)
				}
			}
			if _, err := b.Destroy(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			b.wantNothingLeft(t)
		})
	}
}
