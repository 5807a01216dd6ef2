package underlay

import (
	"fmt"
	"slices"
)

// As is u under another run's id: what Plan would have made of the same
// scenario, with everybody where u has them. The empty run leaves out every name
// that depends on one; such an underlay can be kept, and be given a run by As
// again.
func (u Underlay) As(run string) Underlay {
	p := planner{run: run, given: map[string]bool{}}
	u.Run, u.Namespace = run, worldNamespace(run)
	u.Routers = slices.Clone(u.Routers)
	for i := range u.Routers {
		u.Routers[i].Namespace = routerNamespace(run, i)
	}
	u.Machines = slices.Clone(u.Machines)
	for i, m := range u.Machines {
		nics := slices.Clone(m.NICs)
		for j := range nics {
			nics[j].Tap = ""
			if run != "" {
				nics[j].Tap = p.tap(m.Name, nics[j].stands()[0].Segment)
			}
		}
		u.Machines[i].NICs = nics
	}
	return u
}

// worldNamespace names a run's world.
func worldNamespace(run string) string {
	if run == "" {
		return ""
	}
	return "ml-" + run
}

// routerNamespace names the i-th router of a run.
func routerNamespace(run string, i int) string {
	if run == "" {
		return ""
	}
	return fmt.Sprintf("ml-%s-%d", run, i+1)
}
