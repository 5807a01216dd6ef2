package enrolment

import (
	"net/netip"

	"mesh/host/inventory"
)

// NextAddress is the lowest address of prefix that is not in held, which is
// sorted. Not ok means that the range is full. The first address of a range
// (the network's own in IPv4, the subnet-router anycast address of RFC 4291
// §2.6.1 in IPv6) and the last one of an IPv4 range (broadcast) are never given.
func NextAddress(prefix netip.Prefix, held []netip.Addr) (addr netip.Addr, ok bool) {
	next := prefix.Masked().Addr().Next()
	for _, h := range held {
		if next.Less(h) {
			break
		}
		if h == next {
			next = next.Next()
		}
	}
	if !next.IsValid() || !prefix.Contains(next) {
		return netip.Addr{}, false
	}
	if after := next.Next(); next.Is4() && (!after.IsValid() || !prefix.Contains(after)) {
		return netip.Addr{}, false
	}
	return next, true
}

// overlap is a network of a machine that a range of the mesh would hide.
type overlap struct {
	Interface string
	Network   netip.Prefix // the machine's
	Range     netip.Prefix // the mesh's
}

// findOverlap looks for the first network of a machine that shares addresses
// with a range. The machine's own overlay addresses do not count.
func findOverlap(ranges []netip.Prefix, interfaces []inventory.Interface, own []netip.Addr) (overlap, bool) {
	isOwn := map[netip.Addr]bool{}
	for _, a := range own {
		isOwn[a] = true
	}
	for _, i := range interfaces {
		for _, network := range i.Addresses {
			if isOwn[network.Addr()] {
				continue
			}
			for _, r := range ranges {
				if r.Overlaps(network.Masked()) {
					return overlap{i.Name, network.Masked(), r}, true
				}
			}
		}
	}
	return overlap{}, false
}
