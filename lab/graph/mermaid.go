package graph

import (
	"encoding/json"
	"fmt"
	"strings"

	"mesh/lab/scenario"
)

// Mermaid writes g as a flowchart (https://mermaid.js.org/syntax/flowchart.html),
// from the outside at the top to the inside at the bottom.
func (g Graph) Mermaid() string {
	var b strings.Builder
	// Front matter is YAML, of which a JSON string is one.
	title, _ := json.Marshal(g.title()) // a string always can be
	fmt.Fprintf(&b, "---\ntitle: %s\n---\nflowchart TB\n", title)
	var struck []string
	label := func(id, name string, lines, faults []string) string {
		if faults != nil {
			struck = append(struck, id)
		}
		return mermaidLabel(name, append(lines, faults...))
	}
	for i, s := range g.Segments {
		open, end := "[", "]"
		if s.Kind == scenario.Public {
			open, end = "([", "])"
		}
		fmt.Fprintf(&b, "  s%d%s%s%s:::%s\n", i, open, label(id("s", i), s.Name, append([]string{s.kind()}, s.lines()...), s.Faults), end, mermaidClass(s.paint()))
	}
	for i, r := range g.Routers {
		fmt.Fprintf(&b, "  r%d{{%s}}:::router\n", i, label(id("r", i), r.Name, r.lines(), r.Faults))
	}
	for i, m := range g.Machines {
		fmt.Fprintf(&b, "  m%d[%s]:::machine\n", i, label(id("m", i), m.Name, m.lines(), m.Faults))
	}
	edge := func(from, to string, of Link) {
		line := "---"
		if of.Away {
			line = "-.-"
		}
		fmt.Fprintf(&b, "  %s %s|%s| %s\n", from, line, mermaidText(texts(of.Addrs)), to)
	}
	for i, r := range g.Routers {
		edge(id("s", r.Outside.Segment), id("r", i), r.Outside)
		for _, l := range r.Roams {
			edge(id("s", l.Segment), id("r", i), l)
		}
		edge(id("r", i), id("s", r.Inside.Segment), r.Inside)
	}
	for i, m := range g.Machines {
		for _, l := range m.Links {
			edge(id("s", l.Segment), id("m", i), l)
		}
	}
	for _, class := range mermaidClasses {
		fmt.Fprintf(&b, "  classDef %s fill:%s,stroke:%s,color:%s\n", class.name, class.ink.fill, class.ink.line, textInk)
	}
	if struck != nil {
		fmt.Fprintf(&b, "  classDef struck stroke:%s,stroke-width:3px\n  class %s struck\n", struckInk, strings.Join(struck, ","))
	}
	return b.String()
}

// mermaidClasses name the paints.
var mermaidClasses = []struct {
	name string
	ink  ink
}{
	{"public", publicInk}, {"site", siteInk}, {"carrier", carrierInk}, {"isolated", isolatedInk},
	{"router", routerInk}, {"machine", machineInk},
}

// mermaidClass names a paint.
func mermaidClass(of ink) string {
	for _, class := range mermaidClasses {
		if class.ink == of {
			return class.name
		}
	}
	return ""
}

// id is the name of a node in the text.
func id(kind string, number int) string { return fmt.Sprintf("%s%d", kind, number) }

// mermaidLabel is a node's label: its name in bold, and lines below it.
func mermaidLabel(name string, lines []string) string {
	return `"<b>` + mermaidEscape(name) + `</b><br/>` + strings.TrimPrefix(mermaidText(lines), `"`)
}

// mermaidText is lines in quotes.
func mermaidText(lines []string) string {
	escaped := make([]string, len(lines))
	for i, line := range lines {
		escaped[i] = mermaidEscape(line)
	}
	return `"` + strings.Join(escaped, "<br/>") + `"`
}

// mermaidEscape makes s text within quotes: what begins an entity, ends the
// quotes or means something to Markdown, HTML, comments (%%) or directives
// becomes an entity.
func mermaidEscape(s string) string {
	var b strings.Builder
	for _, r := range plain(s) {
		if strings.ContainsRune("\"#&<>`*_~\\%{}[]()|;", r) {
			fmt.Fprintf(&b, "#%d;", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
