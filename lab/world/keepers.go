package world

import (
	"net/netip"
	"time"

	"mesh/lab/underlay"
	"mesh/lab/world/advertisement"
	"mesh/lab/world/dhcp"
	"mesh/lab/world/network"
)

const leaseTime = time.Hour

// keeper is the server of addresses of one segment, and what it says.
type keeper struct {
	network.Keeper
	lease  *dhcp.Config          // nil: the segment has no IPv4
	advert *advertisement.Config // nil: it has no IPv6
}

func keepers(u underlay.Underlay) []keeper {
	var all []keeper
	for _, s := range u.Segments {
		k := keeper{Keeper: network.KeeperOf(u, s)}
		if s.IPv4.IsValid() && k.Addr4.IsValid() {
			k.lease = &dhcp.Config{
				Segment: s.Name, Server: k.Addr4, Prefix: s.IPv4,
				Domain: underlay.Domain, Lease: leaseTime, Leases: leases(u, s),
			}
		}
		if s.IPv6.IsValid() {
			k.advert = &advertisement.Config{Segment: s.Name, Prefix: s.IPv6, Gateway: k.Gateway6}
		}
		if k.Gateway4 && k.lease != nil { // without a way out, DNS is out of reach too
			k.lease.Router, k.lease.DNS = k.Addr4, resolvers(u, netip.Addr.Is4)
		}
		if k.Gateway6 && k.advert != nil {
			k.advert.DNS = resolvers(u, netip.Addr.Is6)
		}
		all = append(all, k)
	}
	return all
}

// leases are the declared addresses on a segment by MAC, those of machines that
// may roam there among them: whoever comes finds its address.
func leases(u underlay.Underlay, s underlay.Segment) map[string]netip.Addr {
	all := map[string]netip.Addr{}
	for _, m := range u.Machines {
		for _, nic := range m.NICs {
			if stand, ok := nic.In(s.Name); ok && stand.IPv4.IsValid() {
				all[nic.MAC] = stand.IPv4.Addr()
			}
		}
	}
	return all
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
