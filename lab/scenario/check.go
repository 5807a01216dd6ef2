package scenario

import (
	"slices"
	"strings"
)

// What a machine has where its declaration does not say.
const (
	defaultImage  = "debian-13"
	DefaultMemory = 512 * mebibyte
	DefaultCPUs   = 1
)

const (
	leastMemory = 256 * mebibyte
	mostMemory  = 256 << 10 * mebibyte
)

// check turns the document into a scenario and reports what could not be
// raised. What the decoder has reported already is passed over in silence.
func (d *decoder) check(doc *document) *Scenario {
	s := &Scenario{File: d.file, Name: doc.Name.Value, About: doc.About.Value}
	if doc.Name.usable() {
		if err := CheckName(s.Name); err != nil {
			d.add(doc.Name.At, "name: %v", err)
		}
	}
	if strings.ContainsAny(s.About, "\r\n") {
		d.add(doc.About.At, "about: it has several lines; say it in one")
	}
	d.segments(doc, s)
	d.routers(doc, s)
	d.machines(doc, s)
	d.carriers(doc, s)
	d.forwards(doc, s)
	d.roamers(doc, s)
	d.room(doc, s)
	d.place(doc, s)
	return s
}

func (d *decoder) machines(doc *document, s *Scenario) {
	for _, e := range doc.Machines.Entries {
		where := "machine " + quote(e.Name.Value)
		m := Machine{
			Name: e.Name.Value, Image: defaultImage, ImageAt: e.Name.At,
			MemoryBytes: DefaultMemory, CPUs: DefaultCPUs,
		}
		if slices.Contains(reserved, m.Name) {
			d.add(e.Name.At, "%s: the name means something else in every lab (%s); choose another", where, strings.Join(reserved, ", "))
		}
		if e.Value.Image.usable() {
			m.Image, m.ImageAt = e.Value.Image.Value, e.Value.Image.At
		}
		if e.Value.Memory.At != (Position{}) {
			m.MemoryBytes = e.Value.Memory.Bytes
			if m.MemoryBytes < leastMemory || m.MemoryBytes > mostMemory {
				d.add(e.Value.Memory.At, "%s: memory: %s is out of range; give %s to %s",
					where, formatSize(m.MemoryBytes), formatSize(leastMemory), formatSize(mostMemory))
			}
		}
		if e.Value.CPUs.At != (Position{}) {
			m.CPUs = e.Value.CPUs.Value
		}
		m.Display = e.Value.Display.On
		m.Segments = d.cards(where, e.Value.Segments.Items, doc.Segments.names())
		m.Roams = d.wandering(where, e.Value.Roams.Items, m.Segments, doc.Segments.names())
		if len(m.Roams) > 0 && len(e.Value.Segments.Items) > 1 {
			d.add(e.Value.Roams.At, "%s: it has several network cards, and it would not be known which one roams; give it one segment, or leave roams out", where)
		}
		s.Machines = append(s.Machines, m)
	}
}

// cards are the segments that a machine stands in.
func (d *decoder) cards(where string, wanted []text, declared []string) []string {
	var in []string
	for _, segment := range wanted {
		switch {
		case !segment.usable():
			continue
		case !slices.Contains(declared, segment.Value):
			d.add(segment.At, "%s: there is no segment %q; %s", where, segment.Value, Suggest(segment.Value, declared))
		case slices.Contains(in, segment.Value):
			d.add(segment.At, "%s: it stands in segment %q already; a machine has one network card in a segment", where, segment.Value)
		default:
			in = append(in, segment.Value)
		}
	}
	return in
}
