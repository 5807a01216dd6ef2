package snapshot_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/fault"
	"mesh/lab/guest"
	"mesh/lab/lifecycle"
	"mesh/lab/snapshot"
)

// In place memory, disks and the state of the world are what they were, in the
// same world; what was written since is gone.
func TestRestoreInPlace(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	b.live(t, "a", "then")
	before, err := b.Record("a")
	must(t, err)
	must(t, b.SetState(t.Context(), before.Plan.World, []byte(`{"faults":["loss"]}`)))
	m := b.take(t, "a", "first")
	b.wantLives(t, "a", "then")
	b.live(t, "a", "later")
	must(t, b.SetState(t.Context(), before.Plan.World, []byte(`{"faults":[]}`)))
	b.wantLives(t, "a", "later")

	r := b.restore(t, snapshot.RestoreOptions{Scenario: "a", Snapshot: "first"})
	b.wantLives(t, "a", "then")
	if state, err := b.State(t.Context(), before.Plan.World); err != nil || string(state) != `{"faults":["loss"]}` {
		t.Errorf("the world's state is %s, %v", state, err)
	}
	after, err := b.Record("a")
	must(t, err)
	if after.World != before.World || r.NewRoots {
		t.Errorf("the world was begun anew, though it lived")
	}
	if diff := cmp.Diff([]string{m.ID}, after.Snapshots); diff != "" {
		t.Errorf("what it comes of (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(b.usedLayers(t), b.layerFiles(t)); diff != "" {
		t.Errorf("layers (-used +there):\n%s", diff)
	}
	b.wantNoLocks(t)
}

// A copy beside has the same inside, and no name of the first on the lab machine;
// both go their own ways.
func TestCaseL7Beside(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	b.live(t, "a", "then")
	b.take(t, "a", "first")
	b.live(t, "a", "on a")
	r := b.restore(t, snapshot.RestoreOptions{Scenario: "a", Snapshot: "first", As: "b"})
	b.wantLives(t, "b", "then")
	b.wantLives(t, "a", "on a")
	b.live(t, "b", "on b")
	b.wantLives(t, "a", "on a")
	if !r.NewRoots {
		t.Error("a world of its own has the issuer of the first")
	}

	one, err := b.Record("a")
	must(t, err)
	two, err := b.Record("b")
	must(t, err)
	for _, name := range []string{"one", "two"} {
		if diff := cmp.Diff(lifecycle.Addresses(one.Plan, name), lifecycle.Addresses(two.Plan, name)); diff != "" {
			t.Errorf("machine %s stands elsewhere:\n%s", name, diff)
		}
	}
	outer := map[lifecycle.Object]bool{}
	for _, o := range one.Plan.Objects {
		outer[o] = true
	}
	for _, o := range two.Plan.Objects {
		if outer[o] {
			t.Errorf("both have %s %s", o.Kind, o.Name)
		}
	}
	if !strings.Contains(b.File("mesh-b.one", "/usr/local/share/ca-certificates/world-1.crt"), "CERTIFICATE") {
		t.Error("machine one of b was not told the new root")
	}
	if _, err := b.Destroy(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	b.wantLives(t, "b", "on b")
}

// Many at once from one snapshot: all stand, also where the first makes its disks
// consist of fewer layers.
func TestCaseL7ManyAtOnce(t *testing.T) {
	for _, from := range []string{"first", "deep"} {
		b := newBed(t, t.TempDir())
		b.raise(t, "a")
		b.live(t, "a", "then")
		b.take(t, "a", "first")
		if from == "deep" {
			b.deepen(t)
			b.live(t, "a", "then")
			must(t, b.Snapshots.Remove("a", "deep"))
			b.take(t, "a", "deep")
		}
		names := []string{"b", "c", "d", "e", "f"}
		errs := make(chan error, len(names))
		for _, name := range names {
			go func() {
				_, err := b.Snapshots.Restore(t.Context(), snapshot.RestoreOptions{Scenario: "a", Snapshot: from, As: name})
				errs <- err
			}()
		}
		for range names {
			if err := <-errs; err != nil {
				t.Errorf("from snapshot %s: %v", from, err)
			}
		}
		for _, name := range names {
			b.wantLives(t, name, "then")
		}
	}
}

// Snapshots outlive the scenario: restoring one raises it again.
func TestRestoreWhatWasDestroyed(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	must(t, os.WriteFile(filepath.Join(b.Directory("a"), "repository", "Packages"), []byte("Package: x\n"), 0o644))
	b.live(t, "a", "then")
	b.take(t, "a", "first")
	if _, err := b.Destroy(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	b.restore(t, snapshot.RestoreOptions{Scenario: "a", Snapshot: "first"})
	b.wantLives(t, "a", "then")
	if text, err := os.ReadFile(filepath.Join(b.Directory("a"), "repository", "Packages")); err != nil || string(text) != "Package: x\n" {
		t.Errorf("the packages that it was offered are %q, %v", text, err)
	}
	if _, err := b.Destroy(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	must(t, b.Snapshots.Remove("a", "first"))
	if left := b.layerFiles(t); len(left) != len(b.usedLayers(t)) {
		t.Errorf("layers are left: %v", left)
	}
	if left, err := filepath.Glob(filepath.Join(b.store, "snapshots", "*")); err != nil || len(left) > 0 {
		t.Errorf("left of snapshots: %v, %v", left, err)
	}
}

// Raised from another declaration in between, a scenario is replaced whole.
func TestRestoreOverAnother(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	b.live(t, "a", "then")
	b.take(t, "a", "first")
	if _, err := b.Destroy(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	b.raise(t, "a") // other machine ids
	b.live(t, "a", "another")
	b.restore(t, snapshot.RestoreOptions{Scenario: "a", Snapshot: "first"})
	b.wantLives(t, "a", "then")
	if diff := cmp.Diff(b.usedLayers(t), b.layerFiles(t)); diff != "" {
		t.Errorf("layers (-used +there):\n%s", diff)
	}
}

// One machine goes back; the other and the world go on.
func TestRestoreOneMachine(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	b.live(t, "a", "then")
	b.take(t, "a", "first")
	b.live(t, "a", "later")
	b.restore(t, snapshot.RestoreOptions{Scenario: "a", Snapshot: "first", Machine: "two"})
	if got := b.Recall("mesh-a.two", "value") + " " + b.File("mesh-a.two", "value"); got != "then then" {
		t.Errorf("machine two has %q", got)
	}
	if got := b.Recall("mesh-a.one", "value") + " " + b.File("mesh-a.one", "value"); got != "later later" {
		t.Errorf("machine one has %q", got)
	}
	r, err := b.Record("a")
	must(t, err)
	if r.Phase != lifecycle.Raised {
		t.Errorf("it is %s", r.Phase)
	}
}

// A world that died is begun anew, and machines trust its new issuer.
func TestRestoreWithoutWorld(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	b.live(t, "a", "then")
	b.take(t, "a", "first")
	b.KillWorlds()
	r := b.restore(t, snapshot.RestoreOptions{Scenario: "a", Snapshot: "first"})
	b.wantLives(t, "a", "then")
	if !r.NewRoots || !strings.Contains(b.told.String(), "no certificate that was issued before") {
		t.Errorf("that certificates are lost is not said:\n%s", b.told.String())
	}
}

// Where nobody serves the disks any more, the scenario is replaced whole.
func TestRestoreWithoutDisks(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	b.live(t, "a", "then")
	b.take(t, "a", "first")
	b.KillServers()
	b.restore(t, snapshot.RestoreOptions{Scenario: "a", Snapshot: "first"})
	b.wantLives(t, "a", "then")
	if abandoned, err := b.Abandoned(); err != nil || len(abandoned) > 0 {
		t.Errorf("abandoned: %v, %v", abandoned, err)
	}
}

// A single machine gets a disk that is served again; the others keep their world.
func TestRestoreOneMachineWithoutDisks(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	b.live(t, "a", "then")
	b.take(t, "a", "first")
	b.KillServers()
	b.restore(t, snapshot.RestoreOptions{Scenario: "a", Snapshot: "first", Machine: "one"})
	s, err := b.Status(t.Context(), "a")
	if err != nil || s.Abandoned != "" || s.Disks.Problem != "" {
		t.Errorf("status: %+v, %q, %v", s.Disks, s.Abandoned, err)
	}
	if diff := cmp.Diff([]string{"two"}, s.Disks.Lost); diff != "" {
		t.Errorf("machines that get errors (-want +got):\n%s", diff)
	}
}

// A machine that was paused, or off, is so after the snapshot and after a restore.
func TestPausedAndOff(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	b.live(t, "a", "then")
	must(t, b.Ports(lifecycle.Config{}).Memory.Pause(t.Context(), "mesh-a.one"))
	must(t, b.Cut(t.Context(), "a", "two"))
	states := func() (all []string) {
		s, err := b.Status(t.Context(), "a")
		must(t, err)
		for _, m := range s.Machines {
			all = append(all, m.Name+" "+m.State)
		}
		return all
	}
	want := states()
	b.take(t, "a", "first")
	if diff := cmp.Diff(want, states()); diff != "" {
		t.Errorf("after the snapshot (-want +got):\n%s", diff)
	}
	b.restore(t, snapshot.RestoreOptions{Scenario: "a", Snapshot: "first"})
	if diff := cmp.Diff(want, states()); diff != "" {
		t.Errorf("after the restore (-want +got):\n%s", diff)
	}
	must(t, b.PowerOn(t.Context(), "a", "two"))
	if got := b.File("mesh-a.two", "value"); got != "then" {
		t.Errorf("the disk of the machine that was off holds %q", got)
	}
}

// settler records what guests are given, and in which order with the rest.
type settler struct {
	lifecycle.Guest
	given chan guest.Identity
}

func (s settler) Settle(ctx context.Context, name string, id guest.Identity) (guest.Facts, error) {
	s.given <- id
	return s.Guest.Settle(ctx, name, id)
}

// Clock and entropy are a machine's before it meets anybody, and nothing else of
// its identity changes.
func TestCaseL5ClockBeforeAnythingElse(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		b := newBed(t, t.TempDir())
		b.raise(t, "a")
		b.take(t, "a", "first")
		given := make(chan guest.Identity, 2)
		b.config.Ports.Guest = settler{b.config.Ports.Guest, given}
		var ops []string
		b.Hook = func(op string, after bool) error {
			if !after {
				ops = append(ops, strings.Fields(op)[0])
			}
			return nil
		}
		if _, err := snapshot.New(b.config).Restore(t.Context(), snapshot.RestoreOptions{Scenario: "a", Snapshot: "first", Frozen: frozen}); err != nil {
			t.Fatal(err)
		}
		ops = slices.DeleteFunc(ops, func(op string) bool { return !slices.Contains([]string{"resume", "settle", "attach"}, op) })
		if diff := cmp.Diff([]string{"resume", "resume", "settle", "settle", "attach", "attach"}, ops); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
		for range 2 {
			id := <-given
			if len(id.Entropy) < 32 {
				t.Errorf("%d bytes of entropy", len(id.Entropy))
			}
			id.Entropy = nil
			if diff := cmp.Diff(guest.Identity{KeepClock: frozen, Silent: true}, id); diff != "" {
				t.Errorf("identity (-want +got):\n%s", diff)
			}
		}
	}
}

func TestFork(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	b.live(t, "a", "now")
	r, err := b.Snapshots.Fork(t.Context(), snapshot.ForkOptions{Scenario: "a"})
	must(t, err)
	if r.Scenario != "a-2" {
		t.Errorf("it is called %q", r.Scenario)
	}
	b.wantLives(t, "a-2", "now")
	b.live(t, "a", "on a")
	b.wantLives(t, "a-2", "now")
	b.wantLives(t, "a", "on a")
	if all, err := b.Snapshots.Store().List(""); err != nil || len(all) > 0 {
		t.Errorf("snapshots are left: %v, %v", all, err)
	}
	if left, err := filepath.Glob(filepath.Join(b.store, "snapshots", "*")); err != nil || len(left) > 0 {
		t.Errorf("left of snapshots: %v, %v", left, err)
	}
	if diff := cmp.Diff(b.usedLayers(t), b.layerFiles(t)); diff != "" {
		t.Errorf("layers (-used +there):\n%s", diff)
	}

	b.take(t, "a", "first")
	b.live(t, "a", "later")
	r, err = b.Snapshots.Fork(t.Context(), snapshot.ForkOptions{Scenario: "a", Snapshot: "first"})
	must(t, err)
	if r.Scenario != "a-3" {
		t.Errorf("the second is called %q", r.Scenario)
	}
	b.wantLives(t, "a-3", "on a")
	b.wantNoLocks(t)
}

// Nothing of the place that a snapshot was taken at is in its manifest, and its
// layers name each other only.
func TestCaseL8NoPaths(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	b.take(t, "a", "first")
	b.take(t, "a", "second")
	text, err := os.ReadFile(filepath.Join(b.Snapshots.Store().Path("a", "second"), "manifest.json"))
	must(t, err)
	for _, trace := range []string{b.store, b.run, b.Fake.Dir} {
		if strings.Contains(string(text), trace) {
			t.Errorf("%s is in the manifest:\n%s", trace, text)
		}
	}
	b.usedLayers(t) // follows every chain
}

// Faults in force at the cut are in force after a restore, those of later are
// not; a snapshot leaves those of the scenario as they are.
func TestFaultsAreTheSnapshots(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	machine := func(name string) []fault.Target { return []fault.Target{{Kind: fault.Machine, Name: name}} }
	add := func(f fault.Fault) {
		t.Helper()
		_, err := b.AddFault(t.Context(), "a", f)
		must(t, err)
	}
	add(fault.Fault{Kind: fault.Loss, On: machine("two"), Share: 300_000})
	add(fault.Fault{Kind: fault.DiskSlow, On: machine("one"), Ops: 10})
	add(fault.Fault{Kind: fault.DiskError, On: machine("two"), How: fault.Writes})
	add(fault.Fault{Kind: fault.LinkDown, On: machine("one")})
	conditions := func() string { // names of layers apart
		r, err := b.Record("a")
		must(t, err)
		text := b.Conditions()
		for _, m := range r.Plan.Machines {
			text = strings.ReplaceAll(text, lifecycle.LayerID(m.Spec.Disk), "of "+m.Name)
		}
		return text
	}
	before := conditions()
	if !strings.Contains(before, "of two") {
		t.Fatalf("no disk fails:\n%s", before)
	}
	listed, err := b.Faults("a")
	must(t, err)
	b.take(t, "a", "first")
	for _, line := range strings.Split(before, "\n") {
		if !strings.Contains(conditions(), line) {
			t.Errorf("after the snapshot this is not in force any more:\n%s\nbut\n%s", line, conditions())
		}
	}
	must(t, b.RemoveFaults(t.Context(), "a"))
	add(fault.Fault{Kind: fault.Delay, On: machine("one"), Delay: fault.Duration(time.Second)})

	b.restore(t, snapshot.RestoreOptions{Scenario: "a", Snapshot: "first"})
	after, err := b.Faults("a")
	must(t, err)
	if diff := cmp.Diff(listed, after); diff != "" {
		t.Errorf("faults (-at the cut +restored):\n%s", diff)
	}
	for _, line := range strings.Split(before, "\n") {
		if !strings.Contains(conditions(), line) {
			t.Errorf("after the restore this is not in force:\n%s\nbut\n%s", line, conditions())
		}
	}
	if strings.Contains(conditions(), "delay") {
		t.Errorf("what came later is in force:\n%s", conditions())
	}
}

// A restore waits for its turn behind what begins to run already, and changes
// nothing before.
func TestRestoreWaitsForItsTurn(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	b.live(t, "a", "then")
	b.take(t, "a", "first")
	b.live(t, "a", "now")
	var ends []func()
	for range 3 { // of four that there are: a restore of two machines wants two
		end, err := b.Turn(t.Context(), lifecycle.Beginning{Accelerator: "tcg", What: "another"})
		must(t, err)
		ends = append(ends, end)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := b.Snapshots.Restore(ctx, snapshot.RestoreOptions{Scenario: "a", Snapshot: "first"})
	if err == nil || !strings.Contains(b.told.String(), "waits for its turn, 3 before it: restore snapshot first of a") {
		t.Errorf("it does not wait: %v\n%s", err, b.told.String())
	}
	b.wantLives(t, "a", "now")
	ends[0]()
	b.restore(t, snapshot.RestoreOptions{Scenario: "a", Snapshot: "first"})
	b.wantLives(t, "a", "then")
	for _, end := range ends[1:] {
		end()
	}
}

// Faults of a machine whose power is off hold again when it is given back, after a
// restore too.
func TestFaultsOfAMachineThatIsOff(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	for _, f := range []fault.Fault{{Kind: fault.DiskSlow, Ops: 10}, {Kind: fault.LinkDown}, {Kind: fault.DiskDetached}, {Kind: fault.DiskError}, {Kind: fault.Pause}} {
		f.On = []fault.Target{{Kind: fault.Machine, Name: "two"}}
		_, err := b.AddFault(t.Context(), "a", f)
		must(t, err)
	}
	must(t, b.Cut(t.Context(), "a", "two"))
	b.take(t, "a", "first")
	b.restore(t, snapshot.RestoreOptions{Scenario: "a", Snapshot: "first"})
	listed, err := b.Faults("a")
	if err != nil || len(listed) != 6 {
		t.Errorf("faults: %v, %v", listed, err)
	}
	must(t, b.RemoveFaults(t.Context(), "a", "pause-two"))
	must(t, b.PowerOn(t.Context(), "a", "two"))
	for _, want := range []string{"detached true", "OperationsPerSecond:10", "fails"} {
		if !strings.Contains(b.Conditions(), want) {
			t.Errorf("%q does not hold:\n%s", want, b.Conditions())
		}
	}
}
