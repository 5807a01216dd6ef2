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
	routers := names(t, "routers", 0, len(s.Segments)-1)
	for i, inside := range s.Segments {
		if inside.Kind != scenario.Site || len(routers) == len(s.Routers) {
			continue
		}
		outside := rapid.SampledFrom(s.Segments[:i]).Draw(t, "outside")
		if inside.IPv4.IsValid() && outside.IPv4.IsValid() || inside.IPv6.IsValid() && outside.IPv6.IsValid() {
			s.Routers = append(s.Routers, scenario.Router{
				Name: routers[len(s.Routers)], Inside: inside.Name, Outside: outside.Name,
				NAT: rapid.SampledFrom([]scenario.NAT{scenario.NATEasy, scenario.NATNone}).Draw(t, "nat"),
			})
		}
	}
	for _, n := range names(t, "machines", 1, 8) {
		s.Machines = append(s.Machines, machine(t, n, s.Segments))
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
		s.Kind = rapid.SampledFrom([]scenario.SegmentKind{scenario.Public, scenario.Site}).Draw(t, "kind")
	}
	families := rapid.SampledFrom([]string{"4", "6", "46"}).Draw(t, "families")
	if strings.Contains(families, "4") {
		bits := rapid.IntRange(16, 29).Draw(t, "bits")
		s.IPv4 = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), bits)
	}
	if strings.Contains(families, "6") {
		s.IPv6 = netip.MustParsePrefix(fmt.Sprintf("2001:db8:%x::/64", i+1))
	}
	return s
}

// widen gives an IPv4 range room for all that stands in it.
func widen(s *scenario.Scenario, segment *scenario.Segment) {
	for segment.IPv4.IsValid() {
		seats := s.Seats(*segment)
		last := max(seats.Machines-1, seats.Routers-1)
		for _, m := range s.Machines {
			if slices.Contains(m.Segments, segment.Name) {
				last = max(last+1, seats.Machines)
			}
		}
		if last <= 1<<(32-segment.IPv4.Bits())-2 {
			return
		}
		segment.IPv4 = netip.PrefixFrom(segment.IPv4.Addr(), segment.IPv4.Bits()-1)
	}
}

func machine(t *rapid.T, name string, segments []scenario.Segment) scenario.Machine {
	m := scenario.Machine{
		Name:        name,
		Image:       rapid.SampledFrom([]string{"debian-13", "debian-12"}).Draw(t, "image"),
		MemoryBytes: rapid.Int64Range(256, 4096).Draw(t, "memory") << 20,
		CPUs:        rapid.IntRange(1, 64).Draw(t, "cpus"),
	}
	for _, s := range rapid.Permutation(segments).Draw(t, "stands in")[:rapid.IntRange(1, len(segments)).Draw(t, "cards")] {
		m.Segments = append(m.Segments, s.Name)
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
		fmt.Fprintf(&b, "  %s: {inside: %q, outside: %q, nat: %s}\n", r.Name, r.Inside, r.Outside, r.NAT)
	}
	b.WriteString("machines:\n")
	for _, m := range s.Machines {
		fmt.Fprintf(&b, "  %s:\n", m.Name)
		entry(4, "image", text(m.Image))
		entry(4, "memory", fmt.Sprintf("%dMiB", m.MemoryBytes>>20))
		entry(4, "cpus", m.CPUs)
		b.WriteString("    segments:\n")
		for _, segment := range m.Segments {
			fmt.Fprintf(&b, "      - %q\n", segment)
		}
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
