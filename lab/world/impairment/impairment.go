// Package impairment says what has to stand between the machines of a scenario so
// that faults of its network are in force.
//
// It is pure: an underlay and faults in, the text of a filter and a list of delay
// lines out, always the same for the same. The filter is of nftables' bridge
// family and holds what drops frames: partitions, loss, links that are down. It
// needs no module beyond nf_tables, and links are named in it, not numbered, so
// that a machine may come and go. Delays and rates are the work of delay lines:
// see lab/world/line.
//
// Only lab/world and lab/world/line import it.
package impairment

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"mesh/lab/fault"
	"mesh/lab/underlay"
)

// Plan is everything that has to stand. The plan of no faults holds a ruleset
// that removes what stood, and no lines.
type Plan struct {
	Ruleset string `json:"ruleset"` // replaces what an earlier plan loaded
	Lines   []Line `json:"lines"`
}

// Line is a delay line between a port of a bridge and the bridge.
type Line struct {
	Port   string `json:"port"` // link of a machine or router in the world's namespace
	Bridge string `json:"bridge"`
	Link   string `json:"link"` // stands for the port on the bridge, ≤ 15 bytes
	Out    Lag    `json:"out"`  // of what comes from the port
	In     Lag    `json:"in"`   // of what goes to it
}

// Lag is how late frames come. The zero value is at once.
type Lag struct {
	Rate    fault.Rate    `json:"rate,omitzero"` // at which they pass, one after the other; zero: at once
	Delay   time.Duration `json:"delay_nanoseconds,omitempty"`
	Jitter  time.Duration `json:"jitter_nanoseconds,omitempty"` // at most that much more or less
	Reorder fault.Share   `json:"reorder,omitzero"`             // of frames that are not delayed
}

// add composes two lags: the lower rate holds, times add up, and a frame
// overtakes if it does so at either.
func (l Lag) add(f fault.Fault) Lag {
	both := int64(l.Reorder) * int64(f.Reorder) / int64(fault.Whole)
	rate := l.Rate
	if rate == 0 || f.Rate > 0 && f.Rate < rate {
		rate = f.Rate
	}
	return Lag{
		Rate: rate, Delay: l.Delay + time.Duration(f.Delay), Jitter: l.Jitter + time.Duration(f.Jitter),
		Reorder: l.Reorder + f.Reorder - fault.Share(both),
	}
}

// NewPlan says what has to stand for those of faults that are of the network;
// the others are passed over. Targets must have been resolved against u.
func NewPlan(u underlay.Underlay, faults []fault.Fault) Plan {
	faults = slices.Clone(faults)
	slices.SortFunc(faults, func(a, b fault.Fault) int { return cmp.Compare(a.Name, b.Name) })
	w := writer{u: u, lines: map[string]*Line{}}
	for _, f := range faults { // first, since rules name the lines
		if f.Kind == fault.Delay || f.Kind == fault.RateLimit {
			w.delay(f)
		}
	}
	for _, f := range faults {
		switch f.Kind {
		case fault.Loss:
			w.loss(f)
		case fault.LinkDown:
			w.down(f)
		case fault.Partition:
			w.partition(f)
		}
	}
	return w.plan()
}

// port is a link on a bridge.
type port struct{ link, bridge string }

// ports are the links by which a target is joined to segments.
func ports(u underlay.Underlay, t fault.Target) (found []port) {
	bridge := func(segment string) string {
		for _, s := range u.Segments {
			if s.Name == segment {
				return s.Bridge
			}
		}
		return ""
	}
	for _, m := range u.Machines {
		for _, nic := range m.NICs {
			if t.Kind == fault.Machine && t.Name == m.Name && (t.Segment == "" || t.Segment == nic.Segment) ||
				t.Kind == fault.Segment && t.Name == nic.Segment {
				found = append(found, port{nic.Tap, bridge(nic.Segment)})
			}
		}
	}
	for _, r := range u.Routers {
		if t.Kind == fault.Router && t.Name == r.Name {
			found = append(found, port{r.Outside.Peer, bridge(r.Outside.Segment)})
		}
		for _, side := range []underlay.RouterPort{r.Inside, r.Outside} {
			if t.Kind == fault.Segment && t.Name == side.Segment {
				found = append(found, port{side.Peer, bridge(side.Segment)})
			}
		}
	}
	return found
}

// lineOf names what stands for a port on its bridge.
func lineOf(port string) string {
	if rest, tap := strings.CutPrefix(port, "mt"); tap {
		return "md" + rest
	}
	return "d-" + port
}

func (w *writer) delay(f fault.Fault) {
	for _, t := range f.On {
		for _, p := range ports(w.u, t) {
			line := w.lines[p.link]
			if line == nil {
				line = &Line{Port: p.link, Bridge: p.bridge, Link: lineOf(p.link)}
				w.lines[p.link] = line
			}
			if f.Direction.Sends() || t.Kind == fault.Segment {
				line.Out = line.Out.add(f)
			}
			if f.Direction.Receives() && t.Kind != fault.Segment { // once on its way through a segment
				line.In = line.In.add(f)
			}
		}
	}
}
