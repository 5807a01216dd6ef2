// Package scenariotest draws scenarios for property tests and writes them as
// documents. Only tests import it.
package scenariotest

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"pgregory.net/rapid"

	"mesh/lab/scenario"
)

// name draws names that differ anywhere, and names that differ only at the end.
var name = rapid.OneOf(
	rapid.StringMatching(`[a-z]([a-z0-9-]{0,30}[a-z0-9])?`),
	rapid.StringMatching(`a-name-of-more-than-15-bytes-[a-c]{1,3}`),
).Filter(func(s string) bool {
	return !slices.Contains([]string{"y", "n", "no", "on", "yes", "off", "true", "false", "null"}, s) &&
		!slices.Contains([]string{"acme", "packages", "dns", "localhost"}, s)
})

// line draws text of one line; what it is made of could trip a careless writer.
var line = rapid.StringMatching(`[a-zA-Z#:"'{}é -]{0,20}[a-z]`)

// Draw draws a scenario that Parse accepts, without the positions that only a
// document gives. Its File is "drawn.yaml".
func Draw(t *rapid.T) *scenario.Scenario {
	s := &scenario.Scenario{File: "drawn.yaml", Name: name.Draw(t, "scenario")}
	if rapid.Bool().Draw(t, "about it") {
		s.About = line.Draw(t, "about")
	}
	for i, n := range names(t, "segments", 1, 6) {
		s.Segments = append(s.Segments, segment(t, i, n))
	}
	for i, n := range names(t, "routers", 0, len(s.Segments)-1) {
		if inside := s.Segments[i+1]; leads(inside) {
			if r, ok := router(t, n, inside, s.Segments[:i+1]); ok {
				s.Routers = append(s.Routers, r)
			}
		}
	}
	for i := range s.Segments { // a carrier without a router is none
		if c := &s.Segments[i]; c.Kind == scenario.Carrier && !translated(s, c.Name) {
			c.Kind = scenario.Site
		}
	}
	for _, n := range names(t, "machines", 1, 8) {
		for i := range s.Routers {
			if s.Routers[i].Name == n { // who roams can be told apart by name
				s.Routers[i].Roams = nil
			}
		}
		s.Machines = append(s.Machines, machine(t, n, s))
	}
	for i := range s.Routers {
		s.Routers[i].Forwards = forwards(t, s.Routers[i], s.Machines, s.Segments)
	}
	for i := range s.Segments {
		widen(s, &s.Segments[i])
	}
	var saved []string
	for range rapid.IntRange(0, 6).Draw(t, "steps") {
		step := step(t, s.Machines, saved)
		if step.Save != "" {
			saved = append(saved, step.Save)
		}
		s.Place = append(s.Place, step)
	}
	return s
}

func names(t *rapid.T, label string, least, most int) []string {
	return rapid.SliceOfNDistinct(name, least, most, rapid.ID[string]).Draw(t, label)
}

// segment draws the i-th; the first is public, so that every site can reach it.
func segment(t *rapid.T, i int, name string) scenario.Segment {
	s := scenario.Segment{Name: name, Kind: scenario.Public}
	if i > 0 {
		s.Kind = rapid.SampledFrom([]scenario.SegmentKind{
			scenario.Public, scenario.Site, scenario.Site, scenario.Carrier, scenario.Isolated,
		}).Draw(t, "kind")
	}
	families := rapid.SampledFrom([]string{"4", "6", "46"}).Draw(t, "families")
	if strings.Contains(families, "4") {
		bits := rapid.IntRange(16, 29).Draw(t, "bits")
		s.IPv4 = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), bits)
		if s.Kind == scenario.Carrier {
			s.IPv4 = netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(64 + i), 0, 0}), bits)
		}
	}
	if strings.Contains(families, "6") {
		s.IPv6 = netip.MustParsePrefix(fmt.Sprintf("2001:db8:%x::/64", i+1))
	}
	return s
}

