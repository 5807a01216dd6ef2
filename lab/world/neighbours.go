package world

import (
	"net/netip"
	"slices"
	"time"

	"mesh/lab/scenario"
	"mesh/lab/underlay"
	"mesh/lab/world/advertisement"
	"mesh/lab/world/dhcp"
)

const (
	domain    = "world.test"
	leaseTime = time.Hour
)

// neighbour is the machine that the others of a segment get their addresses
// from: where its link is, and what it says. A nil part is not served.
type neighbour struct {
	namespace string
	link      string
	lease     *dhcp.Config
	advert    *advertisement.Config
}

// neighbours finds who serves addresses on each segment: its gateway. A segment
// without a gateway has no such server, as a bare switch has none.
func neighbours(u underlay.Underlay) []neighbour {
	var all []neighbour
	for _, s := range u.Segments {
		if n, ok := gateway(u, s, s.Gateway4); ok && s.IPv4.IsValid() {
			n.lease = leases(u, s)
			all = append(all, n)
		}
		if n, ok := gateway(u, s, s.Gateway6); ok && s.IPv6.IsValid() {
			n.advert = &advertisement.Config{
				Segment: s.Name, Prefix: s.IPv6, Gateway: true, DNS: resolvers(u, netip.Addr.Is6),
			}
			all = append(all, n)
		}
	}
	return all
}

// gateway finds the link that has an address on a segment.
func gateway(u underlay.Underlay, s underlay.Segment, at netip.Addr) (neighbour, bool) {
	if !at.IsValid() {
		return neighbour{}, false
	}
	if s.Kind == string(scenario.Public) {
		return neighbour{namespace: u.Namespace, link: s.Bridge}, true
	}
	for _, r := range u.Routers {
		has := func(p netip.Prefix) bool { return p.Addr() == at }
		if r.Inside.Segment == s.Name && slices.ContainsFunc(r.Inside.Addrs, has) {
			return neighbour{namespace: r.Namespace, link: r.Inside.Link}, true
		}
	}
	return neighbour{}, false
}

func leases(u underlay.Underlay, s underlay.Segment) *dhcp.Config {
	c := &dhcp.Config{
		Segment: s.Name, Server: s.Gateway4, Prefix: s.IPv4, Router: s.Gateway4,
		DNS: resolvers(u, netip.Addr.Is4), Domain: domain, Lease: leaseTime,
		Leases: map[string]netip.Addr{},
	}
	for _, m := range u.Machines {
		for _, nic := range m.NICs {
			if nic.Segment == s.Name && nic.IPv4.IsValid() {
				c.Leases[nic.MAC] = nic.IPv4.Addr()
			}
		}
	}
	return c
}

// resolvers are the DNS servers of one family.
func resolvers(u underlay.Underlay, family func(netip.Addr) bool) (addrs []netip.Addr) {
	for _, a := range u.Services.DNS {
		if family(a) {
			addrs = append(addrs, a)
		}
	}
	return addrs
}
