package impairment

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"mesh/lab/fault"
	"mesh/lab/scenario"
	"mesh/lab/underlay"
)

// table is the one that this package's rulesets replace.
const table = "bridge faults"

// writer collects what faults add up to.
type writer struct {
	u     underlay.Underlay
	lines map[string]*Line // by port

	arriving, passing, leaving []string
}

func (w *writer) plan() Plan {
	p := Plan{Lines: []Line{}}
	for _, link := range slices.Sorted(maps.Keys(w.lines)) {
		p.Lines = append(p.Lines, *w.lines[link])
	}
	var b strings.Builder
	// Declared before it is deleted, so that it may be absent: nft(8).
	fmt.Fprintf(&b, "table %[1]s\ndelete table %[1]s\n", table)
	if len(w.arriving)+len(w.passing)+len(w.leaving) > 0 {
		fmt.Fprintf(&b, "table %s {\n", table)
		for _, c := range []struct {
			name, hook string
			rules      []string
		}{{"arriving", "prerouting", w.arriving}, {"passing", "forward", w.passing}, {"leaving", "postrouting", w.leaving}} {
			if len(c.rules) == 0 {
				continue
			}
			fmt.Fprintf(&b, "\tchain %s {\n\t\ttype filter hook %s priority 0; policy accept;\n", c.name, c.hook)
			for _, r := range c.rules {
				fmt.Fprintf(&b, "\t\t%s\n", r)
			}
			b.WriteString("\t}\n")
		}
		b.WriteString("}\n")
	}
	p.Ruleset = b.String()
	return p
}

// names are ports as the bridge sees them, as a set of nftables; empty for none.
func (w *writer) names(ports []port) string {
	var all []string
	for _, p := range ports {
		link := p.link
		if line := w.lines[link]; line != nil {
			link = line.Link
		}
		all = append(all, fmt.Sprintf("%q", link))
	}
	return set(all)
}

func set(words []string) string {
	if len(words) == 0 {
		return ""
	}
	slices.Sort(words)
	return "{ " + strings.Join(slices.Compact(words), ", ") + " }"
}

// drop adds a rule for what a target sends and one for what it receives, as
// the fault's direction has it. What a segment carries is dropped once, where
// it enters.
func (w *writer) drop(f fault.Fault, match string) {
	for _, t := range f.On {
		links := w.names(ports(w.u, t))
		if links == "" {
			continue
		}
		if f.Direction.Sends() || t.Kind == fault.Segment {
			w.arriving = append(w.arriving, rule(f, "iifname "+links, match))
		}
		if f.Direction.Receives() && t.Kind != fault.Segment {
			w.leaving = append(w.leaving, rule(f, "oifname "+links, match))
		}
	}
}

func rule(f fault.Fault, matches ...string) string {
	words := slices.DeleteFunc(matches, func(m string) bool { return m == "" })
	return strings.Join(words, " ") + fmt.Sprintf(" drop comment %q", f.Name)
}

func (w *writer) loss(f fault.Fault) {
	if f.Share == fault.Whole {
		w.down(f) // nft(8) refuses a comparison that is always true
		return
	}
	w.drop(f, fmt.Sprintf("numgen random mod %d < %d", fault.Whole, f.Share))
}

func (w *writer) down(f fault.Fault) { w.drop(f, "") }

// party is one end of a partition.
type party struct {
	ports []port
	addrs []netip.Addr
	// outer are the addresses of translators on its way out, which its neighbours
	// have, too.
	outer []netip.Addr
}

func (w *writer) parties(targets []fault.Target) (all []party) {
	for _, t := range targets {
		if t.Kind == fault.World {
			p := party{}
			for _, a := range w.u.Services.Addrs {
				p.addrs = append(p.addrs, a.Addr())
			}
			all = append(all, p)
			continue
		}
		for _, m := range w.u.Machines {
			if t.Kind == fault.Machine && m.Name == t.Name || t.Kind == fault.Segment && stands(m, t.Name) {
				all = append(all, w.machine(m))
			}
		}
	}
	return all
}

