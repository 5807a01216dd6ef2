package declare_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"mesh/host/declaration"
	"mesh/plane/config"
	"mesh/plane/declare"
	"mesh/plane/module"
	"mesh/plane/planetest"
	"mesh/plane/refusal"
	"mesh/plane/registry"
)

// newest is the newest declaration of a node.
func newest(t *testing.T, p *planetest.Plane, name string) declaration.Declaration {
	t.Helper()
	n := p.Node(t, name)
	signed, err := p.Store.Signed(t.Context(), n.Key, n.Declared.Digest)
	if err != nil {
		t.Fatal(err)
	}
	d, _, err := declaration.Open(signed, p.Mesh.DeclarationKey.Public())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// planeFile is the configuration that the newest declaration of a node holds.
func planeFile(t *testing.T, p *planetest.Plane, name string) string {
	t.Helper()
	d := newest(t, p, name)
	for _, r := range d.Resources {
		if r.ID == "plane/config" {
			return r.File.Content
		}
	}
	t.Fatalf("no plane/config in %+v", d.Resources)
	return ""
}

// What was applied is declared from then on: by whatever else changes the node,
// and by a plane that is started before its file is the new one.
func TestConfigure(t *testing.T) {
	before := planetest.Running(t.TempDir())
	p := planetest.New(t, planetest.Options{Dir: before.Store, PlaneMachine: planetest.MachineID("one"), PlaneConfig: before.Render()})
	next := before
	next.Addresses = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.2:7443")}

	_, err := p.Declarer.Configure(t.Context(), next)
	if r := refusal.Of(err); r == nil || r.Kind != refusal.Conflict || !strings.Contains(r.Do, config.Path) {
		t.Errorf("before the plane's machine is a node: %v", err)
	}
	p.Enrol(t, "web", "welcome")
	p.Enrol(t, "one")
	done, err := p.Declarer.Configure(t.Context(), next)
	if err != nil || !done.Changed || done.Node != "one" || done.Generation != 2 || len(done.Notes) != 1 || !strings.Contains(done.Notes[0], "192.0.2.1:7443") {
		t.Fatalf("%+v, %v", done, err)
	}
	if done, err := p.Declarer.Configure(t.Context(), next); err != nil || done.Changed || done.Generation != 2 {
		t.Errorf("once more: %+v, %v", done, err)
	}
	if _, err := p.Declarer.Assign(t.Context(), "one", "welcome"); err != nil {
		t.Fatal(err)
	}
	restarted := declare.New(declare.Config{
		Mesh: p.Mesh, Catalogue: module.NewCatalogue(module.Facts{PlaneConfig: before.Render()}, module.All()...),
		Running: before, Store: p.Store, Now: p.Now,
	})
	if err := restarted.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := p.Node(t, "one").Declared.Generation; got != 3 || planeFile(t, p, "one") != next.Render() || p.Node(t, "web").Declared.Generation != 1 {
		t.Errorf("generation %d declares\n%s", got, planeFile(t, p, "one"))
	}
	back, err := p.Declarer.Configure(t.Context(), before)
	if err != nil || !back.Changed || planeFile(t, p, "one") != before.Render() {
		t.Errorf("%+v, %v", back, err)
	}
}

func TestConfigureRefuses(t *testing.T) {
	before := planetest.Running(t.TempDir())
	p := planetest.New(t, planetest.Options{Dir: before.Store, PlaneMachine: planetest.MachineID("one"), PlaneConfig: before.Render()})
	p.Enrol(t, "one")
	next := before
	next.Mesh, next.Store, next.Overlay.IPv4 = "work", "/elsewhere", netip.MustParsePrefix("10.78.0.0/16")
	_, err := p.Declarer.Configure(t.Context(), next)
	r := refusal.Of(err)
	if r == nil || r.Kind != refusal.Invalid || strings.Contains(r.Error(), "\n") {
		t.Fatalf("%v", err)
	}
	for _, says := range []string{`mesh is "work"`, "renumbering is not possible yet", `store is "/elsewhere"`, "put back"} {
		if !strings.Contains(r.Error(), says) {
			t.Errorf("no %q in %s", says, r.Error())
		}
	}
	var text string
	p.View(t, func(ctx context.Context, v registry.View) (err error) {
		text, err = v.PlaneConfig(ctx)
		return err
	})
	if text != "" || p.Node(t, "one").Declared.Generation != 1 {
		t.Errorf("what was refused was kept: %q", text)
	}
}
