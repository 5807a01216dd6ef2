package apply_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mesh/host/apply"
	"mesh/host/apply/applytest"
	"mesh/host/declaration"
	"mesh/host/resource"
	"mesh/host/store"
	"mesh/host/system"
	"mesh/host/system/systemtest"
)

// foreseen plans as somebody does who only looks: from a record that was read,
// on a machine that takes no change.
func foreseen(m *systemtest.Machine, d apply.Desired) (apply.Plan, error) {
	before := m.String()
	m.Hook(func(op systemtest.Op) error {
		if op.Changes || strings.HasPrefix(op.Name, "sync") || op.Name == "lock" {
			return fmt.Errorf("planning does %s %s", op.Name, op.Where)
		}
		return nil
	})
	defer m.Hook(nil)
	record, _, err := store.Read(system.NewStateDirectory(m.Files, applytest.StatePath), nil)
	if err != nil {
		return apply.Plan{}, err
	}
	p, err := apply.Foresee(context.Background(), m, record, d)
	if m.String() != before {
		return p, fmt.Errorf("planning changed the machine:\n%s\nwas\n%s", m, before)
	}
	return p, err
}

// comesTo is what a step leads to when the machine does as it is told.
var comesTo = map[apply.Verb]declaration.Status{
	apply.VerbNone: declaration.StatusInSync, apply.VerbNote: declaration.StatusInSync,
	apply.VerbMake: declaration.StatusChanged, apply.VerbChange: declaration.StatusChanged, apply.VerbRestart: declaration.StatusChanged,
	apply.VerbRemove: declaration.StatusRemoved, apply.VerbForget: declaration.StatusRemoved,
	apply.VerbLeave: declaration.StatusKept, apply.VerbRefuse: declaration.StatusKept,
	apply.VerbBlocked: declaration.StatusFailed, apply.VerbWait: declaration.StatusWaiting,
}

// asForeseen demands that a pass came to what its plan said: every resource, in
// the same order, with the same result. What cannot be seen before is whether a
// directory is empty; its step says so.
func asForeseen(p apply.Plan, out declaration.Outcome) error {
	var want []string
	at := map[store.Key]int{}
	for _, s := range p.Steps {
		line := fmt.Sprintf("%s %s %s", s.Kind, s.Where, comesTo[s.Verb])
		key := store.Key{Kind: s.Kind, Where: s.Where}
		if i, again := at[key]; again {
			want[i] = line
			continue
		}
		at[key] = len(want)
		want = append(want, line)
	}
	var got []string
	for _, r := range out.Results {
		if r.Reason == "it is not empty" || r.Reason == "something in it is still to be removed" {
			r.Status = declaration.StatusRemoved
		}
		got = append(got, fmt.Sprintf("%s %s %s", r.Kind, r.Where, r.Status))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("the pass is not as planned (-planned +done):\n%s\nthe plan:\n%s\nthe pass:\n%s", diff, p, summary(out))
	}
	return nil
}

