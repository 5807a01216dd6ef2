package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/fault"
	"mesh/lab/lifecycle"
	"mesh/lab/snapshot"
)

// walks are the things that can be cut off, each begun with scenario a, whose
// machines hold "then" in snapshot first and "now" at present.
var walks = map[string]func(context.Context, *bed) error{
	"take": func(ctx context.Context, b *bed) error {
		_, err := b.Snapshots.Take(ctx, "a", "second", "")
		return err
	},
	"restore in place": func(ctx context.Context, b *bed) error {
		_, err := b.Snapshots.Restore(ctx, snapshot.RestoreOptions{Scenario: "a", Snapshot: "first"})
		return err
	},
	"restore beside": func(ctx context.Context, b *bed) error {
		_, err := b.Snapshots.Restore(ctx, snapshot.RestoreOptions{Scenario: "a", Snapshot: "first", As: "b"})
		return err
	},
	"restore one machine": func(ctx context.Context, b *bed) error {
		_, err := b.Snapshots.Restore(ctx, snapshot.RestoreOptions{Scenario: "a", Snapshot: "first", Machine: "two"})
		return err
	},
	"restore flattened": func(ctx context.Context, b *bed) error {
		_, err := b.Snapshots.Restore(ctx, snapshot.RestoreOptions{Scenario: "a", Snapshot: "deep", As: "b"})
		return err
	},
	"fork": func(ctx context.Context, b *bed) error {
		_, err := b.Snapshots.Fork(ctx, snapshot.ForkOptions{Scenario: "a", As: "b"})
		return err
	},
}

// begin makes what walks begin with. The disk of machine two fails all along.
func begin(t testing.TB, dir string) *bed {
	b := newBed(t, dir)
	b.raise(t, "a")
	_, err := b.AddFault(t.Context(), "a", fault.Fault{Kind: fault.DiskError, On: []fault.Target{{Kind: fault.Machine, Name: "two"}}})
	must(t, err)
	b.live(t, "a", "then")
	b.take(t, "a", "first")
	b.live(t, "a", "now")
	return b
}

// beginWalk makes what one walk begins with.
func beginWalk(t testing.TB, dir, walk string) *bed {
	b := begin(t, dir)
	if walk == "restore flattened" {
		b.deepen(t)
	}
	return b
}

// deepen takes snapshot deep of scenario a, whose disks consist of many layers.
func (b *bed) deepen(t testing.TB) {
	t.Helper()
	for n := range snapshot.ManyLayers - 2 { // the warm image has one, "first" the next
		b.take(t, "a", "passing")
		if n%2 == 0 {
			must(t, b.Remember("mesh-a.one", "at "+strconv.Itoa(n), "deep"))
		}
		must(t, b.Snapshots.Remove("a", "passing"))
	}
	b.take(t, "a", "deep")
}

// points counts the hook's calls in an undisturbed walk.
func points(t *testing.T, walk string) int {
	t.Helper()
	b, n := beginWalk(t, t.TempDir(), walk), 0
	b.Hook = func(string, bool) error { n++; return nil }
	must(t, walks[walk](t.Context(), b))
	if n < 10 {
		t.Fatalf("%s: only %d points to be cut off at", walk, n)
	}
	if walk == "restore flattened" {
		return 6 // what follows is "restore beside"
	}
	return n
}

// The test binary is also the process that is killed: with these variables set
// it walks in a directory and kills itself at the N-th point.
const (
	childDir  = "SNAPSHOT_TEST_DIR"
	childWalk = "SNAPSHOT_TEST_WALK"
	childKill = "SNAPSHOT_TEST_KILL"
)

// TestChild is no test: it is the process that TestKilled kills.
func TestChild(t *testing.T) {
	dir := os.Getenv(childDir)
	if dir == "" {
		t.Skip("only run by TestKilled, in a process of its own")
	}
	at, err := strconv.Atoi(os.Getenv(childKill))
	must(t, err)
	b, n := newBed(t, dir), 0
	b.Hook = func(string, bool) error {
		if n++; n == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	}
	must(t, walks[os.Getenv(childWalk)](t.Context(), b))
}

// killed walks in a process of its own that is killed at a point.
func killed(t *testing.T, dir, walk string, at int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), childDir+"="+dir, childWalk+"="+walk, childKill+"="+strconv.Itoa(at))
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
			return
		}
	}
	t.Fatalf("it was not killed: %v\n%s", err, out)
}

