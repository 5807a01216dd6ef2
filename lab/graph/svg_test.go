package graph_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"mesh/lab/graph"
	"mesh/lab/scenario"
)

// TestNothingOverlaps: in the picture of any graph no two boxes or bars touch, every
// link ends on the edge of the segment that it belongs to, what is outside is
// above, and all of it is within the picture.
func TestNothingOverlaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := anyGraph(t)
		text := g.SVG()
		d := read(t, text)
		boxes := d.boxes
		if want := len(g.Segments) + len(g.Routers) + len(g.Machines); len(boxes) != want {
			t.Fatalf("%d boxes are drawn, want %d:\n%s", len(boxes), want, text)
		}
		for i, a := range boxes {
			if !a.within(d.picture) {
				t.Fatalf("%v is not within %v:\n%s", a, d.picture, text)
			}
			for _, b := range boxes[:i] {
				if a.meets(b) {
					t.Fatalf("%v and %v overlap:\n%s", a, b, text)
				}
			}
		}
		links := map[string]int{}
		for _, r := range g.Routers {
			for _, l := range append([]graph.Link{r.Outside}, r.Roams...) {
				if outside, inside := boxes[l.Segment], boxes[r.Inside.Segment]; outside.y >= inside.y {
					t.Fatalf("%v, outside of %v, is not above it:\n%s", outside, inside, text)
				}
				links[g.Segments[l.Segment].Name]++
			}
			links[g.Segments[r.Inside.Segment].Name]++
		}
		for _, m := range g.Machines {
			for _, l := range m.Links {
				links[g.Segments[l.Segment].Name]++
			}
		}
		for _, bar := range boxes[:len(g.Segments)] {
			met := 0
			for _, e := range d.ends {
				if e.x > bar.x && e.x < bar.x+bar.width && (e.y == bar.y || e.y == bar.y+bar.height) {
					met++
				}
			}
			if met != links[bar.name] {
				t.Fatalf("%d links end at %s, want %d:\n%s", met, bar.name, links[bar.name], text)
			}
		}
	})
}

// TestLinesAndAddresses: in the picture of any graph no link passes a router or a
// machine, and no address lies on a link, on an edge, or on another one.
func TestLinesAndAddresses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := anyGraph(t)
		text := g.SVG()
		d := read(t, text)
		for _, l := range d.lines {
			for _, b := range d.boxes[len(g.Segments):] {
				if l.meets(b) {
					t.Fatalf("the link %v passes %v:\n%s", l, b, text)
				}
			}
		}
		for i, a := range d.addresses {
			if a.x+a.width > d.picture.width {
				t.Fatalf("%v ends outside of the picture:\n%s", a, text)
			}
			for _, b := range d.boxes {
				if a.meets(b) && !a.within(b) {
					t.Fatalf("%v lies on the edge of %v:\n%s", a, b, text)
				}
			}
			for _, other := range d.addresses[:i] {
				if a.meets(other) {
					t.Fatalf("%v lies on %v:\n%s", a, other, text)
				}
			}
			for _, l := range d.lines {
				if a.meets(l) && !d.under(a) {
					t.Fatalf("%v lies on the link %v:\n%s", a, l, text)
				}
			}
		}
	})
}

var kinds = []scenario.SegmentKind{scenario.Public, scenario.Site, scenario.Carrier, scenario.Isolated}