func stands(m underlay.Machine, segment string) bool {
	return slices.ContainsFunc(m.NICs, func(nic underlay.NIC) bool { return nic.Segment == segment })
}

func (w *writer) machine(m underlay.Machine) party {
	p := party{ports: ports(w.u, fault.Target{Kind: fault.Machine, Name: m.Name})}
	for _, nic := range m.NICs {
		for _, a := range []netip.Prefix{nic.IPv4, nic.IPv6} {
			if a.IsValid() {
				p.addrs = append(p.addrs, a.Addr())
			}
		}
		own, shared := outside(w.u, m.Name, nic.Segment, nil)
		p.addrs, p.outer = append(p.addrs, own...), append(p.outer, shared...)
	}
	return p
}

// outside are the IPv4 addresses that translators on the way out of a segment
// give to what a machine there sends: those that are its own, and those that it
// shares with its neighbours.
func outside(u underlay.Underlay, machine, segment string, passed []string) (own, shared []netip.Addr) {
	for _, r := range u.Routers {
		if r.Inside.Segment != segment || slices.Contains(passed, r.Name) {
			continue
		}
		i := slices.IndexFunc(r.Translated, func(t underlay.Translated) bool { return t.Machine == machine })
		switch {
		case i >= 0:
			own = append(own, r.Translated[i].Outside.Addr())
		case r.NAT != string(scenario.NATNone):
			for _, a := range r.Outside.Addrs {
				if a.Addr().Is4() {
					shared = append(shared, a.Addr())
				}
			}
		}
		further, more := outside(u, machine, r.Outside.Segment, append(passed, r.Name))
		own, shared = append(own, further...), append(shared, more...)
	}
	return own, shared
}

// partition cuts both sides apart: by their links where they share a bridge, and
// otherwise by address, where either sees the other's own. Where both stand
// behind different translators neither does; then what one sends to the other's
// translators is cut, which cuts it off from their neighbours, too.
func (w *writer) partition(f fault.Fault) {
	on, from := w.parties(f.On), w.parties(f.From)
	if f.Direction.Sends() {
		w.cut(f, on, from)
	}
	if f.Direction.Receives() {
		w.cut(f, from, on)
	}
}

// cut drops what one side sends to the other.
func (w *writer) cut(f fault.Fault, from, to []party) {
	sender, receiver := merge(from), merge(to)
	out, in := w.names(sender.ports), w.names(receiver.ports)
	if out != "" && in != "" {
		w.passing = append(w.passing, rule(f, "iifname "+out, "oifname "+in))
	}
	if out != "" {
		for _, daddr := range byFamily("daddr", receiver.addrs) {
			w.arriving = append(w.arriving, rule(f, "iifname "+out, daddr))
		}
	}
	if in != "" {
		for _, saddr := range byFamily("saddr", sender.addrs) {
			w.leaving = append(w.leaving, rule(f, "oifname "+in, saddr))
		}
	}
	for _, one := range from {
		if len(one.outer) == 0 {
			continue
		}
		var hidden []netip.Addr
		for _, other := range to {
			for _, a := range other.outer {
				if !slices.Contains(one.outer, a) {
					hidden = append(hidden, a)
				}
			}
		}
		for _, daddr := range byFamily("daddr", hidden) {
			w.arriving = append(w.arriving, rule(f, "iifname "+w.names(one.ports), daddr))
		}
	}
}

func merge(parties []party) (all party) {
	for _, p := range parties {
		all.ports = append(all.ports, p.ports...)
		all.addrs = append(all.addrs, p.addrs...)
	}
	return all
}

// byFamily are matches of addresses at one end of a packet, none for none.
func byFamily(end string, addrs []netip.Addr) (matches []string) {
	slices.SortFunc(addrs, func(a, b netip.Addr) int { return cmp.Compare(a.String(), b.String()) })
	var four, six []string
	for _, a := range addrs {
		if a.Is4() {
			four = append(four, a.String())
		} else {
			six = append(six, a.String())
		}
	}
	if len(four) > 0 {
		matches = append(matches, "ip "+end+" "+set(four))
	}
	if len(six) > 0 {
		matches = append(matches, "ip6 "+end+" "+set(six))
	}
	return matches
}
