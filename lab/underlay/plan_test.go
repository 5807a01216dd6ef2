package underlay_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/scenario"
	"mesh/lab/underlay"
	"mesh/scenarios"
)

var update = flag.Bool("update", false, "write the goldens anew")

const run = "0123abcd"

// TestShipped compares the underlay of each shipped scenario with its golden.
func TestShipped(t *testing.T) {
	for _, name := range scenarios.Names() {
		t.Run(name, func(t *testing.T) {
			u := plan(t, shipped(t, name), run)
			var document bytes.Buffer
			encoder := json.NewEncoder(&document)
			encoder.SetEscapeHTML(false)
			encoder.SetIndent("", "  ")
			if err := encoder.Encode(u); err != nil {
				t.Fatal(err)
			}
			golden(t, name+".json", document.String())

			var back underlay.Underlay
			if err := json.Unmarshal(document.Bytes(), &back); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(*u, back, compareNetip); diff != "" {
				t.Errorf("the document does not hold the underlay (-plan +document):\n%s", diff)
			}
		})
	}
}

// TestRuleset compares the filter of each kind of router with its golden, and
// has nft read it.
func TestRuleset(t *testing.T) {
	forward := []scenario.Forward{{Protocol: "tcp", Port: 443, To: "two", At: 8443}, {Protocol: "udp", Port: 51820, To: "two", At: 51820}}
	for name, change := range map[string]func(*scenario.Router){
		"easy":            func(*scenario.Router) {},
		"easy-closed":     func(r *scenario.Router) { r.Firewall = scenario.FirewallClosed },
		"easy-forwards":   func(r *scenario.Router) { r.Forwards = forward },
		"hard":            func(r *scenario.Router) { r.NAT = scenario.NATHard },
		"hard-forwards":   func(r *scenario.Router) { r.NAT, r.Forwards = scenario.NATHard, forward },
		"one-to-one":      func(r *scenario.Router) { r.NAT = scenario.NATOne },
		"none":            func(r *scenario.Router) { r.NAT = scenario.NATNone },
		"none-open":       func(r *scenario.Router) { r.NAT, r.Firewall = scenario.NATNone, scenario.FirewallOpen },
		"none-closed":     func(r *scenario.Router) { r.NAT, r.Firewall = scenario.NATNone, scenario.FirewallClosed },
		"none-black-hole": func(r *scenario.Router) { r.NAT, r.MTU, r.BlackHole = scenario.NATNone, 1400, true },
	} {
		t.Run(name, func(t *testing.T) {
			s := shipped(t, "first-node")
			change(&s.Routers[0])
			text := plan(t, s, run).Routers[0].Ruleset
			golden(t, "ruleset-"+name+".nft", text)
			check(t, text)
		})
	}
}

// check has the real parser read a ruleset, in a network namespace that ends with it.
func check(t *testing.T, ruleset string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("nft needs root to check a ruleset")
	}
	for _, program := range []string{"nft", "unshare"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed: the ruleset is compared, and not read by the real parser", program)
		}
	}
	cmd := exec.Command("unshare", "--net", "nft", "--check", "--file", "-")
	cmd.Stdin = strings.NewReader(ruleset)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("nft refuses the ruleset: %v\n%s", err, said)
	}
}

// TestPlacesOfFirstNode says in words what the golden says in full.
func TestPlacesOfFirstNode(t *testing.T) {
	u := plan(t, shipped(t, "first-node"), run)
	one, two := u.Machines[0].NICs[0], u.Machines[1].NICs[0]
	for _, c := range []struct{ what, want, got string }{
		{"machine one", "203.0.113.10/24", one.IPv4.String()},
		{"machine two", "192.168.1.10/24", two.IPv4.String()},
		{"services", "203.0.113.2", u.Services.DNS[0].String()},
		{"services", "2001:db8:113::2", u.Services.DNS[1].String()},
		{"router outside", "203.0.113.3/24", u.Routers[0].Outside.Addrs[0].String()},
		{"router inside", "192.168.1.1/24", u.Routers[0].Inside.Addrs[0].String()},
		{"router's way out", "203.0.113.1", u.Routers[0].Default4.String()},
		{"router's way out", "2001:db8:113::1", u.Routers[0].Default6.String()},
		{"home's gateway", "192.168.1.1", u.Segments[1].Gateway4.String()},
		{"home's gateway", "2001:db8:114::1", u.Segments[1].Gateway6.String()},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %s, want %s", c.what, c.got, c.want)
		}
	}
	for _, record := range u.Records {
		for _, a := range record.Addrs {
			if u.Segments[1].IPv4.Contains(a) || u.Segments[1].IPv6.Contains(a) {
				t.Errorf("record %s names %s of the inside", record.Name, a)
			}
		}
	}
}

// TestIsolatedSite has no way out: no gateway is announced there.
func TestIsolatedSite(t *testing.T) {
	u := plan(t, parse(t, `
name: isolated
segments:
  public: {kind: public, ipv6: 2001:db8:1::/64}
  island: {kind: site, ipv4: 10.1.0.0/24, ipv6: 2001:db8:2::/64}
machines:
  one: {segments: [island, public]}
`), run)
	if got := u.Segments[1]; got.Gateway4.IsValid() || got.Gateway6.IsValid() {
		t.Errorf("the island has gateways %v, %v", got.Gateway4, got.Gateway6)
	}
	if got := u.Segments[0]; got.Gateway4.IsValid() || !got.Gateway6.IsValid() {
		t.Errorf("the outside has gateways %v, %v; want IPv6 alone", got.Gateway4, got.Gateway6)
	}
	if nic := u.Machines[0].NICs[1]; nic.IPv4.IsValid() {
		t.Errorf("a card has %v where there is no IPv4", nic.IPv4)
	}
}

