package apply_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/host/apply"
	"mesh/host/apply/applytest"
	"mesh/host/declaration"
	"mesh/host/store"
	"mesh/host/system"
	"mesh/host/system/systemtest"
)

const imageOfShop = "registry.test/shop@sha256:1111111111111111111111111111111111111111111111111111111111111111"

// shop is a container that is given a secret, and the file of it.
func shop(secret string) []declaration.Resource {
	return []declaration.Resource{
		applytest.File("shop/key", "/etc/key", secret),
		applytest.Container("shop/shop", "shop", imageOfShop, "/etc/key", "shop/key"),
	}
}

// shopMachine has a registry to fetch the image of shop from.
func shopMachine() *systemtest.Machine {
	m := systemtest.New()
	m.OfferImage(imageOfShop)
	return m
}

// TestContainerComesWithPodman: podman is a package like any other, declared before
// what needs it and removed behind it.
func TestContainerComesWithPodman(t *testing.T) {
	m := shopMachine()
	m.LacksPodman("podman is not installed")
	m.OfferPackage("podman", systemtest.Offer{Versions: []string{"5.4.2"}})
	d := applytest.Desired(1, append([]declaration.Resource{{ID: "shop/podman", Package: &declaration.Package{Name: "podman"}}}, shop("1")...)...)
	p, err := foreseen(m, d)
	if err != nil || !strings.Contains(p.String(), "make     container shop (shop/shop): once podman has come with a package\n") {
		t.Errorf("%v\n%s", err, p)
	}
	const want = "changed shop/podman: it is not installed\nchanged shop/key: it is not there\nchanged shop/shop: it is not there\n"
	if diff := cmp.Diff(want, summary(pass(t, m, d))); diff != "" {
		t.Error(diff)
	}
	if p := planned(t, m, d); !p.Quiet() {
		t.Errorf("once more:\n%s", p)
	}
	const gone = "removed shop/shop: it is not declared any more\nremoved shop/shop: no container is made of it any more\nremoved shop/key: it is not declared any more\nremoved shop/podman: it is not declared any more\n"
	if diff := cmp.Diff(gone, summary(pass(t, m, applytest.Desired(2)))); diff != "" {
		t.Error(diff)
	}
	if left := view(t, m); len(left.Owned)+len(left.Debts)+len(left.Intents)+len(left.Left) > 0 || strings.Contains(m.String(), "mesh-shop") {
		t.Errorf("%+v\n%s", left, m)
	}
}

// TestBadInputContainersOnTheMachine: a container that cannot be is named with what
// is wrong; what stands beside it is applied, and what was running runs on.
func TestBadInputContainersOnTheMachine(t *testing.T) {
	for _, tc := range []struct {
		name, want string
		machine    func(*systemtest.Machine)
	}{
		{"no podman", "failed shop/shop: this machine cannot run containers: podman is not installed", func(m *systemtest.Machine) { m.LacksPodman("podman is not installed") }},
		{"an old podman", "failed shop/shop: this machine cannot run containers: podman 4.3.1 is too old", func(m *systemtest.Machine) { m.LacksPodman("podman 4.3.1 is too old") }},
		{"no image", "failed shop/shop: fetch image " + imageOfShop + ": manifest unknown", func(m *systemtest.Machine) { m.WithdrawImage(imageOfShop) }},
		{"a container of somebody else's", "failed shop/shop: a container of somebody else's is in the way", func(m *systemtest.Machine) {
			m.AddContainer("mesh-shop", system.Container{Image: "sha256:9"})
		}},
		{"no systemd", "systemd is not running on this machine", func(m *systemtest.Machine) {
			m.Hook(func(op systemtest.Op) error {
				if op.Name == "read units" {
					return system.ErrNoSystemd
				}
				return nil
			})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := shopMachine()
			tc.machine(m)
			d := applytest.Desired(1, append(shop("1"), applytest.File("beside", "/etc/beside", "1"))...)
			got := summary(pass(t, m, d))
			if !strings.Contains(got, tc.want) || !strings.Contains(got, "changed beside") {
				t.Errorf("\n got: %s\nwant: …%s…", got, tc.want)
			}
			if v := view(t, m); strings.Contains(m.String(), "mesh-shop.service") || len(v.Owned) != 2 || len(v.Intents) > 0 {
				t.Errorf("%+v\n%s", v, m)
			}
		})
	}
}

