package declare_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/host/declaration"
	"mesh/plane/declare"
	"mesh/plane/module"
	"mesh/plane/planetest"
	"mesh/plane/registry"
)

// TestLongContentIsNamedByItsDigest, unless the host is too old to fetch it; what
// the module has given stays as it is.
func TestLongContentIsNamedByItsDigest(t *testing.T) {
	mesh, err := planetest.NewMesh()
	if err != nil {
		t.Fatal(err)
	}
	limit, long := strings.Repeat("a", 64<<10), strings.Repeat("b", 64<<10+1)
	given := []declaration.Resource{
		{ID: "m/limit", File: &declaration.File{Path: "/srv/limit", Content: limit}},
		{ID: "m/long", File: &declaration.File{Path: "/srv/long", Mode: "0600", Content: long}},
		{ID: "m/again", File: &declaration.File{Path: "/srv/again", Content: long}},
	}
	blob := declaration.Blob{Digest: declaration.Digest([]byte(long)), Bytes: 64<<10 + 1}
	d := declare.New(declare.Config{Mesh: mesh, Catalogue: module.NewCatalogue(module.Facts{}, module.Module{
		Name: "m", Resources: func(module.Facts) []declaration.Resource { return given },
	})})
	for name, tt := range map[string]struct {
		formats   []int
		resources []declaration.Resource
		contents  []registry.Content
	}{
		"a host that fetches": {declaration.Formats(), []declaration.Resource{
			given[0],
			{ID: "m/long", File: &declaration.File{Path: "/srv/long", Mode: "0600", Blob: &blob}},
			{ID: "m/again", File: &declaration.File{Path: "/srv/again", Blob: &blob}},
		}, []registry.Content{{Blob: blob, Data: long}}},
		"an older one": {[]int{1}, given, nil},
	} {
		t.Run(name, func(t *testing.T) {
			profile := planetest.Profile()
			profile.Formats = tt.formats
			next, err := d.Next(context.Background(), noneApplied{}, registry.Node{Name: "web", Modules: []string{"m"}, Profile: profile})
			if err != nil {
				t.Fatal(err)
			}
			opened, _, err := declaration.Open(next.Signed, mesh.DeclarationKey.Public())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.resources, opened.Resources); diff != "" {
				t.Errorf("resources (-want +got):\n%.600s", diff)
			}
			if diff := cmp.Diff(tt.contents, next.Contents); diff != "" {
				t.Errorf("contents (-want +got):\n%.600s", diff)
			}
		})
	}
	if given[1].File.Content != long || given[1].File.Blob != nil {
		t.Error("the module's own resource was changed")
	}
}
