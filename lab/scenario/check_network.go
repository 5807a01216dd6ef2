package scenario

import "net/netip"

// unusable are the ranges no machine can have an address of
// (https://www.iana.org/assignments/iana-ipv4-special-registry and its IPv6 twin).
var unusable = []struct {
	netip.Prefix
	why string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "means this network"},
	{netip.MustParsePrefix("127.0.0.0/8"), "is every machine's loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "is link-local"},
	{netip.MustParsePrefix("224.0.0.0/3"), "is multicast and reserved"},
	{netip.MustParsePrefix("::/16"), "is reserved: loopback, unspecified and mapped IPv4"},
	{netip.MustParsePrefix("fe80::/10"), "is link-local"},
	{netip.MustParsePrefix("ff00::/8"), "is multicast"},
}

// shared is the address space of carriers: RFC 6598.
var shared = netip.MustParsePrefix("100.64.0.0/10")

func (d *decoder) segments(doc *document, s *Scenario) {
	public, taken := len(doc.Segments.Entries) == 0, []claim(nil)
	for _, e := range doc.Segments.Entries {
		segment := Segment{Name: e.Name.Value, Kind: SegmentKind(e.Value.Kind.Value)}
		where := "segment " + quote(segment.Name)
		segment.IPv4 = d.prefix(where+": ipv4", e.Value.IPv4, netip.Addr.Is4)
		segment.IPv6 = d.prefix(where+": ipv6", e.Value.IPv6, netip.Addr.Is6)
		if p := segment.IPv4; p.IsValid() && (p.Bits() < 8 || p.Bits() > 29) {
			d.add(e.Value.IPv4.At, "%s: ipv4: /%d is out of range; give a range from /8 to /29", where, p.Bits())
		}
		if p := segment.IPv6; p.IsValid() && p.Bits() != 64 {
			d.add(e.Value.IPv6.At, "%s: ipv6: it is a /%d, and machines make their own addresses in a /64 only; write %s", where, p.Bits(), as64(p))
		}
		if e.Value.At != (Position{}) && !e.Value.IPv4.written() && !e.Value.IPv6.written() {
			d.add(e.Name.At, "%s: it has no addresses; give it ipv4, ipv6 or both", where)
		}
		taken = d.claim(taken, claim{segment.Name, segment.IPv4, e.Value.IPv4.At})
		taken = d.claim(taken, claim{segment.Name, segment.IPv6, e.Value.IPv6.At})
		if p := segment.IPv4; segment.Kind == Carrier && p.IsValid() && (p.Bits() < shared.Bits() || !shared.Contains(p.Addr())) {
			d.add(e.Value.IPv4.At, "%s: ipv4: %s is not part of %s, which carriers number their customers from; take a range of it", where, p, shared)
		}
		public = public || segment.Kind == Public || segment.Kind == "" // not known for what is wrong with it
		s.Segments = append(s.Segments, segment)
	}
	if !public {
		d.add(doc.Segments.At, "segments: none is public; declare one with `kind: public`, the world's services stand on it")
	}
}

// claim is a range that a segment takes.
type claim struct {
	segment string
	netip.Prefix
	at Position
}

// claim adds c to taken, or reports which range it overlaps.
func (d *decoder) claim(taken []claim, c claim) []claim {
	if !c.IsValid() {
		return taken
	}
	for _, other := range taken {
		if c.Overlaps(other.Prefix) {
			d.add(c.at, "segment %q: %s overlaps %s of segment %q; give each segment a range of its own", c.segment, c.Prefix, other.Prefix, other.segment)
			return taken
		}
	}
	return append(taken, c)
}

// prefix reads a range of one family; the zero Prefix where there is none.
func (d *decoder) prefix(where string, written text, family func(netip.Addr) bool) netip.Prefix {
	if !written.usable() {
		return netip.Prefix{}
	}
	p, err := netip.ParsePrefix(written.Value)
	switch {
	case err != nil:
		d.add(written.At, "%s: %q is not a range of addresses; write one like 192.168.1.0/24 or 2001:db8:114::/64", where, written.Value)
		return netip.Prefix{}
	case !family(p.Addr()) || p.Addr().Is4In6():
		d.add(written.At, "%s: %s is of another address family; move it to the other key", where, written.Value)
		return netip.Prefix{}
	case p != p.Masked():
		d.add(written.At, "%s: %s has host bits set; write %s", where, written.Value, p.Masked())
	}
	for _, bad := range unusable {
		if p.Overlaps(bad.Prefix) {
			d.add(written.At, "%s: %s cannot be used: %s %s; choose another range", where, written.Value, bad.Prefix, bad.why)
			break
		}
	}
	return p.Masked()
}

// as64 is the /64 at p's beginning.
func as64(p netip.Prefix) netip.Prefix { return netip.PrefixFrom(p.Addr(), 64).Masked() }

// segment finds a declared segment; the zero Segment where there is none.
func (s *Scenario) segment(name string) Segment {
	for _, segment := range s.Segments {
		if segment.Name == name {
			return segment
		}
	}
	return Segment{}
}

// room checks that everything that stands in a segment has an address there.
func (d *decoder) room(doc *document, s *Scenario) {
	for i, segment := range s.Segments {
		p, bits := segment.IPv4, segment.IPv4.Bits()
		if !p.IsValid() || bits < 8 || bits > 29 {
			continue
		}
		fits := func(bits int) bool {
			segment.IPv4 = netip.PrefixFrom(p.Addr(), bits)
			return s.highest(segment) <= 1<<(32-bits)-2
		}
		if fits(bits) {
			continue
		}
		for bits > 8 && !fits(bits) {
			bits--
		}
		d.add(doc.Segments.Entries[i].Value.IPv4.At,
			"segment %q: ipv4: %s is too small for its gateways, services and %s; use a /%d or wider",
			segment.Name, p, s.takersOf(segment.Name), bits)
	}
}
