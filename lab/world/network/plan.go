// Package network lays the links, addresses, routes and filters of a scenario
// into its namespaces.
//
// NewPlan is pure: an underlay in, everything that has to stand out, in an order
// that is always the same. Apply makes it so and may be repeated, with another
// plan when somebody has moved: what stands and is planned is kept, so that
// traffic of a running scenario goes on, and addresses and ways of this package
// that are planned no more are taken away.
//
// The world's namespace holds every bridge, but it stands on public segments
// only. On the bridge of a site it is a mere switch: no address, no ARP, no IPv6,
// and a filter that drops whatever a machine there would send it. On a site that
// no router leads out of, where somebody has to give addresses, it can be asked
// for those and for nothing else.
//
// Only lab/world imports it.
package network

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"mesh/lab/scenario"
	"mesh/lab/underlay"
)

// Plan is everything that stands between the machines.
type Plan struct {
	World   World    `json:"world"`
	Routers []Router `json:"routers"`
}

// World is the namespace of bridges and outside addresses.
type World struct {
	Namespace string    `json:"namespace"`
	Settings  []Setting `json:"settings"`
	Ruleset   string    `json:"ruleset"`
	Bridges   []Bridge  `json:"bridges"`
	Routes    []Route   `json:"routes"`
}

// Router is a namespace between two bridges.
type Router struct {
	Namespace string    `json:"namespace"`
	Settings  []Setting `json:"settings"`
	Ruleset   string    `json:"ruleset"`
	Ports     []Port    `json:"ports"`
	Routes    []Route   `json:"routes"`
}

// Setting is a file below /proc/sys/net and what is written there.
type Setting struct {
	Path     string `json:"path"`
	Value    string `json:"value"`
	Optional bool   `json:"optional,omitempty"` // only where the kernel has it
}

// Bridge is a segment. One without addresses is not a neighbour of anybody.
type Bridge struct {
	Link  string         `json:"link"`
	MAC   string         `json:"mac"` // fixed: a bridge left alone takes it from its ports and changes it with them
	Addrs []netip.Prefix `json:"addrs"`
}

// Port is a link of a router; its other end is Peer, on Bridge.
type Port struct {
	Link   string         `json:"link"`
	MAC    string         `json:"mac"`
	Peer   string         `json:"peer"`
	Bridge string         `json:"bridge"`
	Addrs  []netip.Prefix `json:"addrs"`
}

// Route is a way to a prefix: by a next hop, or at the link itself, which is then
// the kernel's own way with something added.
type Route struct {
	To   netip.Prefix `json:"to"`
	Via  netip.Addr   `json:"via,omitzero"`
	Link string       `json:"link,omitempty"`
	From netip.Addr   `json:"from,omitzero"` // with Link: the address there
	MTU  int          `json:"mtu,omitempty"` // of packets that go there; zero: the link's
}

// KeeperLinkLocal is the link-local address of a segment's keeper, where it has IPv6.
var KeeperLinkLocal = netip.MustParsePrefix("fe80::1/64")

// NewPlan says what has to stand for u.
func NewPlan(u underlay.Underlay) Plan {
	p := Plan{World: World{
		Namespace: u.Namespace,
		Settings:  worldSettings(),
		Ruleset:   worldRuleset(u),
	}}
	for _, s := range u.Segments {
		p.World.Bridges = append(p.World.Bridges, Bridge{
			Link: s.Bridge, MAC: bridgeMAC(s.Name), Addrs: bridgeAddrs(u, s),
		})
		if public(s) {
			p.World.Routes = append(p.World.Routes, routesOn(u, s.Name, "")...)
		}
	}
	for _, r := range u.Routers {
		p.Routers = append(p.Routers, newRouter(u, r))
	}
	return p
}

func newRouter(u underlay.Underlay, r underlay.Router) Router {
	router := Router{
		Namespace: r.Namespace,
		Settings:  routerSettings(),
		Ruleset:   replacing("inet lab") + r.Ruleset,
		Routes:    slices.Concat(routesOn(u, r.Inside.Segment, r.Name), routesOn(u, r.Outside.Segment, r.Name)),
	}
	for _, port := range []underlay.RouterPort{r.Inside, r.Outside} {
		s, _ := segment(u, port.Segment)
		addrs := append(slices.Clone(port.Addrs), linkLocal(port, port.Link == r.Inside.Link)...)
		if port.Link == r.Outside.Link {
			for _, t := range r.Translated {
				addrs = append(addrs, t.Outside)
			}
		}
		router.Ports = append(router.Ports, Port{Link: port.Link, MAC: port.MAC, Peer: port.Peer, Bridge: s.Bridge, Addrs: addrs})
	}
	for _, way := range []struct {
		to  netip.Prefix
		via netip.Addr
	}{
		{netip.MustParsePrefix("0.0.0.0/0"), r.Default4},
		{netip.MustParsePrefix("::/0"), r.Default6},
	} {
		if way.via.IsValid() {
			router.Routes = append(router.Routes, Route{To: way.to, Via: way.via})
		}
	}
	if r.MTU > 0 {
		router.narrow(r)
	}
	return router
}

