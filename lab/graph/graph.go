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
	Public   bool           // the outside, where the world stands
	Ranges   []netip.Prefix // IPv4, then IPv6
	Gateway  []netip.Addr   // the world's own on a public segment; none on a site
	Services []netip.Addr   // where the world's services are, if they are in this one
}

// Router joins two segments.
type Router struct {
	Name    string
	NAT     scenario.NAT
	Outside Link
	Inside  Link
}

// Machine stands in one segment or more.
type Machine struct {
	Name        string
	Image       string
	MemoryBytes int64
	CPUs        int
	Links       []Link // one a NIC, in order
}

// Link is one end of a router, or one NIC of a machine.
type Link struct {
	Segment int          // index in Graph.Segments
	Addrs   []netip.Addr // IPv4, then IPv6
}

// New makes the graph of u, which must be what underlay.Plan gives. machines say
// what u does not: of each machine of u, by name, image, memory and processors.
func New(name, about string, u underlay.Underlay, machines []scenario.Machine) Graph {
	g := Graph{Name: name, About: about}
	number := map[string]int{}
	for i, s := range u.Segments {
		number[s.Name] = i
		g.Segments = append(g.Segments, segment(s, u.Services))
	}
	for _, r := range u.Routers {
		g.Routers = append(g.Routers, Router{
			Name: r.Name, NAT: scenario.NAT(r.NAT),
			Outside: Link{number[r.Outside.Segment], addrs(r.Outside.Addrs...)},
			Inside:  Link{number[r.Inside.Segment], addrs(r.Inside.Addrs...)},
		})
	}
	declared := map[string]scenario.Machine{}
	for _, m := range machines {
		declared[m.Name] = m
	}
	for _, m := range u.Machines {
		is := declared[m.Name]
		machine := Machine{Name: m.Name, Image: is.Image, MemoryBytes: is.MemoryBytes, CPUs: is.CPUs}
		for _, nic := range m.NICs {
			machine.Links = append(machine.Links, Link{number[nic.Segment], addrs(nic.IPv4, nic.IPv6)})
		}
		g.Machines = append(g.Machines, machine)
	}
	return g
}

func segment(s underlay.Segment, services underlay.Services) Segment {
	segment := Segment{Name: s.Name, Public: s.Kind == string(scenario.Public)}
	for _, r := range []netip.Prefix{s.IPv4, s.IPv6} {
		if r.IsValid() {
			segment.Ranges = append(segment.Ranges, r)
		}
	}
	if !segment.Public {
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
	if s.Public {
		return "the outside"
	}
	return "site"
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
	return []string{plain(m.Image), memory + ", " + cpus}
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
