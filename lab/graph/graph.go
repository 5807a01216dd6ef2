// Package graph draws a scenario: its segments, routers and machines, and the
// addresses that each of them has. One small model is written as Mermaid, as DOT
// and as SVG.
//
// It is pure, and the same values give the same text. What is written in a
// document can stand in a picture as text only: nodes are numbered, never named
// after it, and every label is escaped. Only cmd/lab imports it.
package graph

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode"

	"mesh/lab/scenario"
	"mesh/lab/underlay"
)

// Graph is what there is to draw. Slices are in the order of declaration.
type Graph struct {
	Name     string
	About    string // one line for people; may be empty
	Segments []Segment
	Routers  []Router
	Machines []Machine
}

// Segment is one network.
type Segment struct {
	Name     string
	Kind     scenario.SegmentKind
	Ranges   []netip.Prefix // IPv4, then IPv6
	Gateway  []netip.Addr   // the world's own on a public segment; none on a site
	Services []netip.Addr   // where the world's services are, if they are in this one
	Faults   []string       // what strikes it, a line each; see Struck
}

// Router joins two segments.
type Router struct {
	Name    string
	NAT     scenario.NAT
	Notes   []string // what else it does, a few words each
	Outside Link
	Roams   []Link // where else its outside can stand
	Inside  Link
	Faults  []string // as Segment.Faults
}

// Machine stands in one segment or more.
type Machine struct {
	Name        string
	Image       string
	MemoryBytes int64
	CPUs        int
	Notes       []string // as what it is seen, where that is an address of its own
	Faults      []string // as Segment.Faults
	Links       []Link   // one a NIC, in order; of a NIC that roams one for each place
}

// Link is one end of a router, or one NIC of a machine.
type Link struct {
	Segment int          // index in Graph.Segments
	Addrs   []netip.Addr // IPv4, then IPv6
	Away    bool         // it can be moved there, and stands elsewhere
}

// New makes the graph of u, which must be what underlay.Plan gives. machines say
// what u does not: of each machine of u, by name, image, memory and processors.
func New(name, about string, u underlay.Underlay, machines []scenario.Machine) Graph {
	g := Graph{Name: name, About: about}
	left := left(u)
	number := map[string]int{}
	for i, s := range u.Segments {
		number[s.Name] = i
		g.Segments = append(g.Segments, segment(s, u.Services))
	}
	for _, r := range u.Routers {
		router := Router{
			Name: r.Name, NAT: scenario.NAT(r.NAT), Notes: append(notes(r), left[r.Name]...),
			Outside: Link{number[r.Outside.Segment], addrs(r.Outside.Addrs...), false},
			Inside:  Link{number[r.Inside.Segment], addrs(r.Inside.Addrs...), false},
		}
		for _, stand := range r.Stands {
			if stand.Segment != r.Outside.Segment {
				router.Roams = append(router.Roams, Link{number[stand.Segment], addrs(stand.Addrs...), true})
			}
		}
		g.Routers = append(g.Routers, router)
	}
	declared := map[string]scenario.Machine{}
	for _, m := range machines {
		declared[m.Name] = m
	}
	for _, m := range u.Machines {
		is := declared[m.Name]
		machine := Machine{Name: m.Name, Image: is.Image, MemoryBytes: is.MemoryBytes, CPUs: is.CPUs, Notes: left[m.Name]}
		for _, nic := range m.NICs {
			machine.Links = append(machine.Links, Link{number[nic.Segment], addrs(nic.IPv4, nic.IPv6), false})
			for _, stand := range nic.Stands {
				if stand.Segment != nic.Segment {
					machine.Links = append(machine.Links, Link{number[stand.Segment], addrs(stand.IPv4, stand.IPv6), true})
				}
			}
		}
		for _, r := range u.Routers {
			for _, t := range r.Translated {
				if t.Machine == m.Name {
					machine.Notes = append(machine.Notes, "seen as "+t.Outside.Addr().String())
				}
			}
		}
		g.Machines = append(g.Machines, machine)
	}
	return g
}

// left says of everybody who is not where it began where that was.
func left(u underlay.Underlay) map[string][]string {
	all := map[string][]string{}
	for _, r := range u.Roamers() {
		if r.At != r.Segments[0] {
			all[r.Name] = append(all[r.Name], "away from "+r.Segments[0])
		}
	}
	return all
}