// anyGraph has routers that never lead back, and machines anywhere.
func anyGraph(t *rapid.T) graph.Graph {
	at := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8:114:100:2f:39ff:fe26:29e1")}
	link := func(segment int) graph.Link {
		return graph.Link{Segment: segment, Addrs: at[:rapid.IntRange(1, 2).Draw(t, "addresses")]}
	}
	struck := func() []string {
		return []string{"fault: loss share=30% direction=out", "fault: rate rate=2Mbit/s"}[:rapid.IntRange(0, 2).Draw(t, "faults")]
	}
	g := graph.Graph{Name: "any"}
	for i := range rapid.IntRange(1, 8).Draw(t, "segments") {
		s := graph.Segment{Name: fmt.Sprintf("segment-%d", i), Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), Ranges: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
		if rapid.Bool().Draw(t, "long") {
			s.Gateway = at
		}
		s.Faults = struck()
		g.Segments = append(g.Segments, s)
	}
	// The order of declaration is not that from the outside to the inside.
	order := rapid.Permutation(indexes(len(g.Segments))).Draw(t, "order")
	for i := 1; i < len(order); i++ {
		if outside := rapid.IntRange(-1, i-1).Draw(t, "outside"); outside >= 0 {
			r := graph.Router{
				Name: fmt.Sprintf("router-%d", i), NAT: "easy", Outside: link(order[outside]), Inside: link(order[i]),
				Notes:  []string{"firewall closed", "MTU 1400", "tcp 443 to somebody:8443"}[:rapid.IntRange(0, 3).Draw(t, "notes")],
				Faults: struck(),
			}
			for j, roam := range order[:i] {
				if j != outside && rapid.Bool().Draw(t, "roams") {
					l := link(roam)
					l.Away = true
					r.Roams = append(r.Roams, l)
				}
			}
			g.Routers = append(g.Routers, r)
		}
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "machines") {
		m := graph.Machine{Name: fmt.Sprintf("machine-%d", i), Image: "debian-13", CPUs: 1, MemoryBytes: 1 << 30, Faults: struck()}
		in := rapid.Permutation(indexes(len(g.Segments))).Draw(t, "in")
		for _, segment := range in[:rapid.IntRange(1, len(in)).Draw(t, "nics")] {
			m.Links = append(m.Links, link(segment))
		}
		g.Machines = append(g.Machines, m)
	}
	return g
}

func indexes(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// shape is a rectangle; its name is the text in it. A point has no size, a line
// no width.
type shape struct {
	name                string
	x, y, width, height int
}

// meets tells whether two shapes have more than an edge in common.
func (a shape) meets(b shape) bool {
	return a.x < b.x+b.width && b.x < a.x+a.width && a.y < b.y+b.height && b.y < a.y+a.height
}

func (a shape) within(b shape) bool {
	return a.x >= b.x && a.x+a.width <= b.x+b.width && a.y >= b.y && a.y+a.height <= b.y+b.height
}

// drawing is what a picture shows.
type drawing struct {
	picture   shape
	boxes     []shape // segments, routers, machines
	ends      []shape // of links
	lines     []shape
	addresses []shape
}

// under tells whether a is in a box, which lies over all links.
func (d drawing) under(a shape) bool {
	return slices.ContainsFunc(d.boxes, a.within)
}

type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

// read reads a picture as XML. It refuses elements that none should have.
func read(t fataler, text string) (d drawing) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(text))
	var named *shape // what the next text belongs to
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return d
		}
		if err != nil {
			t.Fatalf("the picture is no XML: %v\n%s", err, text)
		}
		switch token := token.(type) {
		case xml.StartElement:
			attr := attributes(token)
			switch token.Name.Local {
			case "svg":
				d.picture = attr.shape("x", "y")
			case "circle":
				d.ends = append(d.ends, attr.shape("cx", "cy"))
			case "line":
				line := attr.shape("x1", "y1")
				line.height = attr.number("y2") - line.y
				line.x, line.width = line.x-1, 2
				d.lines = append(d.lines, line)
			case "rect":
				if attr["width"] != "100%" { // the ground
					d.boxes = append(d.boxes, attr.shape("x", "y"))
					named = &d.boxes[len(d.boxes)-1]
				}
			case "text":
				if attr["class"] == "address" {
					d.addresses = append(d.addresses, attr.shape("x", "y"))
					named = &d.addresses[len(d.addresses)-1]
				}
			case "title", "style", "tspan":
			default:
				t.Fatalf("the picture has an element %s:\n%s", token.Name.Local, text)
			}
		case xml.CharData:
			said := strings.TrimSpace(string(token))
			if said == "" || named == nil {
				continue
			}
			if named.name = said; named.width == 0 { // 11 px of a fixed width: 0.6 em
				named.y, named.height = named.y-10, 12
				named.width = len([]rune(said)) * 67 / 10
			}
			named = nil
		}
	}
}

type attrs map[string]string

func attributes(e xml.StartElement) attrs {
	all := attrs{}
	for _, a := range e.Attr {
		all[a.Name.Local] = a.Value
	}
	return all
}

func (a attrs) number(name string) int {
	n, _ := strconv.Atoi(a[name]) // none is 0
	return n
}

func (a attrs) shape(x, y string) shape {
	return shape{x: a.number(x), y: a.number(y), width: a.number("width"), height: a.number("height")}
}
