package underlay_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"mesh/lab/scenario"
	"mesh/lab/scenario/scenariotest"
	"mesh/lab/underlay"
)

// draw draws a scenario and its underlay.
func draw(t *rapid.T) (*scenario.Scenario, *underlay.Underlay) {
	s := scenariotest.Draw(t)
	u, err := underlay.Plan(s, rapid.StringMatching(`[0-9a-f]{8}`).Draw(t, "run"))
	if err != nil {
		t.Fatal(err)
	}
	return s, u
}

// TestNothingTwice: no two cards have one MAC, no two takers one address, no two
// links or namespaces one name.
func TestNothingTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, u := draw(t)
		seen := map[string]string{}
		once := func(thing, owner string) {
			if before, twice := seen[thing]; twice {
				t.Fatalf("%s belongs to %s and to %s", thing, before, owner)
			}
			seen[thing] = owner
		}
		for _, c := range cards(u) {
			if c.at == 0 {
				once(c.mac, c.owner)
			}
			for _, a := range c.addrs {
				once(a.Addr().String(), c.owner)
			}
		}
		for _, s := range u.Segments {
			once("link "+s.Bridge, "segment "+s.Name)
			if s.Kind == string(scenario.Public) {
				for _, gateway := range []netip.Addr{s.Gateway4, s.Gateway6} {
					if gateway.IsValid() {
						once(gateway.String(), "gateway of "+s.Name)
					}
				}
			}
		}
		for _, r := range u.Routers {
			for _, one := range r.Translated {
				once(one.Outside.Addr().String(), "translated "+one.Machine)
			}
		}
		for _, a := range u.Services.Addrs {
			once(a.Addr().String(), "services")
		}
		once(u.Namespace, "world")
		for _, r := range u.Routers {
			once(r.Namespace, "router "+r.Name)
			once("link "+r.Inside.Peer, "router "+r.Name)
			once("link "+r.Outside.Peer, "router "+r.Name)
			if r.Inside.Link == r.Outside.Link {
				t.Fatalf("router %s has two links %s", r.Name, r.Inside.Link)
			}
		}
		for _, m := range u.Machines {
			for _, nic := range m.NICs {
				once("link "+nic.Tap, "machine "+m.Name)
			}
		}
	})
}

// TestCaseL11LinkNames: however long and alike names are, what they become fits
// into a link's name and stays apart (TestNothingTwice).
func TestCaseL11LinkNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, u := draw(t)
		names := []string{}
		for _, s := range u.Segments {
			names = append(names, s.Bridge)
		}
		for _, r := range u.Routers {
			names = append(names, r.Inside.Link, r.Inside.Peer, r.Outside.Link, r.Outside.Peer)
		}
		for _, m := range u.Machines {
			for _, nic := range m.NICs {
				names = append(names, nic.Tap)
			}
		}
		for _, name := range names {
			if name == "" || len(name) > underlay.LinkNameLimit {
				t.Fatalf("%q has %d bytes", name, len(name))
			}
		}
	})
}

// TestEveryAddressIsInItsRange, is a host's and not the range's own, and a
// machine's IPv6 address is the one it will make itself.
func TestEveryAddressIsInItsRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, u := draw(t)
		ranges := map[string][]netip.Prefix{}
		for _, segment := range s.Segments {
			ranges[segment.Name] = []netip.Prefix{segment.IPv4, segment.IPv6}
		}
		for _, c := range cards(u) {
			if want := families(ranges[c.segment]); len(c.addrs) != want {
				t.Fatalf("%s has %d addresses in %s, want %d", c.owner, len(c.addrs), c.segment, want)
			}
			for _, a := range c.addrs {
				in := ranges[c.segment][0]
				if a.Addr().Is6() {
					in = ranges[c.segment][1]
				}
				if a.Masked() != in || a.Addr() == in.Addr() || a.Addr().Is4() && !in.Contains(a.Addr().Next()) {
					t.Fatalf("%s has %s in %s of %s", c.owner, a, in, c.segment)
				}
				if a.Addr().Is6() && strings.HasPrefix(c.owner, "machine") {
					host := a.Addr().As16()
					card, err := net.ParseMAC(c.mac)
					if err != nil || host[8] != card[0]^2 || host[11] != 0xff || host[12] != 0xfe || host[15] != card[5] {
						t.Fatalf("%s makes no %s from %s", c.owner, a, c.mac)
					}
				}
			}
			card, err := net.ParseMAC(c.mac)
			if err != nil || len(card) != 6 || card[0]&3 != 2 || card[0] == 0xfe {
				t.Fatalf("%s: %s is not locally administered and unicast, or libvirt's", c.owner, c.mac)
			}
		}
	})
}