// TestContainerRestarts: the secret is read anew exactly once; an image that cannot
// be fetched leaves what runs running.
func TestContainerRestarts(t *testing.T) {
	m, unit := shopMachine(), declaration.ContainerUnit("shop")
	pass(t, m, applytest.Desired(1, shop("1")...))
	second := applytest.Desired(2, shop("2")...)
	p, err := foreseen(m, second)
	if err != nil || !strings.Contains(p.String(), "restart  container shop (shop/shop): it restarts when shop/key changes") {
		t.Errorf("%v\n%s", err, p)
	}
	if got := summary(pass(t, m, second)); !strings.Contains(got, "changed shop/shop: it owes a restart because of shop/key (file /etc/key) since generation 2") {
		t.Error(got)
	}
	if m.Restarts(unit) != 1 || len(m.Stale()) > 0 || len(view(t, m).Debts) > 0 {
		t.Errorf("%d restarts, stale %v, %+v", m.Restarts(unit), m.Stale(), view(t, m).Debts)
	}
	if got := summary(pass(t, m, second)); got != "" || m.Restarts(unit) != 1 {
		t.Errorf("once more: %s", got)
	}
	next := shop("2")
	next[1].Container.Image = strings.ReplaceAll(imageOfShop, "1", "3")
	before := m.String()
	if got := summary(pass(t, m, applytest.Desired(3, next...))); !strings.Contains(got, "manifest unknown") {
		t.Error(got)
	}
	units := func(world string) string { return world[strings.Index(world, "unit "):] }
	if units(m.String()) != units(before) || m.Restarts(unit) != 1 {
		t.Errorf("what ran was touched:\n%s\nwas\n%s", m, before)
	}
	m.OfferImage(next[1].Container.Image)
	if got := summary(pass(t, m, applytest.Desired(3, next...))); !strings.Contains(got, "changed shop/shop: it runs the image sha256:1") || m.Restarts(unit) != 2 {
		t.Errorf("%s, %d restarts", got, m.Restarts(unit))
	}
}

// TestContainerRemovedInPart: that its unit file is gone is recorded, and the rest
// goes with the next pass, be there a power cut before it or not. A unit file that
// comes back by then is not the host's.
func TestContainerRemovedInPart(t *testing.T) {
	m, file := shopMachine(), declaration.ContainerFile("shop")
	pass(t, m, applytest.Desired(1, shop("1")...))
	text := content(m, file)
	m.Hook(func(op systemtest.Op) error {
		if op.Name == "read unit files" {
			return system.ErrNoSystemd
		}
		return nil
	})
	if got := summary(pass(t, m, applytest.Desired(2))); !strings.Contains(got, "failed shop/shop: ") || content(m, file) != "(nothing)" {
		t.Errorf("%s\n%s", got, m)
	}
	m.Hook(nil)
	rest := func(o *store.Owned) bool {
		return o.Kind == declaration.KindContainer && o.Made.Digest == "" && o.Made.Image == digestOfShop && o.ID == "shop/shop"
	}
	if v := view(t, m); !slices.ContainsFunc(v.Owned, rest) || len(v.Intents) > 0 {
		t.Errorf("%+v\n%s", v, m)
	}
	nothing := systemtest.Losses(0, nil)[0]
	byHand := m.PowerCut(nothing)
	put(byHand, file, text)
	for _, next := range []*systemtest.Machine{m.PowerCut(nothing), byHand, m} {
		got := summary(pass(t, next, applytest.Desired(2)))
		kept := strings.Contains(got, "kept shop/shop: its unit file was changed by hand")
		if strings.Contains(got, "failed") || kept != (next == byHand) || len(view(t, next).Owned) > 0 {
			t.Errorf("%s\n%s", got, next)
		}
	}
}

// TestContainerOwnership: one that stood before is adopted, released and left as
// files are; one whose unit file was edited is kept and listed.
func TestContainerOwnership(t *testing.T) {
	m := shopMachine()
	d := applytest.Desired(1, shop("1")...)
	pass(t, m, d)
	with(t, m, func(a *apply.Applier, _ *store.Store) {
		if _, err := a.Release([]string{"shop"}); err != nil {
			t.Fatal(err)
		}
	})
	pass(t, m, d) // it is found as declared
	want := []string{"shop: it was there before it was first declared"}
	if diff := cmp.Diff(want, orphans(t, m, &d)); diff != "" {
		t.Error(diff)
	}
	with(t, m, func(a *apply.Applier, _ *store.Store) {
		if _, err := a.Adopt(t.Context(), &d, []string{"shop"}); err != nil {
			t.Fatal(err)
		}
	})
	put(m, declaration.ContainerFile("shop"), "[Container]\nImage=by/hand\n")
	if p := planned(t, m, applytest.Desired(2)); !strings.Contains(p.String(), "leave    image "+imageOfShop) {
		t.Errorf("\n%s", p)
	}
	if got := summary(pass(t, m, applytest.Desired(2))); !strings.Contains(got, "kept shop/shop: its unit file was changed by hand") {
		t.Error(got)
	}
	if !strings.Contains(m.String(), "unit mesh-shop.service active") {
		t.Errorf("it does not run:\n%s", m)
	}
	want = []string{
		"shop: it was left behind: its unit file was changed by hand",
		imageOfShop + ": it was left behind: container mesh-shop, which is not the host's, is made of it",
	}
	if diff := cmp.Diff(want, orphans(t, m, nil)); diff != "" {
		t.Error(diff)
	}
	pass(t, m, applytest.Desired(3, shop("1")...))
	if got := summary(pass(t, m, applytest.Desired(4))); !strings.Contains(got, "removed shop/shop") || strings.Contains(m.String(), "mesh-shop") {
		t.Errorf("%s\n%s", got, m)
	}
}
