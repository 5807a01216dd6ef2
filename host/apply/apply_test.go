package apply_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"mesh/host/apply"
	"mesh/host/apply/applytest"
	"mesh/host/declaration"
	"mesh/host/store"
	"mesh/host/system"
	"mesh/host/system/systemtest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// planned is what a pass over d would do on m.
func planned(t *testing.T, m *systemtest.Machine, d apply.Desired) apply.Plan {
	t.Helper()
	s, _, err := applytest.Open(m)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before := applytest.World(m)
	p, err := applytest.Applier(m, s).Plan(context.Background(), d)
	if err != nil {
		t.Fatal(err)
	}
	if applytest.World(m) != before {
		t.Error("planning changed the machine")
	}
	return p
}

// TestPlanOfTheDemo shows the plans of a whole life: first declaration, the
// same again, a second one, and the empty one.
func TestPlanOfTheDemo(t *testing.T) {
	s := applytest.Demo()
	m := s.Machine()
	var b strings.Builder
	for i, d := range s.Passes {
		fmt.Fprintf(&b, "--- generation %d\n%s", i+1, planned(t, m, d))
		fmt.Fprintf(&b, "--- came to\n%s", summary(pass(t, m, d)))
		fmt.Fprintf(&b, "--- again\n%s", planned(t, m, d))
	}
	golden := filepath.Join("testdata", "demo.plan")
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Error(diff)
	}
}

// TestHandover: what a bundle raised passes to the plane without a change and
// stays owned.
func TestHandover(t *testing.T) {
	s := applytest.Demo()
	m := s.Machine()
	bundle := s.Passes[0]
	bundle.Source, bundle.Epoch, bundle.Generation, bundle.Digest = store.SourceBundle, 0, 0, "bundle"
	pass(t, m, bundle)
	before, owned := applytest.World(m), len(view(t, m).Owned)

	if p := planned(t, m, s.Passes[0]); p.Changes() != 0 {
		t.Errorf("the handover would change:\n%s", p)
	}
	if got := summary(pass(t, m, s.Passes[0])); got != "" {
		t.Errorf("the handover changed: %s", got)
	}
	if v := view(t, m); applytest.World(m) != before || len(v.Owned) != owned || v.Accepted.Source != store.SourcePlane {
		t.Errorf("after the handover: %+v", v)
	}
	pass(t, m, s.Passes[1])
	pass(t, m, s.Passes[2])
	if v := view(t, m); len(v.Owned) != 0 {
		t.Errorf("still owned: %+v", v.Owned)
	}
}

// TestDrift: everything that was made is put right when it is changed by hand.
func TestDrift(t *testing.T) {
	s := applytest.Demo()
	for what, drift := range map[string]func(m *systemtest.Machine){
		"content": func(m *systemtest.Machine) {
			m.Disk.Put("/etc/demo/a.conf", systemtest.Thing{Type: system.TypeFile, Mode: 0o644, Content: "by hand"})
		},
		"mode": func(m *systemtest.Machine) {
			m.Disk.Put("/srv/d", systemtest.Thing{Type: system.TypeFile, Mode: 0o666, Content: "d1\n"})
		},
		"owner": func(m *systemtest.Machine) {
			m.Disk.Put("/srv/d", systemtest.Thing{Type: system.TypeFile, UID: 5, Mode: 0o644, Content: "d1\n"})
		},
		"gone":    func(m *systemtest.Machine) { m.Disk.Put("/etc/demo/sub/c.conf", systemtest.Thing{}) },
		"stopped": func(m *systemtest.Machine) { _ = m.Stop(context.Background(), "demo.service") },
		"disabled": func(m *systemtest.Machine) {
			_ = m.Disable(context.Background(), "web.service")
		},
		"uninstalled": func(m *systemtest.Machine) {
			_ = m.Uninstall(context.Background(), "demo", func(string) {})
		},
	} {
		t.Run(what, func(t *testing.T) {
			m := s.Machine()
			pass(t, m, s.Passes[0])
			right := applytest.World(m)
			drift(m)
			if applytest.World(m) == right {
				t.Fatal("nothing drifted")
			}
			out := pass(t, m, s.Passes[0])
			if strings.Contains(summary(out), "failed") || applytest.World(m) != right || len(m.Stale()) > 0 {
				t.Errorf("%s\n%s\nwas\n%s", summary(out), applytest.World(m), right)
			}
		})
	}
}

