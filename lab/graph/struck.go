package graph

import (
	"slices"
	"strings"

	"mesh/lab/fault"
)

// Struck is g with the faults that hold, each at everybody whom it strikes. What
// strikes the world stands where its services are.
func (g Graph) Struck(faults []fault.Fault) Graph {
	g.Segments, g.Routers, g.Machines = slices.Clone(g.Segments), slices.Clone(g.Routers), slices.Clone(g.Machines)
	for _, f := range faults {
		if len(f.On) == 0 {
			g.strike(fault.Target{Kind: fault.World}, f.Effect())
		}
		for _, t := range f.On {
			g.strike(t, f.Effect())
		}
		away := fault.Fault{Kind: f.Kind, From: f.On, Direction: f.Direction.Reverse()}
		for _, t := range f.From {
			g.strike(t, away.Effect())
		}
	}
	return g
}

// strike marks one target. The slices of nodes are g's own.
func (g Graph) strike(t fault.Target, effect string) {
	mark := func(marks *[]string, text string) { *marks = append(slices.Clip(*marks), "fault: "+text) }
	switch t.Kind {
	case fault.Machine:
		if t.Segment != "" {
			effect = "in " + t.Segment + ": " + effect
		}
		for i := range g.Machines {
			if g.Machines[i].Name == t.Name {
				mark(&g.Machines[i].Faults, effect)
			}
		}
	case fault.Router:
		for i := range g.Routers {
			if g.Routers[i].Name == t.Name {
				mark(&g.Routers[i].Faults, effect)
			}
		}
	case fault.Segment:
		for i := range g.Segments {
			if g.Segments[i].Name == t.Name {
				mark(&g.Segments[i].Faults, effect)
			}
		}
	case fault.Service, fault.World:
		if t.Kind == fault.Service {
			effect = strings.Join([]string{t.Name, effect}, ": ")
		}
		for i := range g.Segments {
			if g.Segments[i].Services != nil {
				mark(&g.Segments[i].Faults, effect)
			}
		}
	}
}
