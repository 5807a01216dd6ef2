package scenario

import (
	"slices"
	"strings"
)

func (d *decoder) routers(doc *document, s *Scenario) {
	segments := doc.Segments.names()
	for _, e := range doc.Routers.Entries {
		where := "router " + quote(e.Name.Value)
		r := Router{
			Name: e.Name.Value, Inside: e.Value.Inside.Value, Outside: e.Value.Outside.Value,
			NAT: NATEasy, Firewall: FirewallHome,
			MTU: e.Value.MTU.Value, BlackHole: e.Value.TooBig.Value == "lost",
		}
		if e.Value.NAT.usable() {
			r.NAT = NAT(e.Value.NAT.Value)
		}
		if e.Value.Firewall.usable() {
			r.Firewall = Firewall(e.Value.Firewall.Value)
		}
		if e.Value.TooBig.written() && e.Value.MTU.At == (Position{}) {
			d.add(e.Value.TooBig.At, "%s: too-big says what happens beyond an mtu, and there is none; add `mtu`", where)
		}
		for _, side := range []text{e.Value.Inside, e.Value.Outside} {
			if side.usable() && !slices.Contains(segments, side.Value) {
				d.add(side.At, "%s: there is no segment %q; %s", where, side.Value, Suggest(side.Value, segments))
			}
		}
		r.Roams = d.wandering(where, e.Value.Roams.Items, []string{r.Outside}, segments)
		if slices.Contains(segments, r.Inside) {
			d.inside(where, e.Value, r, s)
			d.outsides(where, e.Value, r, s)
		}
		if r.NAT == NATOne && len(r.Roams) > 0 {
			d.add(e.Value.Roams.At, "%s: its machines have addresses of its outside, and cannot take them along; leave roams out or choose another nat", where)
		}
		s.Routers = append(s.Routers, r)
	}
}

// wandering are the segments that something roams to from those where it is at home.
func (d *decoder) wandering(where string, wanted []text, home, declared []string) []string {
	var to []string
	for _, segment := range wanted {
		switch {
		case !segment.usable():
		case !slices.Contains(declared, segment.Value):
			d.add(segment.At, "%s: roams: there is no segment %q; %s", where, segment.Value, Suggest(segment.Value, declared))
		case slices.Contains(home, segment.Value):
			d.add(segment.At, "%s: roams: it stands in segment %q from the beginning; it can always be moved back there", where, segment.Value)
		case slices.Contains(to, segment.Value):
			d.add(segment.At, "%s: roams: segment %q is named twice; once will do", where, segment.Value)
		default:
			to = append(to, segment.Value)
		}
	}
	return to
}

// inside checks the segment that a router is the way out of.
func (d *decoder) inside(where string, written router, r Router, s *Scenario) {
	inside := s.segment(r.Inside)
	switch inside.Kind {
	case Public:
		d.add(written.Inside.At, "%s: inside is the public segment %q; a router's inside is a site or a carrier's network", where, r.Inside)
	case Isolated:
		d.add(written.Inside.At, "%s: inside is %q, and nothing leads out of an isolated segment; make it a site or leave the router out", where, r.Inside)
	}
	if r.NAT == NATOne && inside.Kind != "" && !inside.IPv4.IsValid() && inside.IPv6.IsValid() {
		d.add(written.NAT.At, "%s: segment %q has no IPv4 to translate; leave nat out", where, r.Inside)
	}
	for _, other := range s.Routers {
		if other.Inside == r.Inside {
			d.add(written.Inside.At, "%s: site %q has the router %q already; a site has one way out", where, r.Inside, other.Name)
			return
		}
	}
}

// outsides checks each segment that a router leads to, or may.
func (d *decoder) outsides(where string, written router, r Router, s *Scenario) {
	at := map[string]Position{r.Outside: written.Outside.At}
	for _, t := range written.Roams.Items {
		if _, known := at[t.Value]; !known {
			at[t.Value] = t.At
		}
	}
	inside := s.segment(r.Inside)
	for i, name := range r.Outsides() {
		outside := s.segment(name)
		if outside.Name == "" {
			continue
		}
		if name == r.Inside {
			d.add(at[name], "%s: inside and outside are both %q; a router joins two segments", where, name)
			continue
		}
		if outside.Kind == Isolated {
			d.add(at[name], "%s: nothing leads out of the isolated segment %q; let the router lead elsewhere", where, name)
		}
		if (inside.IPv4.IsValid() || inside.IPv6.IsValid()) && (outside.IPv4.IsValid() || outside.IPv6.IsValid()) &&
			!(inside.IPv4.IsValid() && outside.IPv4.IsValid()) && !(inside.IPv6.IsValid() && outside.IPv6.IsValid()) {
			place := written.At
			if i > 0 {
				place = at[name]
			}
			d.add(place, "%s: segments %q and %q have no address family in common; nothing could pass", where, r.Inside, name)
		}
		if path := s.circle(r.Inside, name); path != nil {
			d.add(at[name], "%s: the way out goes in a circle (%s); let one router lead to a public segment", where, strings.Join(path, " to "))
		}
	}
}

