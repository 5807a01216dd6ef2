package lifecycle_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mesh/lab/lifecycle"
)

func options(name string) lifecycle.Options {
	return lifecycle.Options{
		Name: name, Source: "small.yaml", Run: "0badcafe", Images: builtImages(), Packages: "/dist",
		Directory: "/store/scenarios/" + name, Layers: "/store/layers", Runtime: "/run/mesh-lab/0badcafe",
	}
}

func TestPlanGolden(t *testing.T) {
	p, err := lifecycle.NewPlan(small(), smallUnderlay("0badcafe"), options("a"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "plan.json", string(data)+"\n")
	golden(t, "plan.txt", p.String())

	again, err := lifecycle.NewPlan(small(), smallUnderlay("0badcafe"), options("a"))
	if err != nil || !cmp.Equal(p, again, cmp.Comparer(func(a, b lifecycle.Plan) bool { return a.String() == b.String() })) {
		t.Errorf("two plans from equal arguments differ (%v)", err)
	}
}

func TestPlanWithoutPlacement(t *testing.T) {
	o := options("")
	o.NoPlace = true
	p, err := lifecycle.NewPlan(small(), smallUnderlay("0badcafe"), o)
	if err != nil || p.Name != "small" {
		t.Fatalf("name %q, %v", p.Name, err)
	}
	for _, s := range p.Steps {
		if s.Kind == lifecycle.StepPlace {
			t.Errorf("places %s", s.About)
		}
	}
}

// Everything wrong is told at once.
func TestPlanRefuses(t *testing.T) {
	o := options("Größe")
	o.Accelerator = "hvf"
	o.Runtime = "/" + strings.Repeat("r", 100)
	_, err := lifecycle.NewPlan(small(), smallUnderlay("0badcafe"), o)
	if exitCode(err) != 2 {
		t.Errorf("exit code %d", exitCode(err))
	}
	for _, want := range []string{"Größe", `"hvf" is no accelerator`, "the runtime directory's path is too long"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("does not say %q: %v", want, err)
		}
	}
}

// No two machines, of whatever scenarios, share a domain name.
func TestCaseL11DomainNamesNeverClash(t *testing.T) {
	name := rapid.StringMatching(`[a-z][a-z0-9-]{0,6}[a-z0-9]`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := [2]string{name.Draw(t, "a"), name.Draw(t, "a's machine")}, [2]string{name.Draw(t, "b"), name.Draw(t, "b's machine")}
		if same := lifecycle.DomainName(a[0], a[1]) == lifecycle.DomainName(b[0], b[1]); same != (a == b) {
			t.Fatalf("%v and %v", a, b)
		}
	})
}

// Machines of one plan, and of two runs, have identities of their own.
func TestIdentitiesDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, run := range []string{"00000001", "00000002"} {
		o := options("a")
		o.Run = run
		p, err := lifecycle.NewPlan(small(), smallUnderlay(run), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range p.Machines {
			if seen[m.MachineID] || seen[m.Spec.UUID] {
				t.Errorf("machine %s of %s shares an identity", m.Name, run)
			}
			seen[m.MachineID], seen[m.Spec.UUID] = true, true
			m.Spec.Accelerator = "tcg"
			if err := m.Spec.Check(); err != nil {
				t.Errorf("machine %s: %v", m.Name, err)
			}
		}
	}
}