// router draws the way out of a site to segments that were drawn before it, so
// that none leads back; false where no family is in common.
func router(t *rapid.T, name string, inside scenario.Segment, outer []scenario.Segment) (scenario.Router, bool) {
	var to []string
	for _, s := range outer {
		four, six := inside.IPv4.IsValid() && s.IPv4.IsValid(), inside.IPv6.IsValid() && s.IPv6.IsValid()
		if s.Kind != scenario.Isolated && (four || six) {
			to = append(to, s.Name)
		}
	}
	if len(to) == 0 {
		return scenario.Router{}, false
	}
	to = rapid.Permutation(to).Draw(t, "outsides")
	nats := []scenario.NAT{scenario.NATEasy, scenario.NATHard}
	if inside.Kind == scenario.Site {
		nats = append(nats, scenario.NATNone)
	}
	if inside.Kind == scenario.Site && inside.IPv4.IsValid() {
		nats = append(nats, scenario.NATOne)
	}
	r := scenario.Router{
		Name: name, Inside: inside.Name, Outside: to[0], NAT: rapid.SampledFrom(nats).Draw(t, "nat"),
		Firewall: rapid.SampledFrom([]scenario.Firewall{
			scenario.FirewallHome, scenario.FirewallClosed, scenario.FirewallOpen,
		}).Draw(t, "firewall"),
	}
	if r.NAT != scenario.NATOne {
		r.Roams = to[1:rapid.IntRange(1, len(to)).Draw(t, "roams")]
	}
	if rapid.Bool().Draw(t, "narrow") {
		r.MTU, r.BlackHole = rapid.IntRange(1280, 1500).Draw(t, "mtu"), rapid.Bool().Draw(t, "black hole")
	}
	return r, true
}

func forwards(t *rapid.T, r scenario.Router, machines []scenario.Machine, segments []scenario.Segment) []scenario.Forward {
	var to []string
	for _, m := range machines {
		if slices.Contains(m.Stands(), r.Inside) {
			to = append(to, m.Name)
		}
	}
	inside := segments[slices.IndexFunc(segments, func(s scenario.Segment) bool { return s.Name == r.Inside })]
	if len(to) == 0 || !inside.IPv4.IsValid() || r.NAT != scenario.NATEasy && r.NAT != scenario.NATHard {
		return nil
	}
	port := rapid.IntRange(1, 65535)
	draw := rapid.Custom(func(t *rapid.T) scenario.Forward {
		return scenario.Forward{
			Protocol: rapid.SampledFrom([]string{"tcp", "udp"}).Draw(t, "protocol"), Port: port.Draw(t, "port"),
			To: rapid.SampledFrom(to).Draw(t, "to"), At: port.Draw(t, "at"),
		}
	})
	return rapid.SliceOfNDistinct(draw, 0, 3, func(f scenario.Forward) string {
		return fmt.Sprint(f.Protocol, f.Port)
	}).Draw(t, "forwards")
}

// leads tells whether a router may lead out of a segment.
func leads(s scenario.Segment) bool { return s.Kind == scenario.Site || s.Kind == scenario.Carrier }

// translated tells whether a segment has a router.
func translated(s *scenario.Scenario, segment string) bool {
	return slices.ContainsFunc(s.Routers, func(r scenario.Router) bool { return r.Inside == segment })
}

// widen gives an IPv4 range room for all that takes an address in it.
func widen(s *scenario.Scenario, segment *scenario.Segment) {
	for segment.IPv4.IsValid() {
		seats := s.Seats(*segment)
		last := max(seats.Machines-1, seats.Routers-1)
		take := func(stands []string, in string) {
			if slices.Contains(stands, in) {
				last = max(last+1, seats.Machines)
			}
		}
		for _, m := range s.Machines {
			take(m.Stands(), segment.Name)
			for _, r := range s.Routers {
				if r.NAT == scenario.NATOne && r.Outside == segment.Name {
					take(m.Stands(), r.Inside)
				}
			}
		}
		if last <= 1<<(32-segment.IPv4.Bits())-2 {
			return
		}
		segment.IPv4 = netip.PrefixFrom(segment.IPv4.Addr(), segment.IPv4.Bits()-1)
	}
}

func machine(t *rapid.T, name string, s *scenario.Scenario) scenario.Machine {
	m := scenario.Machine{
		Name:        name,
		Image:       rapid.SampledFrom([]string{"debian-13", "debian-12"}).Draw(t, "image"),
		MemoryBytes: rapid.Int64Range(256, 4096).Draw(t, "memory") << 20,
		CPUs:        rapid.IntRange(1, 64).Draw(t, "cpus"),
		Display:     rapid.Bool().Draw(t, "display"),
	}
	stands := rapid.Permutation(s.Segments).Draw(t, "stands in")
	stands = stands[:rapid.IntRange(1, len(stands)).Draw(t, "segments")]
	roams := rapid.Bool().Draw(t, "roams") &&
		!slices.ContainsFunc(s.Routers, func(r scenario.Router) bool { return r.Name == name })
	for i, segment := range stands {
		if i > 0 && roams {
			m.Roams = append(m.Roams, segment.Name)
		} else {
			m.Segments = append(m.Segments, segment.Name)
		}
	}
	return m
}

