package graph

import "slices"

// The layout of the SVG, in pixels: every router and machine has a column of its
// own, every segment a bar across the columns of those that stand in it, or can.
// A node hangs below the topmost of its segments and reaches the others downwards, so
// that no line meets a box or a text that is not its own.
const (
	margin    = 24
	titleRoom = 44
	nodeGap   = 24 // between boxes, at least
	boxMin    = 150
	boxHeight = 66 // of a box with two lines below its name, and at least
	linkMin   = 24 // a link's length, with no address on it
	lineStep  = 16 // between lines of text
	barTop    = 22 // from a bar's top to its name's foot
	barGap    = 20 // between bars of one row
	padding   = 14
	linkShift = 16 // between the links of one node, downwards
	nameWidth = 9  // of a bold character, at most
	monoWidth = 7  // of an address's character, at most
)

// bar is where a segment is drawn.
type bar struct{ row, left, right, top, bottom int }

// box is where a router or a machine is drawn.
type box struct {
	x, row int // its column's middle; the row of its topmost segment
	height int
	links  []Link
}

// layout is where everything is drawn.
type layout struct {
	bars          []bar // by segment; until it settles, left is the column of one in which nobody stands
	routers       []box
	machines      []box
	boxWidth      int
	rowTop        []int // of a row's boxes
	boxHeight     []int // of a row's boxes
	width, height int
}

// planner gives out columns and rows.
type planner struct {
	g       Graph
	l       layout
	pitch   int
	next    int           // the next column
	order   []int         // of segments: none comes before what it is behind
	parents map[int][]int // segments that a segment is or can be behind
	visited map[int]bool
	placed  map[int]bool // machines
}

// lay places everything in g.
func lay(g Graph) layout {
	p := planner{g: g, parents: map[int][]int{}, visited: map[int]bool{}, placed: map[int]bool{}}
	p.l.bars = make([]bar, len(g.Segments))
	p.l.routers, p.l.machines = make([]box, len(g.Routers)), make([]box, len(g.Machines))
	p.measure()
	for _, r := range g.Routers {
		for _, l := range append([]Link{r.Outside}, r.Roams...) {
			p.parents[r.Inside.Segment] = append(p.parents[r.Inside.Segment], l.Segment)
		}
	}
	for i := range g.Segments { // the outermost, and with each what is behind it
		if len(p.parents[i]) == 0 {
			p.visit(i)
		}
	}
	p.sort()
	for _, s := range p.order {
		p.settle(s)
	}
	p.heights()
	return p.l
}

// sort puts every segment after all those that it is or can be behind, and leaves
// the order as it is otherwise.
func (p *planner) sort() {
	visited, sorted := p.order, []int(nil)
	for len(visited) > 0 {
		next := max(0, slices.IndexFunc(visited, func(s int) bool {
			return !slices.ContainsFunc(p.parents[s], func(outside int) bool { return slices.Contains(visited, outside) })
		}))
		sorted = append(sorted, visited[next])
		visited = slices.Delete(visited, next, next+1)
	}
	p.order = sorted
}

// measure finds how wide boxes and columns have to be.
func (p *planner) measure() {
	p.l.boxWidth = boxMin
	widest, shift := 0, 0
	node := func(name string, lines []string, links ...Link) {
		p.l.boxWidth = max(p.l.boxWidth, nameWidth*length(name)+2*padding)
		for _, line := range lines {
			p.l.boxWidth = max(p.l.boxWidth, monoWidth*length(line)+2*padding)
		}
		for _, l := range links {
			widest = max(widest, l.width())
		}
		shift = max(shift, linkShift*(len(links)-2)) // one goes up, and the first downwards is not shifted
		p.l.boxWidth = max(p.l.boxWidth, 2*(shift+padding))
	}
	for _, r := range p.g.Routers {
		node(r.Name, append(r.lines(), r.Faults...), r.links()...)
	}
	for _, m := range p.g.Machines {
		node(m.Name, append(m.lines(), m.Faults...), m.Links...)
	}
	p.pitch = max(p.l.boxWidth, widest+padding+shift) + nodeGap
}

// heightOf is how high a box with a name and lines is.
func heightOf(lines []string) int { return max(boxHeight, boxHeight+lineStep*(len(lines)-2)) }

func length(s string) int { return len([]rune(s)) }

// column gives out the next column.
func (p *planner) column() int {
	x := margin + p.l.boxWidth/2 + padding + p.next*p.pitch
	p.next++
	return x
}