// TestEveryoneHasAWayOut follows default routes from each gateway to a public
// segment, or to an island; wherever those who roam stand, no way leads back.
func TestEveryoneHasAWayOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, drawn := draw(t)
		u := wander(t, *drawn)
		segments, owners := map[string]underlay.Segment{}, map[netip.Addr]underlay.Router{}
		for _, s := range u.Segments {
			segments[s.Name] = s
		}
		for _, r := range u.Routers {
			for _, a := range r.Inside.Addrs {
				owners[a.Addr()] = r
			}
		}
		for _, s := range u.Segments {
			for _, gateway := range []func(underlay.Segment) netip.Addr{
				func(s underlay.Segment) netip.Addr { return s.Gateway4 },
				func(s underlay.Segment) netip.Addr { return s.Gateway6 },
			} {
				at := s
				for hops := 0; at.Kind != string(scenario.Public) && gateway(at).IsValid(); hops++ {
					r, ok := owners[gateway(at)]
					if !ok || hops > len(u.Routers) {
						t.Fatalf("segment %s: the gateway %s of %s leads nowhere", s.Name, gateway(at), at.Name)
					}
					at = segments[r.Outside.Segment]
					if r.Default4 != at.Gateway4 || r.Default6 != at.Gateway6 {
						t.Fatalf("router %s goes by %s, %s and not by the gateways of %s", r.Name, r.Default4, r.Default6, at.Name)
					}
				}
			}
		}
		for _, r := range u.Routers {
			in, out := segments[r.Inside.Segment], segments[r.Outside.Segment]
			if in.Kind == string(scenario.Isolated) || out.Kind == string(scenario.Isolated) {
				t.Fatalf("router %s joins the isolated %s, %s", r.Name, in.Name, out.Name)
			}
			if out.IPv4.IsValid() && in.IPv4.IsValid() && !in.Gateway4.IsValid() || out.IPv6.IsValid() && in.IPv6.IsValid() && !in.Gateway6.IsValid() {
				t.Fatalf("site %s has no gateway, and router %s leads out of it", in.Name, r.Name)
			}
		}
	})
}

// wander moves everybody who roams somewhere.
func wander(t *rapid.T, u underlay.Underlay) underlay.Underlay {
	for _, r := range u.Roamers() {
		to := rapid.SampledFrom(r.Segments).Draw(t, "where "+r.Name+" goes")
		moved, err := u.Roam(r.Name, to)
		if err != nil {
			t.Fatal(err)
		}
		u = moved
	}
	return u
}

