package network

import (
	"net/netip"

	"mesh/lab/underlay"
)

// Keeper is whoever gives the machines of a segment their addresses: its
// gateway, or the world itself where nothing leads out.
type Keeper struct {
	Namespace          string
	Link               string
	Addr4              netip.Addr // its own; zero where the segment has no IPv4
	Gateway4, Gateway6 bool       // it is the way out by that family too
}

// KeeperOf finds a segment's keeper.
func KeeperOf(u underlay.Underlay, s underlay.Segment) Keeper {
	k := Keeper{Namespace: u.Namespace, Link: s.Bridge, Gateway4: s.Gateway4.IsValid(), Gateway6: s.Gateway6.IsValid()}
	if public(s) {
		k.Addr4 = s.Gateway4
		return k
	}
	for _, r := range u.Routers {
		if r.Inside.Segment == s.Name {
			k.Namespace, k.Link = r.Namespace, r.Inside.Link
			for _, a := range r.Inside.Addrs {
				if a.Addr().Is4() {
					k.Addr4 = a.Addr()
				}
			}
			return k
		}
	}
	k.Addr4 = free(u, s)
	return k
}

// free is the first IPv4 address of a segment that no machine has, or will have
// if it roams there; zero where there is none.
func free(u underlay.Underlay, s underlay.Segment) netip.Addr {
	if !s.IPv4.IsValid() {
		return netip.Addr{}
	}
	taken := map[netip.Addr]bool{}
	for _, m := range u.Machines {
		for _, nic := range m.NICs {
			stand, _ := nic.In(s.Name)
			taken[stand.IPv4.Addr()] = true
		}
	}
	for a := s.IPv4.Masked().Addr().Next(); s.IPv4.Contains(a.Next()); a = a.Next() {
		if !taken[a] {
			return a
		}
	}
	return netip.Addr{}
}