// TestRestarts: a service restarts once for all that changed, at its place, and
// not for what did not change.
func TestRestarts(t *testing.T) {
	m := systemtest.New()
	m.AddUnit(systemtest.Unit{Name: "u.service", Active: "active", Enabled: "enabled", Reads: []string{"/etc/a", "/etc/b", "/etc/c"}})
	d := func(generation uint64, a, b, c string) apply.Desired {
		r := []declaration.Resource{applytest.File("m/a", "/etc/a", a), applytest.File("m/b", "/etc/b", b)}
		on := []string{"m/a", "m/b"}
		if c != "" {
			r, on = append(r, applytest.File("m/c", "/etc/c", c)), append(on, "m/c")
		}
		return applytest.Desired(generation, append(r, applytest.Service("m/u", "u.service", on...))...)
	}
	restarts := 0
	for i, tt := range []struct {
		what    string
		a, b, c string
		more    int
	}{
		{"everything is new", "1", "1", "1", 1},
		{"nothing changed", "1", "1", "1", 0},
		{"one changed", "2", "1", "1", 1},
		{"all changed", "3", "3", "3", 1},
		{"one is not declared any more, and goes", "3", "3", "", 1},
		{"one changed and one came", "4", "3", "5", 1},
		{"one changed and one goes", "5", "3", "", 1},
	} {
		out := pass(t, m, d(uint64(i+1), tt.a, tt.b, tt.c))
		restarts += tt.more
		if n := m.Restarts("u.service"); n != restarts {
			t.Errorf("%s: restarted %d times, want %d: %s", tt.what, n, restarts, summary(out))
			restarts = n
		}
		if stale := m.Stale(); len(stale) > 0 {
			t.Errorf("%s: %v runs with what was before", tt.what, stale)
		}
		seen := map[string]bool{}
		for _, r := range out.Results {
			if seen[r.ID] {
				t.Errorf("%s: %s is reported twice", tt.what, r.ID)
			}
			seen[r.ID] = true
		}
	}
}

// TestMoved: a file that keeps its ID and moves is made at its new place, gone
// from the old one, and its service restarts once.
func TestMoved(t *testing.T) {
	m := systemtest.New()
	m.AddUnit(systemtest.Unit{Name: "u.service", Active: "active", Enabled: "enabled", Reads: []string{"/etc/old", "/etc/new"}})
	d := func(generation uint64, where string) apply.Desired {
		return applytest.Desired(generation, applytest.File("m/f", where, "x"), applytest.Service("m/u", "u.service", "m/f"))
	}
	pass(t, m, d(1, "/etc/old"))
	before := m.Restarts("u.service")
	want := "changed m/f: it is not there\n" +
		"changed m/u: it owes a restart because of m/f (file /etc/new) since generation 2 and 1 more\n" +
		"removed m/f: it is not declared any more\n"
	if got := summary(pass(t, m, d(2, "/etc/new"))); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if n := m.Restarts("u.service") - before; n != 1 || len(m.Stale()) > 0 {
		t.Errorf("restarted %d times, stale: %v", n, m.Stale())
	}
}

// TestServiceThatDoesNotStartIsTriedOnce, even if it is to restart behind the
// removals as well.
func TestServiceThatDoesNotStartIsTriedOnce(t *testing.T) {
	m := systemtest.New()
	m.AddUnit(systemtest.Unit{Name: "u.service", Active: "active", Enabled: "enabled"})
	pass(t, m, applytest.Desired(1, applytest.File("m/f", "/etc/f", "x"), applytest.Service("m/u", "u.service", "m/f")))
	m.AddUnit(systemtest.Unit{Name: "u.service", Active: "failed", Enabled: "enabled", Fails: "exit status 1"})
	tries := 0
	m.Hook(func(op systemtest.Op) error {
		if op.Name == "start" || op.Name == "restart" {
			tries++
		}
		return nil
	})
	out := pass(t, m, applytest.Desired(2, applytest.Service("m/u", "u.service")))
	if got, want := summary(out), "failed m/u: start u.service: exit status 1\nremoved m/f: it is not declared any more\n"; got != want || tries != 1 {
		t.Errorf("tried %d times: %q", tries, got)
	}
	if debts := view(t, m).Debts; len(debts) != 1 || debts[0].Because.Where != "/etc/f" {
		t.Errorf("owed: %+v", debts)
	}
}