func step(t *rapid.T, machines []scenario.Machine, saved []string) scenario.Step {
	s := scenario.Step{On: rapid.SampledFrom(machines).Draw(t, "on").Name}
	switch rapid.IntRange(0, 2).Draw(t, "deed") {
	case 0:
		s.Package = rapid.StringMatching(`[a-z0-9][a-z0-9+.-]{2,8}[a-z]`).Draw(t, "package")
	case 1:
		s.File = rapid.StringMatching(`([a-z]{1,4}/)?[a-z]{1,8}\.json`).Draw(t, "file")
		s.To = "/" + s.File
	case 2:
		s.Run = line.Draw(t, "run")
		if len(saved) > 0 && rapid.Bool().Draw(t, "takes input") {
			s.Input = rapid.SampledFrom(saved).Draw(t, "input")
		}
		if rapid.Bool().Draw(t, "saves") {
			s.Save = "saved-" + strconv.Itoa(len(saved))
		}
	}
	return s
}

// Document writes s as a document that Parse reads back as s. Texts are quoted,
// and every default is written out.
func Document(s *scenario.Scenario) string {
	var b strings.Builder
	entry := func(indent int, key string, value any) {
		if value != "" {
			fmt.Fprintf(&b, "%*s%s: %v\n", indent, "", key, value)
		}
	}
	text := func(value string) string {
		if value == "" {
			return ""
		}
		return strconv.Quote(value)
	}
	list := func(key string, segments []string) {
		if len(segments) > 0 {
			fmt.Fprintf(&b, "    %s:\n", key)
		}
		for _, segment := range segments {
			fmt.Fprintf(&b, "      - %q\n", segment)
		}
	}
	prefix := func(p netip.Prefix) string {
		if !p.IsValid() {
			return ""
		}
		return strconv.Quote(p.String())
	}
	entry(0, "name", text(s.Name))
	entry(0, "about", text(s.About))
	b.WriteString("segments:\n")
	for _, segment := range s.Segments {
		fmt.Fprintf(&b, "  %s:\n", segment.Name)
		entry(4, "kind", segment.Kind)
		entry(4, "ipv4", prefix(segment.IPv4))
		entry(4, "ipv6", prefix(segment.IPv6))
	}
	if len(s.Routers) > 0 {
		b.WriteString("routers:\n")
	}
	for _, r := range s.Routers {
		fmt.Fprintf(&b, "  %s:\n", r.Name)
		entry(4, "inside", text(r.Inside))
		entry(4, "outside", text(r.Outside))
		list("roams", r.Roams)
		entry(4, "nat", r.NAT)
		entry(4, "firewall", r.Firewall)
		if r.MTU > 0 {
			entry(4, "mtu", r.MTU)
			entry(4, "too-big", map[bool]string{true: "lost", false: "told"}[r.BlackHole])
		}
		if len(r.Forwards) > 0 {
			b.WriteString("    forwards:\n")
		}
		for _, f := range r.Forwards {
			fmt.Fprintf(&b, "      - {protocol: %s, port: %d, to: %q, at: %d}\n", f.Protocol, f.Port, f.To, f.At)
		}
	}
	b.WriteString("machines:\n")
	for _, m := range s.Machines {
		fmt.Fprintf(&b, "  %s:\n", m.Name)
		entry(4, "image", text(m.Image))
		entry(4, "memory", fmt.Sprintf("%dMiB", m.MemoryBytes>>20))
		entry(4, "cpus", m.CPUs)
		list("segments", m.Segments)
		list("roams", m.Roams)
		entry(4, "display", m.Display)
	}
	if len(s.Place) > 0 {
		b.WriteString("place:\n")
	}
	for _, step := range s.Place {
		fmt.Fprintf(&b, "  - on: %q\n", step.On)
		entry(4, "package", text(step.Package))
		entry(4, "file", text(step.File))
		entry(4, "to", text(step.To))
		entry(4, "run", text(step.Run))
		entry(4, "input", text(step.Input))
		entry(4, "save", text(step.Save))
	}
	return b.String()
}
