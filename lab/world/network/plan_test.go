package network_test

import (
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/scenario"
	"mesh/lab/underlay"
	"mesh/lab/world/network"
)

var update = flag.Bool("update", false, "write goldens anew")

const run = "0123abcd"

// scenarios of which the plan is written out.
var scenarios = map[string]string{
	// Every kind of segment and router.
	"town": `
name: town
segments:
  public: {kind: public, ipv4: 203.0.113.0/24, ipv6: 2001:db8:113::/64}
  abroad: {kind: public, ipv4: 198.51.100.0/24}
  home: {kind: site, ipv4: 192.168.1.0/24, ipv6: 2001:db8:114::/64}
  office: {kind: site, ipv4: 172.20.0.0/24, ipv6: 2001:db8:115::/64}
  old: {kind: site, ipv4: 172.21.0.0/24, ipv6: 2001:db8:117::/64}
  island: {kind: isolated, ipv4: 10.9.0.0/24, ipv6: 2001:db8:116::/64}
  six: {kind: public, ipv6: 2001:db8:118::/64}
routers:
  box: {inside: home, outside: public, nat: easy, roams: [abroad]}
  plain: {inside: office, outside: public, nat: none, mtu: 1400}
  tunnel: {inside: old, outside: six}
machines:
  pub: {segments: [public]}
  robin: {segments: [island]}
`,
	// A home behind a provider that translates too.
	"nested": `
name: nested
segments:
  public: {kind: public, ipv4: 203.0.113.0/24, ipv6: 2001:db8:113::/64}
  provider: {kind: carrier, ipv4: 100.64.0.0/24, ipv6: 2001:db8:64::/64}
  home: {kind: site, ipv4: 192.168.1.0/24, ipv6: 2001:db8:114::/64}
  cloud: {kind: site, ipv4: 10.1.0.0/24}
routers:
  carrier: {inside: provider, outside: public, nat: hard}
  box: {inside: home, outside: provider, nat: none}
  cloud: {inside: cloud, outside: public, nat: one-to-one}
machines:
  in: {segments: [home]}
  server: {segments: [cloud]}
`,
}

func plan(t testing.TB, document string) underlay.Underlay {
	t.Helper()
	s, err := scenario.Parse("test.yaml", strings.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	u, err := underlay.Plan(s, run)
	if err != nil {
		t.Fatal(err)
	}
	return *u
}

func TestPlan(t *testing.T) {
	for name, document := range scenarios {
		t.Run(name, func(t *testing.T) {
			got, err := json.MarshalIndent(network.NewPlan(plan(t, document)), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".json", string(got)+"\n")
		})
	}
}

// TestWorldRuleset shows the filter as text; TestApply has nft itself read it.
func TestWorldRuleset(t *testing.T) {
	golden(t, "world.nft", network.NewPlan(plan(t, scenarios["town"])).World.Ruleset)
}

// TestNoWayIntoTranslated: no namespace has a route to a range that is
// translated, but the router that it is behind.
func TestNoWayIntoTranslated(t *testing.T) {
	p := network.NewPlan(plan(t, scenarios["nested"]))
	for _, r := range p.World.Routes {
		if r.To.Addr().Is4() {
			t.Errorf("the world has a route to %s", r.To)
		}
	}
	want := []network.Route{ // the carrier, to the home that is plainly behind it
		{To: netip.MustParsePrefix("192.168.1.0/24"), Via: netip.MustParseAddr("100.64.0.2")},
		{To: netip.MustParsePrefix("2001:db8:114::/64"), Via: netip.MustParseAddr("2001:db8:64::2")},
	}
	if diff := cmp.Diff(want, p.Routers[0].Routes[:2], cmp.Comparer(func(a, b network.Route) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestKeeperOf(t *testing.T) {
	u := plan(t, scenarios["town"])
	want := map[string]network.Keeper{
		"public": {Namespace: "ml-0123abcd", Link: "segment1", Addr4: netip.MustParseAddr("203.0.113.1"), Gateway4: true, Gateway6: true},
		"abroad": {Namespace: "ml-0123abcd", Link: "segment2", Addr4: netip.MustParseAddr("198.51.100.1"), Gateway4: true},
		"home":   {Namespace: "ml-0123abcd-1", Link: "inside", Addr4: netip.MustParseAddr("192.168.1.1"), Gateway4: true, Gateway6: true},
		"office": {Namespace: "ml-0123abcd-2", Link: "inside", Addr4: netip.MustParseAddr("172.20.0.1"), Gateway4: true, Gateway6: true},
		"old":    {Namespace: "ml-0123abcd-3", Link: "inside", Addr4: netip.MustParseAddr("172.21.0.1"), Gateway6: true},
		"island": {Namespace: "ml-0123abcd", Link: "segment6", Addr4: netip.MustParseAddr("10.9.0.1")},
		"six":    {Namespace: "ml-0123abcd", Link: "segment7", Gateway6: true},
	}
	for _, s := range u.Segments {
		if got := network.KeeperOf(u, s); got != want[s.Name] {
			t.Errorf("%s: got %+v, want %+v", s.Name, got, want[s.Name])
		}
	}
	// An island's keeper takes what no machine has, nor will have there.
	robin := &u.Machines[1].NICs[0]
	for address, keeper := range map[string]string{"10.9.0.1/24": "10.9.0.2", "10.9.0.9/24": "10.9.0.1"} {
		robin.IPv4 = netip.MustParsePrefix(address)
		robin.Stands = []underlay.Stand{{Segment: "island", IPv4: robin.IPv4}, {Segment: "public"}}
		for _, at := range robin.Stands {
			robin.Segment, robin.IPv4 = at.Segment, at.IPv4
			if got := network.KeeperOf(u, u.Segments[5]).Addr4; got != netip.MustParseAddr(keeper) {
				t.Errorf("with robin of %s in %s, the island's keeper has %s", address, at.Segment, got)
			}
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
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
