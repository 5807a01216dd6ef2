package apply_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/host/apply"
	"mesh/host/apply/applytest"
	"mesh/host/declaration"
	"mesh/host/resource"
	"mesh/host/store"
	"mesh/host/system"
	"mesh/host/system/systemtest"
)

const (
	digestOfShop = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
	secondOfShop = "registry.test/shop@sha256:2222222222222222222222222222222222222222222222222222222222222222"
)

// called is a container of that name and image.
func called(name, image string) declaration.Resource {
	return declaration.Resource{ID: "shop/" + name, Container: &declaration.Container{Name: name, Image: image}}
}

// becomes checks what a pass over d comes to, and that the next would do nothing.
func becomes(t *testing.T, m *systemtest.Machine, d apply.Desired, want string) {
	t.Helper()
	if diff := cmp.Diff(want, summary(pass(t, m, d))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if p := planned(t, m, d); !p.Quiet() {
		t.Errorf("once more:\n%s", p)
	}
}

// hasImage says whether the image is on the machine.
func hasImage(m *systemtest.Machine, image string) bool {
	return strings.Contains(m.String(), "image "+image+"\n")
}

// TestImageGoesWithItsLastContainer: not with one of two, and not before the other
// has another image.
func TestImageGoesWithItsLastContainer(t *testing.T) {
	m := shopMachine()
	m.OfferImage(secondOfShop)
	becomes(t, m, applytest.Desired(1, called("a", imageOfShop), called("b", imageOfShop)), "changed shop/a: it is not there\nchanged shop/b: it is not there\n")
	becomes(t, m, applytest.Desired(2, called("b", imageOfShop)), "removed shop/a: it is not declared any more\n")
	if !hasImage(m, imageOfShop) {
		t.Fatalf("the image is away:\n%s", m)
	}
	replaced := applytest.Desired(3, called("b", secondOfShop))
	const step = "remove   image " + imageOfShop + " (shop/a): no container is made of it any more\n"
	if p, err := foreseen(m, replaced); err != nil || !strings.Contains(p.String(), step) {
		t.Errorf("%v\n%s", err, p)
	}
	becomes(t, m, replaced, "changed shop/b: it runs the image "+digestOfShop+" instead of "+strings.TrimPrefix(secondOfShop, "registry.test/shop@")+
		"\nremoved shop/a: no container is made of it any more\n")
	if hasImage(m, imageOfShop) || !hasImage(m, secondOfShop) {
		t.Errorf("\n%s", m)
	}
	becomes(t, m, applytest.Desired(4), "removed shop/b: it is not declared any more\nremoved shop/b: no container is made of it any more\n")
	if hasImage(m, secondOfShop) || len(view(t, m).Owned) > 0 {
		t.Errorf("%+v\n%s", view(t, m).Owned, m)
	}
}

// TestImageOfSomebodyElse: one that was there stays; one that somebody's container
// is made of by now stays too, is listed, and goes once it is adopted.
func TestImageOfSomebodyElse(t *testing.T) {
	m := shopMachine()
	m.AddImage(imageOfShop)
	d := applytest.Desired(1, called("a", imageOfShop))
	pass(t, m, d)
	becomes(t, m, applytest.Desired(2), "removed shop/a: it is not declared any more\n")
	if !hasImage(m, imageOfShop) {
		t.Errorf("it is away:\n%s", m)
	}

	m = shopMachine()
	pass(t, m, d)
	m.AddContainer("theirs", system.Container{Image: digestOfShop})
	const kept = "container theirs, which is not the host's, is made of it"
	becomes(t, m, applytest.Desired(2), "removed shop/a: it is not declared any more\nkept shop/a: "+kept+"\n")
	if diff := cmp.Diff([]string{imageOfShop + ": it was left behind: " + kept}, orphans(t, m, nil)); diff != "" || !hasImage(m, imageOfShop) {
		t.Errorf("%s\n%s", diff, m)
	}
	m.LoseContainer("theirs")
	with(t, m, func(a *apply.Applier, _ *store.Store) {
		if _, err := a.Adopt(t.Context(), nil, []string{imageOfShop}); err != nil {
			t.Fatal(err)
		}
	})
	becomes(t, m, applytest.Desired(3), "removed shop/a: no container is made of it any more\n")
	if hasImage(m, imageOfShop) {
		t.Errorf("it is there:\n%s", m)
	}
}

// TestImageThatPodmanKeeps: podman knows best what an image is used for.
func TestImageThatPodmanKeeps(t *testing.T) {
	m := shopMachine()
	pass(t, m, applytest.Desired(1, called("a", imageOfShop)))
	m.Hook(func(op systemtest.Op) error {
		if op.Name == "remove image" {
			return errors.Join(system.ErrInUse, errors.New("image has dependent children"))
		}
		return nil
	})
	got := summary(pass(t, m, applytest.Desired(2)))
	if !strings.Contains(got, "kept shop/a: ") || !strings.Contains(got, "something is made of it; image has dependent children") {
		t.Error(got)
	}
	if p := planned(t, m, applytest.Desired(2)); !p.Quiet() {
		t.Errorf("once more:\n%s", p)
	}
	if left := view(t, m).Left; len(left) != 1 || left[0].Kind != resource.KindImage {
		t.Errorf("%+v", left)
	}
}

// TestImageWaitsForItsContainer: what runs is not taken the image of, and what is
// still being fetched is the host's already.
func TestImageWaitsForItsContainer(t *testing.T) {
	m := shopMachine()
	pass(t, m, applytest.Desired(1, called("a", imageOfShop)))
	failing := applytest.Desired(2, called("a", secondOfShop))
	got := summary(pass(t, m, failing))
	if !strings.Contains(got, "failed shop/a: fetch image "+secondOfShop) || !strings.Contains(got, "waiting shop/a: container a is still made of it\n") || !hasImage(m, imageOfShop) {
		t.Errorf("%s\n%s", got, m)
	}

	unit := systemtest.Unit{Name: system.FetchUnit(secondOfShop), Active: "active"}
	m.AddUnit(unit)
	pass(t, m, failing)
	if p := planned(t, m, applytest.Desired(3)); !strings.Contains(p.String(), "wait     image "+secondOfShop+" (shop/a): its fetch goes on") {
		t.Errorf("\n%s", p)
	}
	unit.Active = "inactive"
	m.AddUnit(unit)
	m.AddImage(secondOfShop)
	pass(t, m, applytest.Desired(3))
	if hasImage(m, imageOfShop) || hasImage(m, secondOfShop) || len(view(t, m).Owned) > 0 {
		t.Errorf("%+v\n%s", view(t, m).Owned, m)
	}
}

// TestImageOfAContainerThatCannotGo: it is the image of what is owned, even if that
// does not run at the moment.
func TestImageOfAContainerThatCannotGo(t *testing.T) {
	m := shopMachine()
	pass(t, m, applytest.Desired(1, called("a", imageOfShop)))
	m.LoseContainer("mesh-a")
	m.Hook(func(op systemtest.Op) error {
		if op.Name == "stop" {
			return errors.New("no")
		}
		return nil
	})
	if got := summary(pass(t, m, applytest.Desired(2))); !strings.Contains(got, "failed shop/a: ") || !strings.HasSuffix(got, "waiting shop/a: container a is still made of it\n") || !hasImage(m, imageOfShop) {
		t.Errorf("%s\n%s", got, m)
	}
}

// TestImageOfAContainerThatStays: whoever was given the container has its image.
func TestImageOfAContainerThatStays(t *testing.T) {
	m := shopMachine()
	pass(t, m, applytest.Desired(1, called("a", imageOfShop)))
	with(t, m, func(a *apply.Applier, _ *store.Store) {
		if _, err := a.Release([]string{"a"}); err != nil {
			t.Fatal(err)
		}
	})
	becomes(t, m, applytest.Desired(2), "kept shop/a: container mesh-a, which is not the host's, is made of it\n")
	if !hasImage(m, imageOfShop) || len(view(t, m).Owned) > 0 {
		t.Errorf("%+v\n%s", view(t, m).Owned, m)
	}
}

// TestImageOfTwoNames: the one that is declared no more goes, by its name.
func TestImageOfTwoNames(t *testing.T) {
	m, mirrored := shopMachine(), "mirror.test/shop@"+digestOfShop
	m.OfferImage(mirrored)
	pass(t, m, applytest.Desired(1, called("a", imageOfShop)))
	got := summary(pass(t, m, applytest.Desired(2, called("a", mirrored))))
	if !strings.Contains(got, "shop/a: ") || !hasImage(m, mirrored) {
		t.Errorf("%s\n%s", got, m)
	}
	if p := planned(t, m, applytest.Desired(2, called("a", mirrored))); !p.Quiet() {
		t.Errorf("\n%s", p)
	}
}
