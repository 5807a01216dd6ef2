package impairment_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mesh/lab/fault"
	"mesh/lab/scenario"
	"mesh/lab/underlay"
	"mesh/lab/world/impairment"
)

var update = flag.Bool("update", false, "write the golden files anew")

// country has two homes behind translators of their own, an office that is
// routed, and a machine and a laptop outside.
func country(t testing.TB) underlay.Underlay {
	t.Helper()
	s, err := scenario.Parse("country.yaml", strings.NewReader(`
name: country
segments:
  public: {kind: public, ipv4: 203.0.113.0/24, ipv6: 2001:db8:113::/64}
  home: {kind: site, ipv4: 192.168.1.0/24, ipv6: 2001:db8:114::/64}
  flat: {kind: site, ipv4: 192.168.2.0/24}
  office: {kind: site, ipv4: 172.20.0.0/24}
routers:
  home-gate: {inside: home, outside: public}
  flat-gate: {inside: flat, outside: public}
  plain: {inside: office, outside: public, nat: none}
machines:
  pub: {segments: [public]}
  both: {segments: [public, office]}
  in: {segments: [home]}
  near: {segments: [home]}
  far: {segments: [flat]}
  desk: {segments: [office]}
`))
	if err != nil {
		t.Fatal(err)
	}
	u, err := underlay.Plan(s, "00000001")
	if err != nil {
		t.Fatal(err)
	}
	return *u
}

func resolved(t testing.TB, u underlay.Underlay, faults ...fault.Fault) (all []fault.Fault) {
	t.Helper()
	for i, f := range faults {
		f, err := fault.Resolve(f, u)
		if err != nil {
			t.Fatal(err)
		}
		f.Name = string(rune('a'+i)) + "-" + string(f.Kind)
		all = append(all, f)
	}
	return all
}

func on(words ...string) (targets []fault.Target) {
	for _, w := range words {
		t, err := fault.ParseTarget(w)
		if err != nil {
			panic(err)
		}
		targets = append(targets, t)
	}
	return targets
}

// cases are faults by the name of their golden file.
func cases() map[string][]fault.Fault {
	ms := fault.Duration(time.Millisecond)
	return map[string][]fault.Fault{
		"none": {{Kind: fault.IssuerExpired}},
		"loss": {
			{Kind: fault.Loss, On: on("both"), Share: 300_000},
			{Kind: fault.Loss, On: on("both@office", "router:home-gate"), Share: 1, Direction: fault.In},
			{Kind: fault.Loss, On: on("segment:home"), Share: fault.Whole},
		},
		"down": {{Kind: fault.LinkDown, On: on("router:plain")}},
		"lines": {
			{Kind: fault.Delay, On: on("in"), Delay: 100 * ms, Jitter: 10 * ms, Reorder: 500_000, Direction: fault.Out},
			{Kind: fault.Delay, On: on("segment:home"), Delay: 20 * ms, Reorder: 500_000},
			{Kind: fault.RateLimit, On: on("in", "router:home-gate"), Rate: 2e6},
			{Kind: fault.RateLimit, On: on("in"), Rate: 1e6, Direction: fault.In},
			{Kind: fault.Loss, On: on("in"), Share: 10_000}, // named by what stands for it
		},
		"partition": {
			{Kind: fault.Partition, On: on("in", "near"), From: on("pub")},
			{Kind: fault.Partition, On: on("in"), From: on("near", "segment:office"), Direction: fault.Out},
			{Kind: fault.Partition, On: on("segment:home"), From: on("world"), Direction: fault.In},
		},
		"hidden": {{Kind: fault.Partition, On: on("in"), From: on("far", "near")}},
	}
}

func TestGolden(t *testing.T) {
	u := country(t)
	for name, faults := range cases() {
		p := impairment.NewPlan(u, resolved(t, u, faults...))
		golden(t, name+".nft", p.Ruleset)
		lines, err := json.MarshalIndent(p.Lines, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Lines) > 0 {
			golden(t, name+".json", string(lines)+"\n")
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// The same faults are the same plan in whatever order they come, and one that
// comes and goes leaves the plan as it was.
func TestOrder(t *testing.T) {
	u := country(t)
	var all []fault.Fault
	for _, name := range []string{"loss", "down", "lines", "partition", "hidden"} {
		all = append(all, cases()[name]...)
	}
	all = resolved(t, u, all...)
	rapid.Check(t, func(rt *rapid.T) {
		order := rapid.Permutation(all).Draw(rt, "order")
		some := order[:rapid.IntRange(0, len(all)-1).Draw(rt, "some")]
		want := impairment.NewPlan(u, some)
		shuffled := rapid.Permutation(some).Draw(rt, "shuffled")
		if diff := cmp.Diff(want, impairment.NewPlan(u, shuffled)); diff != "" {
			rt.Fatalf("in another order (-want +got):\n%s", diff)
		}
		more := append(slices.Clone(some), order[len(some)])
		if cmp.Equal(want, impairment.NewPlan(u, more)) {
			rt.Fatalf("%v does nothing beside %v", order[len(some)], some)
		}
	})
}

// TestLinkNames: what stands for a port has a name that the kernel takes and that
// no other has.
func TestLinkNames(t *testing.T) {
	u := country(t)
	var faults []fault.Fault
	for _, s := range u.Segments {
		faults = append(faults, fault.Fault{Kind: fault.Delay, On: on("segment:" + s.Name), Delay: 1})
	}
	seen := map[string]bool{}
	lines := impairment.NewPlan(u, resolved(t, u, faults...)).Lines
	for _, l := range lines {
		if len(l.Link) > underlay.LinkNameLimit || seen[l.Link] || l.Link == l.Port || l.Bridge == "" {
			t.Errorf("%+v", l)
		}
		seen[l.Link] = true
	}
	if len(lines) != 7+6 { // NICs, and both ends of three routers
		t.Errorf("%d lines, want 13", len(lines))
	}
}
