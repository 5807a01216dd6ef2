package lifecycle_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mesh/lab/images"
	"mesh/lab/lifecycle"
	"mesh/lab/scenario/scenariotest"
	"mesh/lab/underlay"
)

// A plan that is taken up and put down elsewhere is the plan that would have
// been made there, but for what its machines know themselves by; and nothing of
// the place that it came from is in between.
func TestCaseL8PlanOnOtherGround(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := scenariotest.Draw(t)
		built := func(store string) map[string]images.Image {
			all := map[string]images.Image{}
			for _, m := range s.Machines {
				dir := store + "/images/" + m.Image
				all[m.Image] = images.Image{Disk: dir + "/disk", Kernel: dir + "/kernel", Initrd: dir + "/initrd", Repository: dir + "/repository"}
			}
			return all
		}
		plan := func(store, name, run string) lifecycle.Plan {
			u, err := underlay.Plan(s, run)
			if err != nil {
				t.Fatal(err)
			}
			p, err := lifecycle.NewPlan(s, *u, lifecycle.Options{
				Name: name, Run: run, Source: store + "/" + s.File, Images: built(store), Packages: store + "/dist",
				Directory: store + "/" + name, Layers: store + "/layers", Runtime: store + "/run/" + name,
			})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		first, second := plan("/first", "alpha", "0badcafe"), plan("/second", "beta", "00c0ffee")

		kept := first.Portable()
		if diff := cmp.Diff(document(t, kept), document(t, kept.Portable())); diff != "" {
			t.Fatalf("taken up again it differs:\n%s", diff)
		}
		for _, trace := range []string{"/first", "alpha", "0badcafe"} {
			if strings.Contains(document(t, kept), trace) {
				t.Fatalf("%q is in what was taken up:\n%s", trace, document(t, kept))
			}
		}
		got := kept.On(lifecycle.Ground{
			Name: "beta", Run: "00c0ffee", Images: built("/second"),
			Directory: "/second/beta", Layers: "/second/layers", Runtime: "/second/run/beta",
		})
		for i := range got.Machines {
			// Its memory has them already.
			got.Machines[i].MachineID = second.Machines[i].MachineID
			got.Machines[i].Spec.Cmdline = second.Machines[i].Spec.Cmdline
		}
		got.Packages, got.Source = second.Packages, second.Source
		if diff := cmp.Diff(document(t, second), document(t, got)); diff != "" {
			t.Fatalf("(-made there +put down there):\n%s", diff)
		}
	})
}

func document(t *rapid.T, p lifecycle.Plan) string {
	data, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