// narrow bounds every way that leads through a router, either way. The links
// stay as they are: a bridge would drop what is too long for a port without a
// word, and nobody would be told.
func (router *Router) narrow(r underlay.Router) {
	for _, port := range []underlay.RouterPort{r.Inside, r.Outside} {
		for _, a := range port.Addrs {
			router.Routes = append(router.Routes, Route{To: a.Masked(), Link: port.Link, From: a.Addr()})
		}
	}
	for i := range router.Routes {
		router.Routes[i].MTU = r.MTU
	}
}

// bridgeAddrs are the world's own on a segment.
func bridgeAddrs(u underlay.Underlay, s underlay.Segment) []netip.Prefix {
	keeper := KeeperOf(u, s)
	if keeper.Namespace != u.Namespace {
		return nil
	}
	var addrs []netip.Prefix
	if keeper.Addr4.IsValid() {
		addrs = append(addrs, netip.PrefixFrom(keeper.Addr4, s.IPv4.Bits()))
	}
	if s.Gateway6.IsValid() {
		addrs = append(addrs, netip.PrefixFrom(s.Gateway6, s.IPv6.Bits()))
	}
	if u.Services.Segment == s.Name {
		addrs = append(addrs, u.Services.Addrs...)
	}
	if s.IPv6.IsValid() {
		addrs = append(addrs, KeeperLinkLocal)
	}
	slices.SortStableFunc(addrs, func(a, b netip.Prefix) int { // IPv4 first, gateway before services
		return cmp.Compare(a.Addr().BitLen(), b.Addr().BitLen())
	})
	return addrs
}

// linkLocal is a router's own, if it has IPv6 at all on that port: the well-known
// one where it is the keeper, otherwise what follows from its MAC.
func linkLocal(p underlay.RouterPort, keeper bool) []netip.Prefix {
	six := slices.ContainsFunc(p.Addrs, func(a netip.Prefix) bool { return a.Addr().Is6() })
	if !six {
		return nil
	}
	if keeper {
		return []netip.Prefix{KeeperLinkLocal}
	}
	mac, err := net.ParseMAC(p.MAC)
	if err != nil || len(mac) != 6 {
		return nil // Apply refuses the port for its MAC
	}
	// RFC 4291, appendix A.
	return []netip.Prefix{netip.PrefixFrom(netip.AddrFrom16([16]byte{
		0: 0xfe, 1: 0x80,
		8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5],
	}), 64)}
}

// bridgeMAC is a bridge's address: locally administered, the same in every
// raise, since machines remember it across a snapshot.
func bridgeMAC(segment string) string {
	sum := sha256.Sum256([]byte("bridge/" + segment))
	return fmt.Sprintf("06:%02x:%02x:%02x:%02x:%02x", sum[0], sum[1], sum[2], sum[3], sum[4])
}

// routesOn are the ways to what lies behind the other routers of a segment, for
// whoever stands on it.
func routesOn(u underlay.Underlay, on, self string) (routes []Route) {
	for _, r := range u.Routers {
		if r.Outside.Segment != on || r.Name == self {
			continue
		}
		for _, to := range behind(u, r, nil) {
			for _, a := range r.Outside.Addrs {
				if a.Addr().Is4() == to.Addr().Is4() {
					routes = append(routes, Route{To: to, Via: a.Addr()})
					break
				}
			}
		}
	}
	return routes
}

// behind lists the prefixes that a router forwards to untranslated: all IPv6,
// and IPv4 if neither it nor a router further in translates.
func behind(u underlay.Underlay, r underlay.Router, passed []string) (prefixes []netip.Prefix) {
	if slices.Contains(passed, r.Name) {
		return nil
	}
	passed = append(passed, r.Name)
	s, _ := segment(u, r.Inside.Segment)
	reach := []netip.Prefix{s.IPv4, s.IPv6}
	for _, further := range u.Routers {
		if further.Outside.Segment == s.Name {
			reach = append(reach, behind(u, further, passed)...)
		}
	}
	for _, p := range reach {
		if p.IsValid() && (p.Addr().Is6() || r.NAT == string(scenario.NATNone)) {
			prefixes = append(prefixes, p.Masked())
		}
	}
	return prefixes
}

func segment(u underlay.Underlay, name string) (underlay.Segment, bool) {
	i := slices.IndexFunc(u.Segments, func(s underlay.Segment) bool { return s.Name == name })
	if i < 0 {
		return underlay.Segment{}, false
	}
	return u.Segments[i], true
}

func public(s underlay.Segment) bool { return s.Kind == string(scenario.Public) }
