package module_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/host/declaration"
	"mesh/plane/module"
	"mesh/plane/planetest"
	"mesh/plane/refusal"
)

var update = flag.Bool("update", false, "write the goldens anew")

func catalogue(extra ...module.Module) module.Catalogue {
	return module.NewCatalogue(module.Facts{
		PlaneConfig: "mesh: \"test\"\n",
		Host:        &declaration.Package{Name: "mesh-host", Version: "2.0", Blob: &declaration.Blob{Digest: strings.Repeat("ab", 32), Bytes: 5 << 20}},
	}, append(module.All(), extra...)...)
}

// Every module of the catalogue declares what a host accepts, under its own
// name. The goldens are read by the contract's own parser.
func TestModulesDeclareWhatAHostAccepts(t *testing.T) {
	c := catalogue()
	for _, m := range c.Modules() {
		t.Run(m.Name, func(t *testing.T) {
			resources := c.Resources(m)
			for _, r := range resources {
				if !strings.HasPrefix(r.ID, m.Name+"/") {
					t.Errorf("%s does not begin with %s/", r.ID, m.Name)
				}
			}
			got, err := declaration.Bundle{Format: declaration.FormatFor(resources), Resources: resources}.Encode()
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", m.Name+".json")
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := declaration.ParseBundle(want); err != nil {
				t.Error(err)
			}
			if d := cmp.Diff(string(want), string(got)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestNamedKnowsItsCatalogue(t *testing.T) {
	if m, err := catalogue().Named("welcome"); err != nil || m.Name != "welcome" {
		t.Error(m.Name, err)
	}
	_, err := catalogue().Named("welcom")
	if r := refusal.Of(err); r == nil || r.Kind != refusal.Unknown || !strings.Contains(r.Do, "host, plane, welcome") {
		t.Errorf("got %v", err)
	}
}

func TestCheckPlace(t *testing.T) {
	alone := module.Module{Name: "alone", Excludes: []string{"welcome"}, Resources: func(module.Facts) []declaration.Resource { return nil }}
	shop := declaration.Resource{ID: "shop/shop", Container: &declaration.Container{Name: "shop"}}
	podman := declaration.Resource{ID: "shop/podman", Package: &declaration.Package{Name: "podman"}}
	bare := module.Module{Name: "bare", Resources: func(module.Facts) []declaration.Resource { return []declaration.Resource{shop} }}
	whole := module.Module{Name: "whole", Resources: func(module.Facts) []declaration.Resource { return []declaration.Resource{podman, shop} }}
	late := module.Module{Name: "late", Resources: func(module.Facts) []declaration.Resource { return []declaration.Resource{shop, podman} }}
	c := catalogue(alone, bare, whole, late)
	free := module.Place{Node: "web", MachineID: "m1", Profile: planetest.Profile()}
	with := func(change func(*module.Place)) module.Place {
		p := free
		change(&p)
		return p
	}
	for name, tt := range map[string]struct {
		module string
		place  module.Place
		says   string // empty: it can be
	}{
		"anywhere":                 {"welcome", free, ""},
		"the plane's machine":      {"plane", with(func(p *module.Place) { p.PlaneMachine = "m1" }), ""},
		"an unknown plane machine": {"plane", free, ""},
		"another machine":          {"plane", with(func(p *module.Place) { p.PlaneMachine = "m2" }), "machine-id m2"},
		"held by itself":           {"plane", with(func(p *module.Place) { p.Holders = []string{"web"} }), ""},
		"held by another":          {"plane", with(func(p *module.Place) { p.Holders = []string{"db"} }), `node "db" has it`},
		"held by others, many may": {"welcome", with(func(p *module.Place) { p.Holders = []string{"db"} }), ""},
		"beside what it excludes":  {"alone", with(func(p *module.Place) { p.Modules = []string{"welcome"} }), `cannot stand beside module "welcome"`},
		"beside what excludes it":  {"welcome", with(func(p *module.Place) { p.Modules = []string{"alone"} }), `cannot stand beside module "alone"`},
		"containers":               {"bare", free, ""},
		"without podman":           {"bare", with(func(p *module.Place) { p.Profile.Capabilities = nil }), `declares container "shop", and no containers run on that machine`},
		"podman comes with it":     {"whole", with(func(p *module.Place) { p.Profile.Capabilities = nil }), ""},
		"podman comes too late":    {"late", with(func(p *module.Place) { p.Profile.Capabilities = nil }), `install podman there`},
		"a host too old":           {"welcome", with(func(p *module.Place) { p.Profile.Kinds = []string{"directory", "file"} }), "kind package, service"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := c.Named(tt.module)
			if err != nil {
				t.Fatal(err)
			}
			err = c.CheckPlace(m, tt.place)
			switch r := refusal.Of(err); {
			case tt.says == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.says != "" && (r == nil || !strings.Contains(r.Error(), tt.says) || !strings.Contains(r.What, `node "web"`)):
				t.Errorf("got %v, want %q", err, tt.says)
			}
		})
	}
}

// Nobody has to assign what is everywhere, and nobody can.
func TestEverywhere(t *testing.T) {
	c := catalogue()
	if got := c.On([]string{"welcome"}); !slices.Equal(got, []string{"welcome", "host"}) {
		t.Errorf("%v", got)
	}
	if r := refusal.Of(module.Host().CheckAssignable()); r == nil || !strings.Contains(r.Error(), "on every node by itself") {
		t.Errorf("%v", r)
	}
	if err := module.Welcome().CheckAssignable(); err != nil {
		t.Error(err)
	}
	if got := module.Host().Resources(module.Facts{}); got != nil {
		t.Errorf("where no version was given: %+v", got)
	}
}

func TestCheckAbsence(t *testing.T) {
	c := catalogue()
	if err := c.CheckAbsence(module.Welcome(), "web"); err != nil {
		t.Error(err)
	}
	if r := refusal.Of(c.CheckAbsence(module.Plane(), "web")); r == nil || r.ExitCode() != 1 {
		t.Errorf("the plane can be taken away: %v", r)
	}
}