// visit gives columns to a segment's machines, and to what is behind it.
func (p *planner) visit(segment int) {
	if p.visited[segment] {
		return
	}
	p.visited[segment] = true
	p.order = append(p.order, segment)
	alone := true
	for i, m := range p.g.Machines {
		if !standsIn(m.Links, segment) {
			continue
		}
		alone = false
		if !p.placed[i] {
			p.placed[i] = true
			p.l.machines[i] = box{x: p.column(), height: heightOf(append(m.lines(), m.Faults...)), links: m.Links}
		}
	}
	for i, r := range p.g.Routers {
		alone = alone && !standsIn(r.links(), segment)
		if r.Outside.Segment == segment {
			alone = false
			p.l.routers[i] = box{x: p.column(), height: heightOf(append(r.lines(), r.Faults...)), links: r.links()}
			p.visit(r.Inside.Segment)
		}
	}
	if alone {
		p.l.bars[segment].left = p.column()
	}
}

func standsIn(links []Link, segment int) bool {
	return slices.ContainsFunc(links, func(l Link) bool { return l.Segment == segment })
}

// settle finds the span of a segment's bar, and the first row below its outside
// in which it has room.
func (p *planner) settle(segment int) {
	b := &p.l.bars[segment]
	left, right := b.left, b.left
	for _, boxes := range [][]box{p.l.routers, p.l.machines} {
		for _, n := range boxes {
			if !standsIn(n.links, segment) {
				continue
			}
			if left == 0 || n.x < left {
				left = n.x
			}
			right = max(right, n.x)
		}
	}
	s := p.g.Segments[segment]
	text := nameWidth * length(s.Name+"  "+s.kind())
	for _, line := range append(s.lines(), s.Faults...) {
		text = max(text, monoWidth*length(line))
	}
	b.left = left - p.l.boxWidth/2 - padding
	b.right = max(right+p.l.boxWidth/2+padding, b.left+text+2*padding)
	for _, outside := range p.parents[segment] {
		b.row = max(b.row, p.l.bars[outside].row+1)
	}
	for !p.room(segment) {
		b.row++
	}
}

// room tells whether nothing that is settled already is in the way of a bar.
func (p *planner) room(segment int) bool {
	b := p.l.bars[segment]
	for _, other := range p.order {
		if other == segment {
			return true
		}
		o := p.l.bars[other]
		if o.row == b.row && b.left < o.right+barGap && o.left < b.right+barGap {
			return false
		}
	}
	return true
}

// heights turns rows into places from top to bottom.
func (p *planner) heights() {
	rows := 0
	for _, b := range p.l.bars {
		rows = max(rows, b.row+1)
		p.l.width = max(p.l.width, b.right+margin)
	}
	needs := make([]needs, rows)
	for i, s := range p.g.Segments {
		need := &needs[p.l.bars[i].row]
		need.bar = max(need.bar, barTop+lineStep*(len(s.lines())+len(s.Faults))+padding)
	}
	for _, boxes := range [][]box{p.l.routers, p.l.machines} {
		for i := range boxes {
			p.hang(&boxes[i], needs)
		}
	}
	y := titleRoom
	for row, need := range needs {
		y += max(need.above, margin)
		for i := range p.l.bars {
			if b := &p.l.bars[i]; b.row == row {
				b.top, b.bottom = y, y+need.bar
			}
		}
		y += need.bar + need.below
		p.l.rowTop = append(p.l.rowTop, y)
		p.l.boxHeight = append(p.l.boxHeight, need.boxes)
		y += need.boxes
	}
	p.l.height = y + margin
	p.l.width = max(p.l.width, nameWidth*length(p.g.title())+2*margin)
}

// needs are the heights of a row's parts: its bars, the addresses above and
// below them, and its boxes.
type needs struct{ above, bar, below, boxes int }

// hang puts n below the topmost of its segments, and makes room for it.
func (p *planner) hang(n *box, needs []needs) {
	n.row = len(needs) - 1
	for _, l := range n.links {
		n.row = min(n.row, p.l.bars[l.Segment].row)
	}
	needs[n.row].boxes = max(needs[n.row].boxes, n.height)
	for _, l := range n.links {
		row, room := p.l.bars[l.Segment].row, linkMin+lineStep*len(l.Addrs)
		if row == n.row {
			needs[row].below = max(needs[row].below, room)
		} else {
			needs[row].above = max(needs[row].above, room)
		}
		p.l.width = max(p.l.width, n.x+padding+l.width()+margin)
	}
}

// width is how wide the addresses of l are.
func (l Link) width() int {
	widest := 0
	for _, a := range l.Addrs {
		widest = max(widest, monoWidth*length(a.String()))
	}
	return widest
}
