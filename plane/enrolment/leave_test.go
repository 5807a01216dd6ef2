package enrolment_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mesh/host/declaration"
	"mesh/plane/enrolment"
	"mesh/plane/planetest"
	"mesh/plane/refusal"
	"mesh/plane/registry"
	"mesh/plane/store"
)

// came is the outcome of a pass over what n is declared.
func came(n registry.Node, statuses ...declaration.Status) declaration.Outcome {
	o := declaration.Outcome{Epoch: n.Declared.Epoch, Generation: n.Declared.Generation, Digest: n.Declared.Digest}
	for _, s := range statuses {
		o.Results = append(o.Results, declaration.Result{ID: "welcome/page", Kind: declaration.KindFile, Where: "/x", Status: s})
	}
	return o
}

// isNode tells whether there is a node of that name.
func isNode(t *testing.T, p *planetest.Plane, name string) bool {
	t.Helper()
	_, err := p.Store.Detail(t.Context(), name)
	if err != nil && !errors.Is(err, registry.ErrUnknown) {
		t.Fatal(err)
	}
	return err == nil
}

// TestRetire walks the whole path: everything is taken from the node, the final
// declaration is its newest, asking twice changes nothing, and it goes when it
// has carried that out and not before.
func TestRetire(t *testing.T) {
	p := planetest.New(t, planetest.Options{})
	m := p.Enrol(t, "web", "welcome")
	before := p.Node(t, "web")
	for i, changed := range []bool{true, false} {
		got, err := p.Enrolments.Retire(t.Context(), "web")
		if want := (enrolment.Retirement{Node: "web", Changed: changed, Generation: 2}); err != nil || got != want {
			t.Fatalf("time %d: got %+v %v, want %+v", i+1, got, err, want)
		}
		p.Advance(time.Hour)
	}
	n := p.Node(t, "web")
	if !n.Retiring() || !n.RetiringAt.Equal(p.Now().Add(-2*time.Hour)) || len(n.Modules) != 0 || len(n.Addresses) != 2 {
		t.Errorf("%+v", n)
	}
	signed, err := p.Store.Signed(t.Context(), n.Key, n.Declared.Digest)
	if err != nil {
		t.Fatal(err)
	}
	d, _, err := declaration.Open(signed, p.Mesh.DeclarationKey.Public())
	if err != nil || !d.Final || d.Format != declaration.FormatFinal || len(d.Resources) != 0 || d.Generation != 2 {
		t.Fatalf("%+v %v", d, err)
	}
	if err := p.Declarer.Refresh(t.Context()); err != nil || p.Node(t, "web").Declared != n.Declared {
		t.Errorf("a restart of the plane declares anew: %v", err)
	}
	for what, o := range map[string]declaration.Outcome{
		"what it held before": came(before, declaration.StatusInSync),
		"something failed":    came(n, declaration.StatusRemoved, declaration.StatusFailed),
		"something waits":     came(n, declaration.StatusWaiting),
		"nothing yet":         {},
	} {
		if err := p.Enrolments.Depart(t.Context(), n.Key, o); err != nil || !isNode(t, p, "web") {
			t.Errorf("gone after a report of %s, %v", what, err)
		}
	}
	if err := p.Enrolments.Depart(t.Context(), n.Key, came(n, declaration.StatusRemoved, declaration.StatusKept)); err != nil || isNode(t, p, "web") {
		t.Errorf("it has carried out its end and is a node still (%v)", err)
	}
	if err := p.Enrolments.Depart(t.Context(), n.Key, came(n)); err != nil {
		t.Errorf("reported twice: %v", err)
	}
	if _, err := p.Store.Linked(t.Context(), m.Key.Public()); !errors.Is(err, registry.ErrUnknown) {
		t.Errorf("its key is known still: %v", err)
	}
	p.Enrol(t, "web", "welcome")
	if again := p.Node(t, "web"); again.Declared.Generation != 3 || again.Retiring() || len(again.Modules) != 1 {
		t.Errorf("enrolled anew: %+v", again)
	}
}

// TestADepartureNeedsARetirement: a report alone never removes a node.
func TestADepartureNeedsARetirement(t *testing.T) {
	p := planetest.New(t, planetest.Options{})
	p.Enrol(t, "web")
	n := p.Node(t, "web")
	if err := p.Enrolments.Depart(t.Context(), n.Key, came(n)); err != nil || !isNode(t, p, "web") {
		t.Errorf("gone: %v", err)
	}
}