// TestWaits: a service waits for what it restarts on, and what does not depend
// on a failure goes on.
func TestWaits(t *testing.T) {
	m := systemtest.New()
	for _, name := range []string{"one.service", "two.service", "three.service"} {
		m.AddUnit(systemtest.Unit{Name: name})
	}
	out := pass(t, m, applytest.Desired(1,
		applytest.File("m/bad", "/nowhere/x", "x"),
		applytest.Service("m/one", "one.service", "m/bad"),
		applytest.Service("m/two", "two.service", "m/one"),
		applytest.File("m/good", "/etc/good", "x"),
		applytest.Service("m/three", "three.service", "m/good")))
	want := "failed m/bad: /nowhere/x: the directory it lies in is not there: declare it before this: file does not exist\n" +
		"waiting m/one: it waits for m/bad, which did not work\n" +
		"waiting m/two: it waits for m/one, which did not work\n" +
		"changed m/good: it is not there\n" +
		"changed m/three: it is inactive\n"
	if diff := cmp.Diff(want, summary(out)); diff != "" {
		t.Error(diff)
	}
}

// TestKeptDirectory: a directory that holds something of somebody else's stays,
// is reported once, and is listed as left behind.
func TestKeptDirectory(t *testing.T) {
	m := systemtest.New()
	pass(t, m, applytest.Desired(1, applytest.Directory("m/d", "/srv/d", ""), applytest.File("m/f", "/srv/d/f", "x")))
	m.Disk.Put("/srv/d/theirs", systemtest.Thing{Type: system.TypeFile, Mode: 0o600})
	want := "removed m/f: it is not declared any more\nkept m/d: it is not empty\n"
	if got := summary(pass(t, m, applytest.Desired(2))); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if v := view(t, m); len(v.Owned) != 0 || len(v.Left) != 1 || v.Left[0].Left != "it is not empty" {
		t.Errorf("%+v", v)
	}
	if got := summary(pass(t, m, applytest.Desired(2))); got != "" {
		t.Errorf("it is reported again: %q", got)
	}
}

// TestDirectoryWaitsForWhatIsOwnedInIt stays owned as long as that is.
func TestDirectoryWaitsForWhatIsOwnedInIt(t *testing.T) {
	m := systemtest.New()
	pass(t, m, applytest.Desired(1, applytest.Directory("m/d", "/srv/d", ""), applytest.File("m/f", "/srv/d/f", "x")))
	m.Hook(func(op systemtest.Op) error {
		if op.Name == "unlink" && op.Where == "/srv/d/f" {
			return unix.EIO
		}
		return nil
	})
	out := pass(t, m, applytest.Desired(2))
	if got := summary(out); !strings.HasPrefix(got, "failed m/f: unlink /srv/d/f: input/output error\nwaiting m/d: something in it is still to be removed") {
		t.Errorf("got %q", got)
	}
	m.Hook(nil)
	pass(t, m, applytest.Desired(2))
	if v := view(t, m); len(v.Owned)+len(v.Left) != 0 || strings.Contains(applytest.World(m), "/srv/d") {
		t.Errorf("%+v\n%s", v, applytest.World(m))
	}
}

// TestOwnerComesWithAPackage: what cannot be resolved before a package is there
// is resolved once it is.
func TestOwnerComesWithAPackage(t *testing.T) {
	m := systemtest.New()
	m.OfferPackage("p", systemtest.Offer{Versions: []string{"1"}, Users: map[string]uint32{"them": 7}})
	owned := declaration.Resource{ID: "m/f", File: &declaration.File{Path: "/etc/f", Content: "x", Owner: "them", Group: "them"}}
	if got := summary(pass(t, m, applytest.Desired(1, owned))); !strings.HasPrefix(got, `failed m/f: user "them" does not exist`) {
		t.Errorf("without the package: %q", got)
	}
	pass(t, m, applytest.Desired(2, declaration.Resource{ID: "m/p", Package: &declaration.Package{Name: "p"}}, owned))
	if e, err := m.Look("/etc/f"); err != nil || e.UID != 7 || e.GID != 7 {
		t.Errorf("%+v %v", e, err)
	}
}

// TestServiceThatCameWithAPackage: what the package of the same pass started was
// not there before the host, so it goes when it is not declared any more.
func TestServiceThatCameWithAPackage(t *testing.T) {
	m := systemtest.New()
	m.OfferPackage("p", systemtest.Offer{Versions: []string{"1"}, Units: []systemtest.Unit{{Name: "u.service", Active: "active", Enabled: "enabled"}}})
	p := declaration.Resource{ID: "m/p", Package: &declaration.Package{Name: "p"}}
	pass(t, m, applytest.Desired(1, p, applytest.Service("m/u", "u.service")))
	if got, want := summary(pass(t, m, applytest.Desired(2, p))), "removed m/u: it is not declared any more\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !strings.Contains(m.String(), "unit u.service inactive disabled") {
		t.Error(m.Services)
	}
}

