package declare_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mesh/host/declaration"
	"mesh/plane/declare"
	"mesh/plane/module"
	"mesh/plane/planetest"
	"mesh/plane/refusal"
	"mesh/plane/registry"
)

// drawModules draws modules that declare files of their own.
func drawModules(t *rapid.T) []module.Module {
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,6}`), 1, 6, rapid.ID[string]).Draw(t, "modules")
	var all []module.Module
	for _, name := range names {
		contents := rapid.SliceOfN(rapid.StringN(0, 20, 60), 0, 4).Draw(t, "files of "+name)
		all = append(all, module.Module{Name: name, Resources: func(f module.Facts) []declaration.Resource {
			var rs []declaration.Resource
			for i, content := range contents {
				rs = append(rs, declaration.Resource{
					ID:   fmt.Sprintf("%s/file-%d", name, i),
					File: &declaration.File{Path: fmt.Sprintf("/srv/%s/%d", name, i), Content: f.PlaneConfig + content},
				})
			}
			return rs
		}})
	}
	return all
}

// noneApplied is what is known where the plane has what its file says.
type noneApplied struct{ registry.View }

func (noneApplied) PlaneConfig(context.Context) (string, error) { return "", nil }

func (noneApplied) HostPackages(context.Context) ([]registry.HostPackage, error) { return nil, nil }

// TestSameFactsSameBytes is the law of the package: whatever the order of
// modules in the catalogue and of assignments on the node, the signed bytes are
// the same; and other facts give other bytes.
func TestSameFactsSameBytes(t *testing.T) {
	mesh, err := planetest.NewMesh()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		modules := drawModules(t)
		var assigned []string
		for _, m := range modules {
			assigned = append(assigned, m.Name)
		}
		next := func(config string, modules []module.Module, assigned []string) *registry.Declaration {
			d := declare.New(declare.Config{Mesh: mesh, Catalogue: module.NewCatalogue(module.Facts{PlaneConfig: config}, modules...)})
			n, err := d.Next(context.Background(), noneApplied{}, registry.Node{Name: "web", Modules: assigned, Profile: planetest.Profile()})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		first := next("a", modules, assigned)
		again := next("a", rapid.Permutation(modules).Draw(t, "catalogue"), rapid.Permutation(assigned).Draw(t, "assigned"))
		if !bytes.Equal(first.Signed, again.Signed) || first.Content != again.Content {
			t.Fatalf("two texts of the same facts:\n%s\n%s", first.Signed, again.Signed)
		}
		opened, digest, err := declaration.Open(first.Signed, mesh.DeclarationKey.Public())
		if err != nil || digest != first.Digest {
			t.Fatal(digest, err)
		}
		if len(opened.Resources) > 0 && next("b", modules, assigned).Content == first.Content {
			t.Fatal("other facts, and the same content")
		}
	})
}

func TestMergeHasOneOwnerOfEveryPlace(t *testing.T) {
	declaring := func(name string, r declaration.Resource) module.Module {
		r.ID = name + "/x"
		return module.Module{Name: name, Resources: func(module.Facts) []declaration.Resource { return []declaration.Resource{r} }}
	}
	file := func(path string) declaration.Resource {
		return declaration.Resource{File: &declaration.File{Path: path}}
	}
	for name, tt := range map[string]struct {
		a, b declaration.Resource
		says string // empty: they can stand together
	}{
		"two paths":           {file("/a"), file("/b"), ""},
		"one file":            {file("/a"), file("/a"), "path /a"},
		"file and directory":  {file("/a"), declaration.Resource{Directory: &declaration.Directory{Path: "/a"}}, "path /a"},
		"one package":         {declaration.Resource{Package: &declaration.Package{Name: "nginx"}}, declaration.Resource{Package: &declaration.Package{Name: "nginx"}}, "package nginx"},
		"one unit":            {declaration.Resource{Service: &declaration.Service{Unit: "a.service"}}, declaration.Resource{Service: &declaration.Service{Unit: "a.service"}}, "unit a.service"},
		"package like a unit": {declaration.Resource{Package: &declaration.Package{Name: "a.service"}}, declaration.Resource{Service: &declaration.Service{Unit: "a.service"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := module.NewCatalogue(module.Facts{}, declaring("one", tt.a), declaring("two", tt.b))
			got, err := declare.Merge(c, []string{"two", "one"})
			if tt.says == "" {
				if err != nil || len(got) != 2 || got[0].ID != "one/x" {
					t.Errorf("%v %v", got, err)
				}
				return
			}
			r := refusal.Of(err)
			if r == nil || !strings.Contains(r.Error(), tt.says) || !strings.Contains(r.Error(), `"one"`) || !strings.Contains(r.Error(), `"two"`) {
				t.Errorf("got %v, want both owners and %q", err, tt.says)
			}
		})
	}
}

func TestAssignAndUnassign(t *testing.T) {
	p := planetest.New(t, planetest.Options{})
	m := p.Enrol(t, "web")
	contents := func() []string {
		n := p.Node(t, "web")
		signed, err := p.Store.Signed(t.Context(), m.Key.Public(), n.Declared.Digest)
		if err != nil {
			t.Fatal(err)
		}
		d, _, err := declaration.Open(signed, p.Mesh.DeclarationKey.Public())
		if err != nil || d.Generation != n.Declared.Generation {
			t.Fatal(d.Generation, n.Declared.Generation, err)
		}
		var ids []string
		for _, r := range d.Resources {
			ids = append(ids, r.ID)
		}
		return ids
	}
	all := []string{"welcome/directory", "welcome/page", "welcome/package", "welcome/site", "welcome/service"}
	for i, step := range []struct {
		unassign bool
		want     declare.Assignment
		holds    []string
	}{
		{false, declare.Assignment{Node: "web", Module: "welcome", Changed: true, Generation: 2}, all},
		{false, declare.Assignment{Node: "web", Module: "welcome", Changed: false, Generation: 2}, all},
		{true, declare.Assignment{Node: "web", Module: "welcome", Changed: true, Generation: 3}, nil},
		{true, declare.Assignment{Node: "web", Module: "welcome", Changed: false, Generation: 3}, nil},
	} {
		call := p.Declarer.Assign
		if step.unassign {
			call = p.Declarer.Unassign
		}
		got, err := call(t.Context(), "web", "welcome")
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(step.want, got); d != "" {
			t.Errorf("step %d: %s", i, d)
		}
		if d := cmp.Diff(step.holds, contents()); d != "" {
			t.Errorf("step %d: %s", i, d)
		}
	}
}

func TestWhatCannotBeAssigned(t *testing.T) {
	p := planetest.New(t, planetest.Options{PlaneMachine: planetest.MachineID("one")})
	p.Enrol(t, "one")
	p.Enrol(t, "web")
	for name, tt := range map[string]struct {
		call func() error
		kind refusal.Kind
		says string
	}{
		"an unknown node":     {func() error { _, err := p.Declarer.Assign(t.Context(), "wbe", "welcome"); return err }, refusal.Unknown, `"wbe"`},
		"an unknown module":   {func() error { _, err := p.Declarer.Assign(t.Context(), "web", "wellcome"); return err }, refusal.Unknown, "host, plane, welcome"},
		"what is everywhere":  {func() error { _, err := p.Declarer.Assign(t.Context(), "web", "host"); return err }, refusal.Conflict, "on every node by itself"},
		"and away from it":    {func() error { _, err := p.Declarer.Unassign(t.Context(), "web", "host"); return err }, refusal.Conflict, "on every node by itself"},
		"a second plane":      {func() error { _, err := p.Declarer.Assign(t.Context(), "web", "plane"); return err }, refusal.Conflict, "belongs on the machine the plane runs on"},
		"no plane":            {func() error { _, err := p.Declarer.Unassign(t.Context(), "one", "plane"); return err }, refusal.Conflict, "exactly one must run"},
		"from an unknown one": {func() error { _, err := p.Declarer.Unassign(t.Context(), "wbe", "welcome"); return err }, refusal.Unknown, `"wbe"`},
	} {
		t.Run(name, func(t *testing.T) {
			r := refusal.Of(tt.call())
			if r == nil || r.Kind != tt.kind || !strings.Contains(r.Error(), tt.says) {
				t.Errorf("got %v, want kind %d and %q", r, tt.kind, tt.says)
			}
		})
	}
	if got := p.Node(t, "web").Declared.Generation; got != 1 {
		t.Errorf("what was refused made generation %d", got)
	}
}

// A plane with another configuration declares its own node anew, and no other;
// a node that it cannot declare for keeps what it has.
func TestRefresh(t *testing.T) {
	p := planetest.New(t, planetest.Options{PlaneMachine: planetest.MachineID("one"), PlaneConfig: "a\n"})
	p.Enrol(t, "one")
	p.Enrol(t, "web", "welcome")
	other := declare.New(declare.Config{
		Mesh: p.Mesh, Catalogue: module.NewCatalogue(module.Facts{PlaneConfig: "b\n"}, module.All()...), Store: p.Store, Now: p.Now,
	})
	for range 2 {
		if err := other.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if one, web := p.Node(t, "one").Declared.Generation, p.Node(t, "web").Declared.Generation; one != 2 || web != 1 {
			t.Errorf("generations %d and %d, want 2 and 1", one, web)
		}
	}
	without := declare.New(declare.Config{Mesh: p.Mesh, Catalogue: module.NewCatalogue(module.Facts{PlaneConfig: "b\n"}, module.Plane()), Store: p.Store, Now: p.Now})
	if err := without.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := p.Node(t, "web"); n.Declared.Generation != 1 || !slices.Equal(n.Modules, []string{"welcome"}) {
		t.Errorf("a module that is no longer there: %+v", n.Declared)
	}
}

func TestNextRefusesAHostThatIsTooOld(t *testing.T) {
	mesh, err := planetest.NewMesh()
	if err != nil {
		t.Fatal(err)
	}
	d := declare.New(declare.Config{Mesh: mesh})
	_, err = d.Next(t.Context(), noneApplied{}, registry.Node{Name: "web"})
	var r *refusal.Error
	if !errors.As(err, &r) || !strings.Contains(r.Do, "upgrade mesh-host") {
		t.Errorf("got %v", err)
	}
}