// circle is the way from a router's inside by a segment outside back to that
// inside, by routers wherever they may stand; nil where none leads there.
func (s *Scenario) circle(inside, outside string) []string {
	passed := map[string]bool{}
	var back func(from string) []string // the way from there, in reverse
	back = func(from string) []string {
		passed[from] = true
		if s.segment(from).Kind == Public {
			return nil // whatever is declared to lead out of it is refused
		}
		for _, r := range s.Routers {
			if r.Inside != from {
				continue
			}
			for _, next := range r.Outsides() {
				if next == inside {
					return []string{next, from}
				}
				if passed[next] {
					continue // a circle further out, reported where it closes
				}
				if way := back(next); way != nil {
					return append(way, from)
				}
			}
		}
		return nil
	}
	way := back(outside)
	if way == nil {
		return nil
	}
	way = append(way, inside)
	slices.Reverse(way)
	return way
}

// carriers checks that each carrier's network has the router that makes it one.
func (d *decoder) carriers(doc *document, s *Scenario) {
	for _, e := range doc.Segments.Entries {
		if SegmentKind(e.Value.Kind.Value) != Carrier {
			continue
		}
		i := slices.IndexFunc(s.Routers, func(r Router) bool { return r.Inside == e.Name.Value })
		switch {
		case i < 0:
			d.add(e.Name.At, "segment %q: nothing leads out of this carrier's network; add a router whose inside it is", e.Name.Value)
		case s.Routers[i].NAT != NATEasy && s.Routers[i].NAT != NATHard:
			d.add(doc.Routers.Entries[i].Value.NAT.At, "router %q: a carrier's router translates many to one; choose nat easy or hard, or make segment %q a site",
				s.Routers[i].Name, e.Name.Value)
		}
	}
}

// forwards reads what routers let in, once the machines are known.
func (d *decoder) forwards(doc *document, s *Scenario) {
	for i, e := range doc.Routers.Entries {
		r, where := &s.Routers[i], "router "+quote(e.Name.Value)
		if e.Value.Forwards.At != (Position{}) && r.NAT != NATEasy && r.NAT != NATHard {
			d.add(e.Value.Forwards.At, "%s: forwards lead through a translated address, and nat is %s; leave them out, machines inside can be called by their own", where, r.NAT)
		}
		for _, written := range e.Value.Forwards.Items {
			f := Forward{Protocol: "tcp", Port: written.Port.Value, To: written.To.Value, At: written.Port.Value}
			if written.Protocol.usable() {
				f.Protocol = written.Protocol.Value
			}
			if written.PortTo.At != (Position{}) {
				f.At = written.PortTo.Value
			}
			d.forwardTo(where, written, f, r.Inside, doc, s)
			if f.Port > 0 && slices.ContainsFunc(r.Forwards, func(o Forward) bool { return o.Protocol == f.Protocol && o.Port == f.Port }) {
				d.add(written.At, "%s: forwards: port %d of %s leads to a machine already; choose another port", where, f.Port, f.Protocol)
			}
			r.Forwards = append(r.Forwards, f)
		}
	}
}

// forwardTo checks that a forwarded port leads to a machine that can be reached so.
func (d *decoder) forwardTo(where string, written forward, f Forward, inside string, doc *document, s *Scenario) {
	if !written.To.usable() {
		return
	}
	i := slices.IndexFunc(s.Machines, func(m Machine) bool { return m.Name == f.To })
	switch {
	case i < 0:
		d.add(written.To.At, "%s: forwards: there is no machine %q; %s", where, f.To, Suggest(f.To, doc.Machines.names()))
	case s.segment(inside).Name == "":
	case !slices.Contains(s.Machines[i].Stands(), inside):
		d.add(written.To.At, "%s: forwards: machine %q does not stand in its inside, %q; name one that does", where, f.To, inside)
	case !s.segment(inside).IPv4.IsValid() && s.segment(inside).IPv6.IsValid():
		d.add(written.To.At, "%s: forwards: its inside %q has no IPv4, and IPv6 is not translated; leave them out", where, inside)
	}
}

// roamers checks that who roams can be told apart by name alone.
func (d *decoder) roamers(doc *document, s *Scenario) {
	for i, r := range s.Routers {
		for j, m := range s.Machines {
			if r.Name != m.Name || len(r.Roams)+len(m.Roams) == 0 {
				continue
			}
			at := doc.Machines.Entries[j].Value.Roams.At
			if len(m.Roams) == 0 {
				at = doc.Routers.Entries[i].Value.Roams.At
			}
			d.add(at, "a router and a machine are both called %q, and it would not be known which one is to roam; rename one", r.Name)
		}
	}
}