// TestForeseen shows the plan of each kind of trouble, and that a pass does it.
func TestForeseen(t *testing.T) {
	unit := func(m *systemtest.Machine) {
		m.AddUnit(systemtest.Unit{Name: "u.service", Active: "active", Enabled: "enabled", Reads: []string{"/etc/f", "/etc/g"}})
	}
	f := func(content string) declaration.Resource { return applytest.File("m/f", "/etc/f", content) }
	g, u := applytest.File("m/g", "/etc/g", "x"), applytest.Service("m/u", "u.service", "m/f")
	byHand := func(path, content string) func(*systemtest.Machine) {
		return func(m *systemtest.Machine) {
			m.Disk.Put(path, systemtest.Thing{Type: system.TypeFile, Mode: 0o644, Content: content})
		}
	}
	for _, tt := range []struct {
		what    string
		first   []declaration.Resource
		trouble func(m *systemtest.Machine)
		then    []declaration.Resource
		plan    string
		quiet   bool
	}{
		{"nothing", []declaration.Resource{f("x"), u}, nil, []declaration.Resource{f("x"), u}, "0 to change, 2 as declared, 2 in all\n", true},
		{
			"drift", []declaration.Resource{f("x"), u}, byHand("/etc/f", "by hand"), []declaration.Resource{f("x"), u},
			"change   file /etc/f (m/f): its content is another\n" +
				"restart  service u.service (m/u): it restarts when m/f changes\n2 to change, 0 as declared, 2 in all\n", false,
		},
		{
			"made by hand as it is declared now", []declaration.Resource{f("x"), u}, byHand("/etc/f", "y"), []declaration.Resource{f("y"), u},
			"note     file /etc/f (m/f): it is as declared, and not as it was made: its content is another\n" +
				"restart  service u.service (m/u): it restarts when m/f changes\n1 to change, 1 as declared, 2 in all\n", false,
		},
		{
			"removal", []declaration.Resource{applytest.Directory("m/d", "/srv/d", ""), f("x"), u}, nil, []declaration.Resource{applytest.Service("m/u", "u.service")},
			"remove   file /etc/f (m/f): it is not declared any more\n" +
				"remove   directory /srv/d (m/d): it is not declared any more, and goes if nothing else is in it\n" +
				"restart  service u.service (m/u): it owes a restart once what it uses is removed\n3 to change, 1 as declared, 4 in all\n", false,
		},
		{
			"change and removal", []declaration.Resource{f("x"), g, applytest.Service("m/u", "u.service", "m/f", "m/g")}, nil, []declaration.Resource{f("y"), u},
			"change   file /etc/f (m/f): its content is another\n" +
				"remove   file /etc/g (m/g): it is not declared any more\n" +
				"restart  service u.service (m/u): it owes a restart once what it uses is removed\n3 to change, 1 as declared, 4 in all\n", false,
		},
		{
			"no directory to lie in", nil, nil, []declaration.Resource{
				applytest.File("m/n", "/nowhere/x", "x"), applytest.Service("m/u", "u.service", "m/n"),
				applytest.Directory("m/d", "/srv/d", ""), applytest.Directory("m/e", "/srv/d/e", ""), applytest.File("m/h", "/srv/d/e/h", "x"),
			},
			"blocked  file /nowhere/x (m/n): the directory it lies in is not there: declare it before this\n" +
				"wait     service u.service (m/u): it waits for m/n, which will not work\n" +
				"make     directory /srv/d (m/d): it is not there\n" +
				"make     directory /srv/d/e (m/e): it is not there\n" +
				"make     file /srv/d/e/h (m/h): it is not there\n3 to change, 1 waiting, 1 blocked, 0 as declared, 5 in all\n", false,
		},
		{
			"kept", []declaration.Resource{f("x")}, byHand("/etc/f", "by hand"), nil,
			"leave    file /etc/f (m/f): it was changed by hand\n0 to change, 0 as declared, 1 in all\n", false,
		},
		{
			"gone", []declaration.Resource{f("x")}, func(m *systemtest.Machine) { m.Disk.Put("/etc/f", systemtest.Thing{}) }, nil,
			"forget   file /etc/f (m/f): it is gone already\n0 to change, 0 as declared, 1 in all\n", false,
		},
		{
			"waiting", []declaration.Resource{g}, func(m *systemtest.Machine) {
				m.Disk.Put("/etc/f", systemtest.Thing{Type: system.TypeDirectory, Mode: 0o755})
			}, []declaration.Resource{f("x"), u},
			"blocked  file /etc/f (m/f): a directory is in the way: move it away, or declare another path\n" +
				"wait     service u.service (m/u): it waits for m/f, which will not work\n" +
				"remove   file /etc/g (m/g): it is not declared any more\n1 to change, 1 waiting, 1 blocked, 0 as declared, 3 in all\n", false,
		},
		{
			"restart owed", []declaration.Resource{f("x"), u}, owing(false), []declaration.Resource{f("x"), u},
			"restart  service u.service (m/u): it owes a restart because of m/f (file /etc/f) since generation 1\n1 to change, 1 as declared, 2 in all\n", false,
		},
		{
			"restart owed, and owed again by what was cut short", []declaration.Resource{f("x"), u}, owing(true), []declaration.Resource{f("x"), u},
			"restart  service u.service (m/u): it owes a restart because of m/f (file /etc/f) since generation 1\n1 to change, 1 as declared, 2 in all\n", false,
		},
	} {
		t.Run(tt.what, func(t *testing.T) {
			m := systemtest.New()
			unit(m)
			pass(t, m, applytest.Desired(1, tt.first...))
			if tt.trouble != nil {
				tt.trouble(m)
			}
			d := applytest.Desired(2, tt.then...)
			p, err := foreseen(m, d)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.plan, p.String()); diff != "" || p.Quiet() != tt.quiet {
				t.Errorf("quiet %t, (-want +got):\n%s", p.Quiet(), diff)
			}
			if err := asForeseen(p, pass(t, m, d)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestForeseenPackageMayBringTheDirectory: that there is none yet says nothing
// when a package is installed before.
func TestForeseenPackageMayBringTheDirectory(t *testing.T) {
	m := systemtest.New()
	m.OfferPackage("p", systemtest.Offer{Versions: []string{"1"}})
	p, err := foreseen(m, applytest.Desired(1,
		declaration.Resource{ID: "m/p", Package: &declaration.Package{Name: "p"}}, applytest.File("m/n", "/nowhere/x", "x")))
	if err != nil || p.Changes() != 2 {
		t.Errorf("%v\n%s", err, p)
	}
}

// owing records that a unit owes a restart because of /etc/f, and if again that
// a pass was cut short after it wrote that file once more.
func owing(again bool) func(m *systemtest.Machine) {
	return func(m *systemtest.Machine) {
		s, _, err := applytest.Open(m)
		if err != nil {
			panic(err)
		}
		defer s.Close()
		made := s.View().Owned[0]
		records := []store.Record{store.Owed{Unit: "u.service", ID: "m/f", Because: made.Key, Generation: 1}}
		if again {
			records = append(records, store.Intent{
				Key: made.Key, ID: "m/f", Generation: 1, Act: store.ActApply, Target: made.Made, Owes: []string{"u.service"},
			})
		}
		if err := s.Append(records...); err != nil {
			panic(err)
		}
	}
}

// TestForeseenIsDone: whatever was declared, done by hand or cut short before, a
// pass does what its plan says, and on a disk for the reason it says.
func TestForeseenIsDone(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := systemtest.New()
		m.Disk.Put("/etc/a", systemtest.Thing{Type: system.TypeFile, Mode: 0o644, Content: "1"})
		m.OfferPackage("p", systemtest.Offer{Versions: []string{"1", "2"}, Users: map[string]uint32{"them": 7}})
		m.AddUnit(systemtest.Unit{Name: "u.service", Reads: []string{"/etc/a", "/etc/b", "/srv/d/c"}})
		for generation := range rapid.Uint64Range(1, 5).Draw(rt, "generations") {
			d := applytest.Desired(2*generation+2, randomResources(rt)...)
			if rapid.Bool().Draw(rt, "declare m/them") {
				them := declaration.Resource{ID: "m/them", File: &declaration.File{Path: "/etc/them", Owner: "them"}}
				d.Resources = append(d.Resources, them, applytest.Service("m/v", "u.service", "m/them"))
				if r := d.Resources[max(0, len(d.Resources)-3)]; r.ID == "m/u" { // one unit is declared once
					d.Resources = d.Resources[:len(d.Resources)-1]
				}
			}
			// A package may bring the directory it lies in, or not.
			if rapid.Bool().Draw(rt, "declare m/e") && !slices.ContainsFunc(d.Resources, func(r declaration.Resource) bool { return r.Package != nil }) {
				d.Resources = append(d.Resources, applytest.File("m/e", "/srv/d/e", ""))
			}
			for range rapid.IntRange(0, 2).Draw(rt, "troubles") {
				m = trouble(rt, m, applytest.Desired(2*generation+1, randomResources(rt)...))
			}
			accounts, err := m.Accounts()
			if _, isFile := m.Disk.Content("/etc/them"); isFile && accounts.Users["them"] == 0 {
				m.Disk.Put("/etc/them", systemtest.Thing{}) // whether it will be theirs is not known before they come
			}
			if err != nil {
				rt.Fatal(err)
			}
			p, err := foreseen(m, d)
			if err != nil {
				rt.Fatal(err)
			}
			out, err := applytest.Pass(context.Background(), m, d)
			if err != nil {
				rt.Fatal(err)
			}
			if err := asForeseen(p, out); err != nil {
				rt.Fatal(err)
			}
			if err := sameReasons(p, out); err != nil {
				rt.Fatal(err)
			}
		}
	})
}

// trouble is something that happens to a machine between two passes; it may be
// a pass over d that is cut short.
func trouble(t *rapid.T, m *systemtest.Machine, d apply.Desired) *systemtest.Machine {
	ctx := context.Background()
	path := rapid.SampledFrom([]string{"/etc/a", "/etc/b", "/etc/them", "/srv/d/c"}).Draw(t, "path")
	there := path != "/srv/d/c" || strings.Contains(m.String(), " /srv/d/")
	switch rapid.SampledFrom([]string{"write", "delete", "directory", "stop", "uninstall", "kill", "cut"}).Draw(t, "trouble") {
	case "write":
		if there {
			m.Disk.Put(path, systemtest.Thing{Type: system.TypeFile, Mode: 0o644, Content: rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "content")})
		}
	case "delete":
		if there {
			m.Disk.Put(path, systemtest.Thing{})
		}
	case "directory":
		if there {
			m.Disk.Put(path, systemtest.Thing{Type: system.TypeDirectory, Mode: 0o755})
		}
	case "stop":
		_ = m.Stop(ctx, "u.service")
	case "uninstall":
		_ = m.Uninstall(ctx, "p", func(string) {})
	case "kill", "cut":
		m.Hook(systemtest.CutAt(rapid.IntRange(1, 40).Draw(t, "after")))
		_, _ = applytest.Pass(ctx, m, d)
		if rapid.Bool().Draw(t, "power") {
			return m.PowerCut(systemtest.Loss{Keeps: func(int, int) bool { return false }})
		}
		m.Killed()
	}
	return m
}

// sameReasons demands that what was done on the disk was done for the reason
// planned, and what was owed before the pass paid for that, unless a package
// came in between.
func sameReasons(p apply.Plan, out declaration.Outcome) error {
	why, first := map[store.Key]apply.Step{}, true
	for _, s := range p.Steps {
		if s.Kind == declaration.KindPackage && s.Verb != apply.VerbNone && s.Verb != apply.VerbNote {
			break
		}
		emptied := s.Kind == declaration.KindDirectory && s.Verb == apply.VerbRemove
		if s.Verb != apply.VerbNote && !emptied && (resource.OnDisk(s.Kind) || first && s.Verb == apply.VerbRestart) {
			why[store.Key{Kind: s.Kind, Where: s.Where}] = s
		}
		first = first && s.Verb == apply.VerbNone
	}
	for _, r := range out.Results {
		s, told := why[store.Key{Kind: r.Kind, Where: r.Where}]
		noHome := strings.Contains(r.Reason, s.Why) && s.Verb == apply.VerbBlocked // which names its cause too
		if told && s.Why != r.Reason && !noHome {
			return fmt.Errorf("%s %s: planned because %q, done because %q\nthe plan:\n%s", r.Kind, r.Where, s.Why, r.Reason, p)
		}
	}
	return nil
}
