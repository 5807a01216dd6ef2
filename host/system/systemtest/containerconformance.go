package systemtest

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/host/resource"
	"mesh/host/system"
)

// ContainerConformance is what a podman must do. image can be fetched and was not
// yet; place makes a container of it, which does not run, of a unit and made of
// something.
func ContainerConformance(t *testing.T, c resource.Containers, image string, place func(t *testing.T, name, unit, made string)) {
	_, digest, _ := strings.Cut(image, "@")
	const name, unit, made = "mesh-conformance", "mesh-conformance.service", "abc"
	look := func(t *testing.T) map[string]system.Container {
		t.Helper()
		found, err := c.Containers(t.Context(), []string{name, "mesh-conformance-none"})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	t.Run("a container that is not there", func(t *testing.T) {
		if found := look(t); len(found) != 0 {
			t.Errorf("%+v", found)
		}
		if err := c.RemoveContainer(t.Context(), name); err != nil {
			t.Error(err)
		}
	})
	t.Run("an image that nobody has", func(t *testing.T) {
		none := strings.Replace(image, digest, "sha256:"+strings.Repeat("0", 64), 1)
		if err := c.PullImage(t.Context(), none, func(string) {}); err == nil || !strings.Contains(err.Error(), "fetch image "+none) {
			t.Errorf("%v", err)
		}
	})
	t.Run("an image", func(t *testing.T) {
		for i, want := range []int{1, 0} { // the second time it is there
			notes := 0
			if err := c.PullImage(t.Context(), image, func(string) { notes++ }); err != nil || notes != want {
				t.Fatalf("time %d: %d notes, %v", i+1, notes, err)
			}
		}
	})
	images := func(t *testing.T) map[string][]string {
		t.Helper()
		found, err := c.Images(t.Context(), []string{image, strings.Replace(image, digest, "sha256:"+strings.Repeat("0", 64), 1)})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	t.Run("an image that nothing is made of", func(t *testing.T) {
		if diff := cmp.Diff(map[string][]string{image: nil}, images(t)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("a container", func(t *testing.T) {
		place(t, name, unit, made)
		want := map[string]system.Container{name: {Unit: unit, Made: made, Image: digest}}
		if diff := cmp.Diff(want, look(t)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string][]string{image: {name}}, images(t)); diff != "" {
			t.Errorf("its image (-want +got):\n%s", diff)
		}
		if err := c.RemoveImage(t.Context(), image); !errors.Is(err, system.ErrInUse) {
			t.Errorf("its image was removed: %v", err)
		}
		for range 2 {
			if err := c.RemoveContainer(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			if found := look(t); len(found) != 0 {
				t.Errorf("it was removed, and there is %+v", found)
			}
		}
	})
	t.Run("an image that nothing is made of any more", func(t *testing.T) {
		for range 2 { // the second time it is gone
			if err := c.RemoveImage(t.Context(), image); err != nil {
				t.Fatal(err)
			}
			if found := images(t); len(found) != 0 {
				t.Errorf("it was removed, and there is %v", found)
			}
		}
	})
}