// TestNewerKindsAreLeftAlone: what a newer host owned is neither touched nor
// forgotten by this one.
func TestNewerKindsAreLeftAlone(t *testing.T) {
	m := systemtest.New()
	s, _, err := applytest.Open(m)
	if err != nil {
		t.Fatal(err)
	}
	quantum := store.Key{Kind: "quantum", Where: "web"}
	if err := s.Append(store.Intent{Key: quantum, ID: "m/c"}, store.Owned{Key: quantum, ID: "m/c"}, store.Intent{Key: quantum, ID: "m/c"}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if got := summary(pass(t, m, applytest.Desired(1))); got != "" {
		t.Errorf("%q", got)
	}
	if v := view(t, m); len(v.Owned) != 1 || len(v.Intents) != 1 {
		t.Errorf("%+v", v)
	}
}

// TestToldToStop: what was not begun waits, and nothing is lost.
func TestToldToStop(t *testing.T) {
	m := systemtest.New()
	s, _, err := applytest.Open(m)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m.OfferPackage("p", systemtest.Offer{Versions: []string{"1"}})
	ctx, cancel := context.WithCancel(context.Background())
	a := apply.New(apply.Config{Machine: m, Store: s, Now: applytest.Clock, Watch: func(a apply.Activity) {
		if a.What == "installing" {
			cancel()
		}
	}})
	out, err := a.Reconcile(ctx, applytest.Desired(1,
		declaration.Resource{ID: "m/p", Package: &declaration.Package{Name: "p"}}, applytest.File("m/f", "/etc/f", "x")))
	if err == nil {
		t.Error("the pass says nothing of having been stopped")
	}
	want := "changed m/p: it is not installed\nwaiting m/f: the host was told to stop before its turn\n"
	if got := summary(out); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if v := s.View(); len(v.Owned) != 1 || len(v.Intents) != 0 {
		t.Errorf("%+v", v)
	}
}

// TestConverges brings one machine through random declarations: each ends as
// declared, the next pass over the same is quiet, and the empty one at the end
// leaves what was there before.
func TestConverges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := systemtest.New()
		m.Disk.Put("/etc/a", systemtest.Thing{Type: system.TypeFile, Mode: 0o644, Content: "1"})
		m.OfferPackage("p", systemtest.Offer{Versions: []string{"1", "2"}})
		m.AddUnit(systemtest.Unit{Name: "u.service", Reads: []string{"/etc/a", "/etc/b", "/srv/d/c"}})
		generation := uint64(0)
		do := func(d apply.Desired) declaration.Outcome {
			out, err := applytest.Pass(context.Background(), m, d)
			if err != nil {
				rt.Fatal(err)
			}
			if got := summary(out); strings.Contains(got, "failed") || strings.Contains(got, "waiting") {
				rt.Fatal(got)
			}
			return out
		}
		for range rapid.IntRange(1, 5).Draw(rt, "generations") {
			generation++
			d := applytest.Desired(generation, randomResources(rt)...)
			do(d)
			if got := summary(do(d)); got != "" {
				rt.Fatalf("the second pass did something: %s", got)
			}
		}
		do(applytest.Desired(generation + 1))
		for _, gone := range []string{"/etc/b", "/srv/d", "package p", "u.service active"} {
			if strings.Contains(applytest.World(m), gone) {
				rt.Fatalf("%s is left:\n%s", gone, applytest.World(m))
			}
		}
	})
}

func randomResources(t *rapid.T) []declaration.Resource {
	var all []declaration.Resource
	var on []string
	content := rapid.SampledFrom([]string{"1", "2"})
	add := func(r declaration.Resource) {
		if rapid.Bool().Draw(t, "declare "+r.ID) {
			all, on = append(all, r), append(on, r.ID)
		}
	}
	add(declaration.Resource{ID: "m/p", Package: &declaration.Package{Name: "p", Version: rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "version")}})
	add(applytest.File("m/a", "/etc/a", content.Draw(t, "a")))
	add(applytest.File("m/b", "/etc/b", content.Draw(t, "b")))
	if rapid.Bool().Draw(t, "declare m/d") {
		all = append(all, applytest.Directory("m/d", "/srv/d", rapid.SampledFrom([]string{"0755", "0700"}).Draw(t, "mode")))
		add(applytest.File("m/c", "/srv/d/c", content.Draw(t, "c")))
	}
	if rapid.Bool().Draw(t, "declare m/u") {
		all = append(all, applytest.Service("m/u", "u.service", on...))
	}
	return all
}