// TestRoaming: whoever goes anywhere and home again finds all as it was; on the
// way it has what was planned for it there, nobody else moves, and what was
// there before is not touched.
func TestRoaming(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, drawn := draw(t)
		before := document(t, drawn)
		away := wander(t, *drawn)
		if diff := cmp.Diff(before, document(t, drawn)); diff != "" {
			t.Fatalf("what was roamed from has changed:\n%s", diff)
		}
		home, moved := away, map[string]bool{}
		for _, r := range away.Roamers() {
			moved[r.Name] = r.At != r.Segments[0]
			if to, ok := away.Away()[r.Name]; ok != moved[r.Name] || ok && to != r.At {
				t.Fatalf("%s stands in %s, and is said to be away in %q", r.Name, r.At, to)
			}
			var err error
			if home, err = home.Roam(r.Name, r.Segments[0]); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(before, document(t, &home)); diff != "" {
			t.Fatalf("home again, it differs (-before +after):\n%s", diff)
		}
		for i, m := range away.Machines {
			for j, nic := range m.NICs {
				if stand, ok := nic.In(nic.Segment); !ok || stand.IPv4 != nic.IPv4 || stand.IPv6 != nic.IPv6 {
					t.Fatalf("machine %s stands in %s with %s, %s", m.Name, nic.Segment, nic.IPv4, nic.IPv6)
				}
				if was := drawn.Machines[i].NICs[j]; was.MAC != nic.MAC || was.Tap != nic.Tap || !moved[m.Name] && was.Segment != nic.Segment {
					t.Fatalf("machine %s: %+v became %+v", m.Name, was, nic)
				}
			}
		}
		for i, r := range away.Routers {
			if was := drawn.Routers[i]; was.Ruleset != r.Ruleset || was.Inside.Segment != r.Inside.Segment {
				t.Fatalf("router %s has another inside away from home", r.Name)
			}
		}
	})
}

func TestRoamRefuses(t *testing.T) {
	u := plan(t, parse(t, `
name: roam
segments:
  public: {kind: public, ipv4: 203.0.113.0/24}
  cafe: {kind: site, ipv4: 10.1.0.0/24}
routers:
  cafe: {inside: cafe, outside: public}
machines:
  laptop: {segments: [public], roams: [cafe]}
  rock: {segments: [public]}
`), run)
	for _, c := range [][3]string{
		{"rock", "cafe", `"rock" does not roam: of this scenario only laptop can be moved`},
		{"cafe", "public", `"cafe" does not roam: of this scenario only laptop can be moved`},
		{"laptop", "beach", `laptop does not roam to "beach": its segments are public, cafe`},
	} {
		if _, err := u.Roam(c[0], c[1]); err == nil || err.Error() != c[2] {
			t.Errorf("%s to %s: got %v, want %s", c[0], c[1], err, c[2])
		}
	}
	want := `"one" does not roam: the scenario declares for no machine and no router that it does`
	if _, err := plan(t, shipped(t, "single"), run).Roam("one", "public"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestCaseL4AddressesAreDeclared: an address and a MAC follow from what declares
// them. Nothing else that is declared moves them, not even another machine.
func TestCaseL4AddressesAreDeclared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := scenariotest.Draw(t)
		before := planned(t, s, "0000000a")
		s.About, s.Place = "told otherwise", nil
		for i := range s.Machines {
			s.Machines[i].MemoryBytes *= 2
		}
		s.Machines = append(s.Machines, scenario.Machine{Name: "the-last-one-of-them-all", Segments: s.Machines[0].Segments})
		after := planned(t, s, "0000000a")
		after.Machines = after.Machines[:len(after.Machines)-1]
		if diff := cmp.Diff(before.Machines, after.Machines, compareNetip); diff != "" {
			t.Fatalf("(-before +after):\n%s", diff)
		}
		for i := range after.Routers { // which the last one may have an address of
			r := &after.Routers[i]
			r.Translated = slices.DeleteFunc(r.Translated, func(one underlay.Translated) bool { return one.Machine == "the-last-one-of-them-all" })
			r.Ruleset = before.Routers[i].Ruleset
		}
		if diff := cmp.Diff(before.Routers, after.Routers, compareNetip, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-before +after):\n%s", diff)
		}
	})
}