// TestARetiringMachineThatIsEnrolledAnewStays: a token is an operator's later word.
func TestARetiringMachineThatIsEnrolledAnewStays(t *testing.T) {
	p := planetest.New(t, planetest.Options{})
	old := p.Enrol(t, "web", "welcome")
	if _, err := p.Enrolments.Retire(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	ended := p.Node(t, "web")
	p.Enrol(t, "web", "welcome")
	n := p.Node(t, "web")
	if n.Retiring() || n.Declared.Generation != 3 || len(n.Modules) != 1 {
		t.Errorf("%+v", n)
	}
	if err := p.Enrolments.Depart(t.Context(), old.Key.Public(), came(ended)); err != nil || !isNode(t, p, "web") {
		t.Errorf("the report of its old key removed it: %v", err)
	}
}

func TestRetireRefuses(t *testing.T) {
	p := planetest.New(t, planetest.Options{PlaneMachine: planetest.MachineID("one")})
	p.Enrol(t, "one")
	p.Enrol(t, "web")
	old := planetest.NewMachine("old")
	old.Profile.Formats = []int{1}
	if _, err := p.Enrolments.Enrol(t.Context(), old.With(p.Token(t, enrolment.TokenRequest{}))); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Enrolments.Retire(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	retire := func(name string) error { _, err := p.Enrolments.Retire(t.Context(), name); return err }
	for what, tt := range map[string]struct {
		err  error
		says string
	}{
		"the plane's own node":        {retire("one"), `retiring node "one": it has module "plane", of which exactly one must run`},
		"an unknown one":              {retire("wbe"), `node "wbe": there is no such node`},
		"a host that is too old":      {retire("old"), "upgrade mesh-host there"},
		"a module for a retiring one": {func() error { _, err := p.Declarer.Assign(t.Context(), "web", "welcome"); return err }(), "it is being retired"},
	} {
		if refusal.Of(tt.err) == nil || !strings.Contains(tt.err.Error(), tt.says) {
			t.Errorf("%s: got %v, want a refusal that says %q", what, tt.err, tt.says)
		}
	}
	for _, name := range []string{"one", "old"} {
		if n := p.Node(t, name); n.Retiring() || n.Declared.Generation != 1 {
			t.Errorf("what was refused changed %s: %+v", name, n)
		}
	}
}

// TestRetireIsOneTransaction: a plane that dies before it is committed has
// changed nothing; one that dies right behind goes on with it.
func TestRetireIsOneTransaction(t *testing.T) {
	dir := t.TempDir()
	p := planetest.New(t, planetest.Options{Dir: dir})
	p.Enrol(t, "web", "welcome")
	before := p.Node(t, "web")
	dying := *p.Enrolments
	dying.Store = dies{p.Store}
	died := func(err error) bool { return err != nil && strings.Contains(err.Error(), `"the end"`) }
	if _, err := dying.Retire(t.Context(), "web"); !died(err) {
		t.Fatal(err)
	}
	if n := p.Node(t, "web"); n.Retiring() || n.Declared != before.Declared || len(n.Modules) != 1 {
		t.Errorf("half of it is there: %+v", n)
	}
	if _, err := p.Enrolments.Retire(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	ended := p.Node(t, "web")
	if err := dying.Depart(t.Context(), ended.Key, came(ended)); !died(err) || !isNode(t, p, "web") {
		t.Fatalf("half removed: %v", err)
	}
	if err := p.Store.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := store.Open(t.Context(), store.Config{Path: filepath.Join(dir, "plane.db")})
	if err != nil {
		t.Fatal(err)
	}
	p.Store = again // and the test closes it
	if n := p.Node(t, "web"); !n.Retiring() || n.Declared != ended.Declared {
		t.Errorf("after a restart: %+v", n)
	}
}

// dies is a store whose plane ends when every part of a change is written, and
// before the commit.
type dies struct{ *store.Store }

func (d dies) Update(ctx context.Context, decide registry.Decide) error {
	return d.Store.Update(ctx, func(ctx context.Context, v registry.View) (registry.Change, error) {
		change, err := decide(ctx, v)
		change.Declare = append(change.Declare, registry.Declaration{Node: registry.Ref{Name: "the end"}}) // which cannot be written
		return change, err
	})
}