// reap is `lab reap`.
func (b *bed) reap(t *testing.T) {
	t.Helper()
	if _, err := b.Reap(t.Context()); err != nil {
		t.Fatal(err)
	}
	must(t, b.Snapshots.Sweep())
}

// Killed at any point, everything is as before or can be reaped or gone on with;
// no lock is left, no layer is lost or forgotten, and every snapshot that is
// listed can be restored.
func TestKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a process for each point")
	}
	for walk := range walks {
		n := points(t, walk)
		for at := 1; at <= n; at++ {
			t.Run(fmt.Sprint(walk, " ", at), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				beginWalk(t, dir, walk)
				killed(t, dir, walk, at)
				b := newBed(t, dir)
				if at%2 == 0 && walk == "restore in place" {
					b.restore(t, snapshot.RestoreOptions{Scenario: "a", Snapshot: "first"})
					b.wantLives(t, "a", "then")
				} else if at%2 == 0 && walk == "restore one machine" {
					must(t, walks[walk](t.Context(), b))
				} else if at%2 == 0 && walk == "take" {
					b.take(t, "a", "third") // goes on without a word
				}
				b.reap(t)
				b.wantAsBefore(t, walk, at)
			})
		}
	}
}

// wantAsBefore: after a walk that was cut off at a point and reaped. Snapshots are
// whole; of every third they are restored, which takes as long as all the rest.
func (b *bed) wantAsBefore(t *testing.T, walk string, at int) {
	t.Helper()
	b.wantNoLocks(t)
	if abandoned, err := b.Abandoned(); err != nil || len(abandoned) > 0 {
		t.Errorf("still abandoned: %v, %v", abandoned, err)
	}
	if diff := cmp.Diff(b.usedLayers(t), b.layerFiles(t)); diff != "" {
		t.Errorf("layers (-used +there):\n%s", diff)
	}
	if walk == "restore one machine" {
		b.wantOneRestored(t)
	} else if _, err := b.Record("a"); walk != "restore in place" || err == nil {
		b.wantLives(t, "a", b.Recall("mesh-a.one", "value"))
		if got := b.Recall("mesh-a.one", "value"); walk != "restore in place" && got != "now" {
			t.Errorf("scenario a has %q", got)
		}
	}
	b.wantFailingDisks(t)
	all, err := b.Snapshots.Store().List("a")
	must(t, err)
	for i, m := range all {
		must(t, b.Snapshots.Verify(t.Context(), "a", m.Name))
		if at%3 != 0 {
			continue
		}
		as := fmt.Sprintf("check-%d", i)
		b.restore(t, snapshot.RestoreOptions{Scenario: "a", Snapshot: m.Name, As: as})
		want := "now"
		if m.Name == "first" {
			want = "then"
		}
		b.wantLives(t, as, want)
		b.wantFailingDisks(t)
		_, err := b.Destroy(t.Context(), as)
		must(t, err)
	}
}

// wantOneRestored: machine one ran on, and two is as it was at the snapshot, or
// before, or off and boots from its disk at the snapshot.
func (b *bed) wantOneRestored(t *testing.T) {
	t.Helper()
	r, err := b.Record("a")
	must(t, err)
	if r.Machines["two"].Off {
		must(t, b.PowerOn(t.Context(), "a", "two"))
		if disk := b.File("mesh-a.two", "value"); disk != "then" {
			t.Errorf("machine two boots from a disk that has %q", disk)
		}
	} else if memory, disk := b.Recall("mesh-a.two", "value"), b.File("mesh-a.two", "value"); memory != disk || disk == "" {
		t.Errorf("machine two has %q in memory and %q on disk", memory, disk)
	}
	if memory, disk := b.Recall("mesh-a.one", "value"), b.File("mesh-a.one", "value"); memory != "now" || disk != "now" {
		t.Errorf("machine one has %q in memory and %q on disk", memory, disk)
	}
	s, err := b.Status(t.Context(), "a")
	must(t, err)
	for _, m := range s.Machines {
		if s.Phase != lifecycle.Raised || m.State != "running" {
			t.Errorf("machine %s is %s, the scenario %s", m.Name, m.State, s.Phase)
		}
	}
}