// TestCaseL1SameInside: raised twice, a scenario is alike inside, and has nothing
// in common that the lab machine can see.
func TestCaseL1SameInside(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := scenariotest.Draw(t)
		a, b, again := planned(t, s, "0000000a"), planned(t, s, "0000000b"), planned(t, s, "0000000a")
		if diff := cmp.Diff(document(t, a), document(t, again)); diff != "" {
			t.Fatalf("planned twice, it differs:\n%s", diff)
		}
		seen := map[string]bool{}
		for _, name := range visible(a) {
			seen[*name] = true
		}
		for _, name := range visible(b) {
			if seen[*name] {
				t.Fatalf("both have %s on the lab machine", *name)
			}
		}
		for _, u := range []*underlay.Underlay{a, b} {
			for _, name := range visible(u) {
				*name = ""
			}
		}
		if diff := cmp.Diff(document(t, a), document(t, b)); diff != "" {
			t.Fatalf("the insides differ (-a +b):\n%s", diff)
		}
	})
}

// visible are the names that the lab machine sees, and the run's id.
func visible(u *underlay.Underlay) []*string {
	names := []*string{&u.Run, &u.Namespace}
	for i := range u.Routers {
		names = append(names, &u.Routers[i].Namespace)
	}
	for i := range u.Machines {
		for j := range u.Machines[i].NICs {
			names = append(names, &u.Machines[i].NICs[j].Tap)
		}
	}
	return names
}

// TestInsideStaysInside: no record names an address of a site, and no name is
// there twice.
func TestInsideStaysInside(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, u := draw(t)
		names := map[string]bool{}
		for _, record := range u.Records {
			if names[record.Name] || len(record.Addrs) == 0 || !strings.HasSuffix(record.Name, "."+underlay.Domain) {
				t.Fatalf("record %+v", record)
			}
			names[record.Name] = true
			for _, a := range record.Addrs {
				for _, segment := range s.Segments {
					inside := segment.IPv4.IsValid() && segment.IPv4.Contains(a) || segment.IPv6.IsValid() && segment.IPv6.Contains(a)
					if inside && segment.Kind != scenario.Public {
						t.Fatalf("%s names %s of %s", record.Name, a, segment.Name)
					}
				}
			}
		}
		for _, m := range s.Machines {
			for _, segment := range s.Segments {
				for _, in := range m.Segments {
					if in == segment.Name && segment.Kind == scenario.Public && !names[m.Name+"."+underlay.Domain] {
						t.Fatalf("machine %s has no name outside", m.Name)
					}
				}
			}
		}
	})
}

// card is one end of something on a bridge.
type card struct {
	owner, segment, mac string
	addrs               []netip.Prefix
	at                  int // the how manieth of its places
}

func cards(u *underlay.Underlay) []card {
	var all []card
	for _, r := range u.Routers {
		all = append(all, card{"router " + r.Name, r.Inside.Segment, r.Inside.MAC, r.Inside.Addrs, 0})
		all = append(all, card{"router " + r.Name, r.Outside.Segment, r.Outside.MAC, r.Outside.Addrs, 0})
		for i, s := range r.Stands {
			if i > 0 {
				all = append(all, card{"router " + r.Name, s.Segment, r.Outside.MAC, s.Addrs, i})
			}
		}
	}
	for _, m := range u.Machines {
		for _, nic := range m.NICs {
			stands := nic.Stands
			if stands == nil {
				stands = []underlay.Stand{{Segment: nic.Segment, IPv4: nic.IPv4, IPv6: nic.IPv6}}
			}
			for i, s := range stands {
				c := card{fmt.Sprintf("machine %s in %s", m.Name, s.Segment), s.Segment, nic.MAC, nil, i}
				for _, a := range []netip.Prefix{s.IPv4, s.IPv6} {
					if a.IsValid() {
						c.addrs = append(c.addrs, a)
					}
				}
				all = append(all, c)
			}
		}
	}
	return all
}

func families(prefixes []netip.Prefix) int {
	count := 0
	for _, p := range prefixes {
		if p.IsValid() {
			count++
		}
	}
	return count
}

func planned(t *rapid.T, s *scenario.Scenario, run string) *underlay.Underlay {
	u, err := underlay.Plan(s, run)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func document(t *rapid.T, u *underlay.Underlay) string {
	text, err := json.MarshalIndent(u, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
