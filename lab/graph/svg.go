package graph

import (
	"fmt"
	"strings"

	"mesh/lab/scenario"
)

// SVG draws g (https://www.w3.org/TR/SVG11/): segments are bars, routers and
// machines hang between them. The text uses the fonts of whoever looks at it.
func (g Graph) SVG() string {
	l := lay(g)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" role="img">
<title>%[3]s</title>
<style>
text { font-family: Helvetica, Arial, "Liberation Sans", "DejaVu Sans", sans-serif; font-size: 12px; fill: %[4]s }
.name { font-weight: bold; font-size: 14px }
.quiet { fill: %[5]s }
.struck { fill: %[6]s }
.address { font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 11px; fill: %[5]s }
.link { stroke: %[5]s; stroke-width: 1.5 }
.away { stroke-dasharray: 5 4 }
</style>
<rect width="100%%" height="100%%" fill="#ffffff"/>
`, l.width, l.height, xmlEscape(g.title()), textInk, quietInk, struckInk)
	fmt.Fprintf(&b, `<text x="%d" y="%d"><tspan class="name">%s</tspan>`, margin, margin+8, xmlEscape(g.Name))
	if g.About != "" {
		fmt.Fprintf(&b, `<tspan class="quiet" dx="8">%s</tspan>`, xmlEscape(g.About))
	}
	b.WriteString("</text>\n")
	// Links lie below bars: one that only passes a segment goes under it.
	var ends strings.Builder
	for _, boxes := range [][]box{l.routers, l.machines} {
		for _, n := range boxes {
			l.links(&b, &ends, n)
		}
	}
	for i, s := range g.Segments {
		l.bars[i].draw(&b, s)
	}
	b.WriteString(ends.String())
	for i, r := range g.Routers {
		l.draw(&b, l.routers[i], routerInk, 22, r.Name, r.lines(), r.Faults)
	}
	for i, m := range g.Machines {
		l.draw(&b, l.machines[i], machineInk, 4, m.Name, m.lines(), m.Faults)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// links draws those of n, and to ends where they meet their segments.
func (l layout) links(b, ends *strings.Builder, n box) {
	// The further down a link goes, the further left: it passes the addresses
	// of the shorter ones.
	down := 0
	for row := n.row; row < len(l.rowTop); row++ {
		for _, link := range n.links {
			bar := l.bars[link.Segment]
			if bar.row != row {
				continue
			}
			x, from, to, text, meets := n.x, bar.bottom, l.rowTop[n.row], bar.bottom+20, bar.bottom
			if row > n.row {
				x -= down * linkShift
				down++
				from, to = l.rowTop[n.row]+l.boxHeight[n.row], bar.top
				text, meets = to-lineStep*len(link.Addrs)+4, to
			}
			class := "link"
			if link.Away {
				class = "link away"
			}
			fmt.Fprintf(b, `<line class="%[4]s" x1="%[1]d" y1="%[2]d" x2="%[1]d" y2="%[3]d"/>`+"\n", x, from, to, class)
			for i, a := range link.Addrs {
				fmt.Fprintf(b, `<text class="address" x="%d" y="%d">%s</text>`+"\n", x+8, text+i*lineStep, a)
			}
			fmt.Fprintf(ends, `<circle cx="%d" cy="%d" r="4" fill="%s"/>`+"\n", x, meets, quietInk)
		}
	}
}

// draw draws a segment.
func (at bar) draw(b *strings.Builder, s Segment) {
	ink, round, thick := s.paint(), 6, 1.5
	if s.Kind == scenario.Public {
		round, thick = 20, 2.5
	}
	edge := ink.line
	if s.Faults != nil {
		edge = struckInk
	}
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" rx="%d" fill="%s" stroke="%s" stroke-width="%v"/>`+"\n",
		at.left, at.top, at.right-at.left, at.bottom-at.top, round, ink.fill, edge, thick)
	fmt.Fprintf(b, `<text x="%d" y="%d"><tspan class="name">%s</tspan><tspan fill="%s" dx="8">%s</tspan></text>`+"\n",
		at.left+padding, at.top+barTop, xmlEscape(s.Name), ink.line, s.kind())
	y := at.top + barTop + 2
	for _, line := range s.lines() {
		y += lineStep
		fmt.Fprintf(b, `<text class="address" x="%d" y="%d">%s</text>`+"\n", at.left+padding, y, xmlEscape(line))
	}
	for _, line := range s.Faults {
		y += lineStep
		fmt.Fprintf(b, `<text class="struck" x="%d" y="%d">%s</text>`+"\n", at.left+padding, y, xmlEscape(line))
	}
}

// draw draws a router or a machine.
func (l layout) draw(b *strings.Builder, n box, ink ink, round int, name string, lines, faults []string) {
	top, height := l.rowTop[n.row], l.boxHeight[n.row]
	if faults != nil {
		ink.line = struckInk
	}
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" rx="%d" fill="%s" stroke="%s" stroke-width="1.5"/>`+"\n",
		n.x-l.boxWidth/2, top, l.boxWidth, height, round, ink.fill, ink.line)
	// The name and the lines stand around the middle of the box.
	y := top + height/2 + 5 - (len(lines)+len(faults))*lineStep/2
	fmt.Fprintf(b, `<text class="name" x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", n.x, y, xmlEscape(name))
	y += 2
	for _, line := range lines {
		y += lineStep
		fmt.Fprintf(b, `<text class="quiet" x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", n.x, y, xmlEscape(line))
	}
	for _, line := range faults {
		y += lineStep
		fmt.Fprintf(b, `<text class="struck" x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", n.x, y, xmlEscape(line))
	}
}
