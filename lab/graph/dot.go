package graph

import (
	"encoding/xml"
	"fmt"
	"strings"

	"mesh/lab/scenario"
)

// ink is how something is painted.
type ink struct{ fill, line string }

// One paint for each kind, in every format.
var (
	publicInk   = ink{"#dbeafe", "#2563eb"}
	siteInk     = ink{"#ecfdf5", "#059669"}
	carrierInk  = ink{"#f5f3ff", "#7c3aed"}
	isolatedInk = ink{"#f1f5f9", "#64748b"}
	routerInk   = ink{"#fef3c7", "#b45309"}
	machineInk  = ink{"#ffffff", "#475569"}
	struckInk   = "#dc2626" // lines of what a fault strikes
)

const (
	textInk  = "#0f172a"
	quietInk = "#475569"
)

// DOT writes g for Graphviz (https://graphviz.org/doc/info/lang.html), from the
// outside at the top to the inside at the bottom.
func (g Graph) DOT() string {
	var b strings.Builder
	// The name is never shown; that of the picture is its label.
	fmt.Fprintf(&b, `graph scenario {
  graph [label=<<b>%s</b>>, labelloc=t, fontname="Helvetica", fontsize=14, nodesep=0.5, ranksep=0.6, pad=0.2, ordering=out]
  node [fontname="Helvetica", fontsize=12, fontcolor=%q, style=filled, margin="0.16,0.08"]
  edge [fontname="Courier", fontsize=9, fontcolor=%q, color=%q]
`, xmlEscape(g.title()), textInk, quietInk, quietInk)
	for i, s := range g.Segments {
		style := "filled"
		if s.Kind == scenario.Public {
			style = "filled,rounded,bold"
		}
		dotNode(&b, id("s", i), "box", style, s.paint(), s.Name, append([]string{s.kind()}, s.lines()...), s.Faults)
	}
	for i, r := range g.Routers {
		dotNode(&b, id("r", i), "hexagon", "filled", routerInk, r.Name, r.lines(), r.Faults)
	}
	for i, m := range g.Machines {
		dotNode(&b, id("m", i), "box", "filled", machineInk, m.Name, m.lines(), m.Faults)
	}
	edge := func(from, to string, of Link) {
		style := ""
		if of.Away {
			style = ", style=dashed"
		}
		fmt.Fprintf(&b, "  %s -- %s [label=<%s>%s]\n", from, to, dotLines(texts(of.Addrs)), style)
	}
	for i, m := range g.Machines {
		for _, l := range m.Links {
			edge(id("s", l.Segment), id("m", i), l)
		}
	}
	for i, r := range g.Routers {
		edge(id("s", r.Outside.Segment), id("r", i), r.Outside)
		for _, l := range r.Roams {
			edge(id("s", l.Segment), id("r", i), l)
		}
		edge(id("r", i), id("s", r.Inside.Segment), r.Inside)
	}
	b.WriteString("}\n")
	return b.String()
}

func dotNode(b *strings.Builder, id, shape, style string, ink ink, name string, lines, faults []string) {
	struck := ""
	if faults != nil {
		ink.line = struckInk
		struck = fmt.Sprintf("<br/><font color=%q>%s</font>", struckInk, dotLines(faults))
	}
	fmt.Fprintf(b, "  %s [shape=%s, style=%q, fillcolor=%q, color=%q, label=<<b>%s</b><br/><font point-size=\"10\">%s%s</font>>]\n",
		id, shape, style, ink.fill, ink.line, xmlEscape(name), dotLines(lines), struck)
}

// dotLines is lines as an HTML-like label has them.
func dotLines(lines []string) string {
	escaped := make([]string, len(lines))
	for i, line := range lines {
		escaped[i] = xmlEscape(line)
	}
	return strings.Join(escaped, "<br/>")
}

// xmlEscape makes s text between tags, and between quotes.
func xmlEscape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(plain(s))) // a Builder takes everything
	return b.String()
}