// TestOneFamilyLeads: a site is told of no way out by a family that its router has
// nowhere outside; one that it has somewhere it may roam to is a way out.
func TestOneFamilyLeads(t *testing.T) {
	u := plan(t, parse(t, `
name: families
segments:
  public: {kind: public, ipv4: 203.0.113.0/24, ipv6: 2001:db8:1::/64}
  old: {kind: public, ipv4: 198.51.100.0/24}
  a: {kind: site, ipv4: 10.1.0.0/24, ipv6: 2001:db8:a::/64}
  b: {kind: site, ipv4: 10.2.0.0/24, ipv6: 2001:db8:b::/64}
routers:
  a: {inside: a, outside: old}
  b: {inside: b, outside: old, roams: [public]}
machines:
  one: {segments: [a]}
`), run)
	for i, want := range map[int]string{2: "10.1.0.1 invalid IP", 3: "10.2.0.1 2001:db8:b::1"} {
		if got := u.Segments[i].Gateway4.String() + " " + u.Segments[i].Gateway6.String(); got != want {
			t.Errorf("site %s has the gateways %s, want %s", u.Segments[i].Name, got, want)
		}
	}
}

// TestOneToOne: each machine inside has an outside address that nobody else has,
// and who is declared after it does not move it.
func TestOneToOne(t *testing.T) {
	const document = `
name: cloud
segments:
  public: {kind: public, ipv4: 203.0.113.0/24}
  cloud: {kind: site, ipv4: 10.1.0.0/24}
routers:
  cloud: {inside: cloud, outside: public, nat: one-to-one}
machines:
  one: {segments: [cloud]}
  pub: {segments: [public]}
  two: {segments: [cloud]}
`
	want := []underlay.Translated{
		{Machine: "one", Inside: netip.MustParseAddr("10.1.0.10"), Outside: netip.MustParsePrefix("203.0.113.10/24")},
		{Machine: "two", Inside: netip.MustParseAddr("10.1.0.11"), Outside: netip.MustParsePrefix("203.0.113.12/24")},
	}
	for _, later := range []string{"", "  late: {segments: [public]}\n"} {
		u := plan(t, parse(t, document+later), run)
		if diff := cmp.Diff(want, u.Routers[0].Translated, compareNetip); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got := u.Machines[1].NICs[0].IPv4.String(); got != "203.0.113.11/24" {
			t.Errorf("pub has %s", got)
		}
	}
}

// TestSmallRange gives machines what comes next where there is no room for a gap.
func TestSmallRange(t *testing.T) {
	u := plan(t, parse(t, `
name: small
segments:
  public: {kind: public, ipv4: 203.0.113.8/29}
  home: {kind: site, ipv4: 10.1.0.0/24}
routers:
  gateway: {inside: home, outside: public}
machines:
  one: {segments: [public]}
  two: {segments: [public]}
  three: {segments: [public]}
`), run)
	var got []string
	for _, m := range u.Machines {
		got = append(got, m.NICs[0].IPv4.String())
	}
	if diff := cmp.Diff([]string{"203.0.113.12/29", "203.0.113.13/29", "203.0.113.14/29"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestManyRouters: machines come after the routers where those need the gap.
func TestManyRouters(t *testing.T) {
	var segments, routers strings.Builder
	for i := range 9 {
		fmt.Fprintf(&segments, "  site%d: {kind: site, ipv4: 10.%d.0.0/24}\n", i, i)
		fmt.Fprintf(&routers, "  router%d: {inside: site%d, outside: public}\n", i, i)
	}
	u := plan(t, parse(t, "name: many\nsegments:\n  public: {kind: public, ipv4: 203.0.113.0/24}\n"+segments.String()+
		"routers:\n"+routers.String()+"machines:\n  one: {segments: [public]}\n"), run)
	if got, want := u.Routers[8].Outside.Addrs[0].String(), "203.0.113.11/24"; got != want {
		t.Errorf("the last router has %s, want %s", got, want)
	}
	if got, want := u.Machines[0].NICs[0].IPv4.String(), "203.0.113.12/24"; got != want {
		t.Errorf("the machine has %s, want %s", got, want)
	}
}

func TestRunID(t *testing.T) {
	for _, bad := range []string{"", "0123abc", "0123ABCD", "0123abcde", "../../ab"} {
		if u, err := underlay.Plan(shipped(t, "single"), bad); err == nil {
			t.Errorf("run %q was accepted: %v", bad, u.Namespace)
		}
	}
}

var compareNetip = cmp.Options{
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
}

func plan(t testing.TB, s *scenario.Scenario, run string) *underlay.Underlay {
	t.Helper()
	u, err := underlay.Plan(s, run)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func shipped(t testing.TB, name string) *scenario.Scenario {
	t.Helper()
	document, err := scenarios.Files.ReadFile(name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(document))
}

func parse(t testing.TB, document string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse("test.yaml", strings.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// golden compares got with a file, or writes it with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got); run with -update if it should:\n%s", file, diff)
	}
}