func segment(s underlay.Segment, services underlay.Services) Segment {
	segment := Segment{Name: s.Name, Kind: scenario.SegmentKind(s.Kind)}
	for _, r := range []netip.Prefix{s.IPv4, s.IPv6} {
		if r.IsValid() {
			segment.Ranges = append(segment.Ranges, r)
		}
	}
	if segment.Kind != scenario.Public {
		return segment
	}
	for _, a := range []netip.Addr{s.Gateway4, s.Gateway6} {
		if a.IsValid() {
			segment.Gateway = append(segment.Gateway, a)
		}
	}
	if s.Name == services.Segment {
		segment.Services = addrs(services.Addrs...)
	}
	return segment
}

// notes say what a router does beside translating.
func notes(r underlay.Router) (all []string) {
	if f := scenario.Firewall(r.Firewall); f != scenario.FirewallHome {
		all = append(all, "firewall "+plain(string(f)))
	}
	if r.MTU > 0 {
		note := fmt.Sprintf("MTU %d", r.MTU)
		if r.BlackHole {
			note += ", longer is lost"
		}
		all = append(all, note)
	}
	for _, f := range r.Forwards {
		all = append(all, fmt.Sprintf("%s %d to %s:%d", f.Protocol, f.Port, plain(f.Machine), f.To.Port()))
	}
	return all
}

// addrs are the addresses of those prefixes that are there.
func addrs(prefixes ...netip.Prefix) []netip.Addr {
	var all []netip.Addr
	for _, p := range prefixes {
		if p.IsValid() {
			all = append(all, p.Addr())
		}
	}
	return all
}

// title is the picture's heading.
func (g Graph) title() string {
	if g.About == "" {
		return plain(g.Name)
	}
	return plain(g.Name + ": " + g.About)
}

// kind says what a segment stands for.
func (s Segment) kind() string {
	switch s.Kind {
	case scenario.Public:
		return "the outside"
	case scenario.Carrier:
		return "a carrier's network"
	case scenario.Isolated:
		return "isolated"
	}
	return "site"
}

// paint tells segments' kinds apart.
func (s Segment) paint() ink {
	switch s.Kind {
	case scenario.Public:
		return publicInk
	case scenario.Carrier:
		return carrierInk
	case scenario.Isolated:
		return isolatedInk
	}
	return siteInk
}

// lines say what is to be known of a segment beside its name and kind.
func (s Segment) lines() []string {
	all := texts(s.Ranges)
	if s.Gateway != nil {
		all = append(all, "gateway "+strings.Join(texts(s.Gateway), ", "))
	}
	if s.Services != nil {
		all = append(all, "services "+strings.Join(texts(s.Services), ", "))
	}
	return all
}

// about says what a router does.
func (r Router) about() string {
	if r.NAT == scenario.NATNone {
		return "router, no NAT"
	}
	return "router, NAT " + plain(string(r.NAT))
}

// lines say what a router does.
func (r Router) lines() []string { return append([]string{r.about()}, r.Notes...) }

// links are all of r's, the one outside first and the one inside last.
func (r Router) links() []Link { return append(append([]Link{r.Outside}, r.Roams...), r.Inside) }

// lines say what a machine is.
func (m Machine) lines() []string {
	cpus := "1 CPU"
	if m.CPUs != 1 {
		cpus = fmt.Sprintf("%d CPUs", m.CPUs)
	}
	memory := fmt.Sprintf("%d MiB", m.MemoryBytes>>20)
	if m.MemoryBytes%(1<<30) == 0 {
		memory = fmt.Sprintf("%d GiB", m.MemoryBytes>>30)
	}
	return append([]string{plain(m.Image), memory + ", " + cpus}, m.Notes...)
}

// texts writes each of all.
func texts[T fmt.Stringer](all []T) []string {
	written := make([]string, len(all))
	for i, one := range all {
		written[i] = one.String()
	}
	return written
}

// plain is s on one line of valid UTF-8 (strings.Map sees to that), without what
// is not seen but can move or hide what is beside it.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, s)
}