// wantFailingDisks: of all layers, just those that machines two write to fail.
func (b *bed) wantFailingDisks(t *testing.T) {
	t.Helper()
	names, err := b.Names()
	must(t, err)
	want := map[string]bool{}
	for _, name := range names {
		r, err := b.Record(name)
		must(t, err)
		want[filepath.Base(r.Plan.Machines[1].Spec.Disk)] = true
	}
	got := map[string]bool{}
	for id := range b.layerFiles(t) {
		if file := filepath.Base(b.Layer(id)); strings.Contains(b.Conditions(), "disk "+file+" fails") {
			got[file] = true
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("failing disks (-want +got):\n%s", diff)
	}
}

// Interrupted at any point, or failed there: the scenario runs on, or, if it was
// being replaced, can be restored; nothing half is left.
func TestCutOff(t *testing.T) {
	for walk := range walks {
		for at := range points(t, walk) {
			// Points are before and after operations: every other fails, the rest are
			// followed by an interruption.
			how := []string{"fail", "interrupt"}[at/2%2]
			if at%2 != at/2%2 {
				continue
			}
			t.Run(fmt.Sprint(walk, " ", how, " ", at+1), func(t *testing.T) {
				t.Parallel()
				b := beginWalk(t, t.TempDir(), walk)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				n := 0
				b.Hook = func(op string, _ bool) error {
					if n++; n != at+1 {
						return nil
					}
					if how == "interrupt" {
						cancel()
						return nil
					}
					return errors.New("injected into " + op)
				}
				err := walks[walk](ctx, b)
				b.Hook = nil
				if how == "fail" && err != nil && !strings.Contains(err.Error(), "injected into") {
					t.Errorf("the reason is not told: %v", err)
				}
				if code := exitCode(err); err != nil && code != map[string]int{"interrupt": 130, "fail": 1}[how] {
					t.Errorf("exit code %d: %v", code, err)
				}
				b.wantCutOff(t, walk, at, err)
			})
		}
	}
}

func (b *bed) wantCutOff(t *testing.T, walk string, at int, err error) {
	t.Helper()
	b.wantNoLocks(t)
	if r, absent := b.Record("a"); absent == nil && r.Phase == lifecycle.Snapshotting {
		// The undoing itself was made to fail. As this process is alive it is not
		// said to be abandoned; whoever takes the scenario next puts it right.
		h, err := b.Hold("a")
		must(t, err)
		must(t, h.Settle(t.Context()))
		h.Release()
		must(t, b.Snapshots.Sweep())
	}
	switch walk {
	case "restore one machine":
		if r, absent := b.Record("a"); absent == nil && r.Phase == lifecycle.Restoring { // likewise
			h, err := b.Hold("a")
			must(t, err)
			must(t, h.LeaveOff(t.Context()))
			h.Release()
		}
	case "take":
		if all, list := b.Snapshots.Store().List("a"); list != nil || err != nil && len(all) != 1 {
			t.Errorf("%d snapshots are listed, %v", len(all), list)
		}
	case "restore in place":
		b.restore(t, snapshot.RestoreOptions{Scenario: "a", Snapshot: "first"})
		b.wantLives(t, "a", "then")
	case "restore beside", "restore flattened", "fork":
		if _, absent := b.Record("b"); err != nil && absent == nil {
			b.reap(t) // the undoing itself was made to fail
			if _, absent := b.Record("b"); absent == nil {
				t.Errorf("scenario b is left")
			}
		}
	}
	b.wantAsBefore(t, walk, at)
}

// Files without a manifest are what a kill leaves between any two steps of a
// removal, and before a snapshot is whole; they are no snapshot, and swept.
func TestSweep(t *testing.T) {
	b := begin(t, t.TempDir())
	b.take(t, "a", "second")
	must(t, os.Remove(b.Snapshots.Store().Path("a", "first")+"/manifest.json"))
	if _, err := b.Snapshots.Store().Get("a", "first"); !errors.Is(err, snapshot.ErrAbsent) {
		t.Errorf("it is there: %v", err)
	}
	b.reap(t)
	if _, err := os.Stat(b.Snapshots.Store().Path("a", "first")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its files are there: %v", err)
	}
	b.wantAsBefore(t, "take", 0)
}

// Others collect layers at any moment, and take none that is about to be used.
func TestCollectMeanwhile(t *testing.T) {
	for walk, do := range walks {
		t.Run(walk, func(t *testing.T) {
			t.Parallel()
			b := beginWalk(t, t.TempDir(), walk)
			b.Hook = func(string, bool) error { return b.Collect() }
			must(t, do(t.Context(), b))
			b.Hook = nil
			if m, err := b.Snapshots.Store().Get("a", "deep"); err == nil && len(m.Plan.Machines[0].Layers) != 2 {
				t.Error("what was to be one layer was collected")
			}
			b.wantAsBefore(t, walk, 0)
		})
	}
}
