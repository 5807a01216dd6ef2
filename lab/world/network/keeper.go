package network

import (
	"net/netip"
	"slices"

	"mesh/lab/underlay"
)

// Keeper is whoever gives the machines of a segment their addresses: its
// gateway, or the world itself where nothing leads out.
type Keeper struct {
	Namespace string
	Link      string
	Addr4     netip.Addr // its own; zero where the segment has no IPv4
	Gateway   bool       // it is the way out too
}

// KeeperOf finds a segment's keeper.
func KeeperOf(u underlay.Underlay, s underlay.Segment) Keeper {
	if public(s) {
		return Keeper{Namespace: u.Namespace, Link: s.Bridge, Addr4: s.Gateway4, Gateway: true}
	}
	for _, r := range u.Routers {
		if r.Inside.Segment == s.Name && (has(r.Inside, s.Gateway4) || has(r.Inside, s.Gateway6)) {
			return Keeper{Namespace: r.Namespace, Link: r.Inside.Link, Addr4: s.Gateway4, Gateway: true}
		}
	}
	return Keeper{Namespace: u.Namespace, Link: s.Bridge, Addr4: free(u, s)}
}

// has tells whether a port has an address.
func has(p underlay.RouterPort, a netip.Addr) bool {
	return slices.ContainsFunc(p.Addrs, func(own netip.Prefix) bool { return own.Addr() == a })
}

// free is the first IPv4 address of a segment that no machine has; zero where
// there is none.
func free(u underlay.Underlay, s underlay.Segment) netip.Addr {
	if !s.IPv4.IsValid() {
		return netip.Addr{}
	}
	taken := map[netip.Addr]bool{}
	for _, m := range u.Machines {
		for _, nic := range m.NICs {
			taken[nic.IPv4.Addr()] = true
		}
	}
	for a := s.IPv4.Masked().Addr().Next(); s.IPv4.Contains(a.Next()); a = a.Next() {
		if !taken[a] {
			return a
		}
	}
	return netip.Addr{}
}
