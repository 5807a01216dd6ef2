// Package module is the catalogue: what can be assigned to a node, where it may
// be, how many of it, and what it declares there.
//
// It is pure. A module is a Go value; adding one is adding it to All.
package module

import (
	"fmt"
	"slices"
	"strings"

	"mesh/host/declaration"
	"mesh/host/inventory"
	"mesh/plane/refusal"
)

// Presence is where a module must be.
type Presence string

// Every presence.
const (
	Anywhere    Presence = "anywhere"   // on any node it is assigned to
	BesidePlane Presence = "with_plane" // on the machine the plane runs on, and nowhere else
	Everywhere  Presence = "everywhere" // on every node by itself: it is neither assigned nor taken away
)

// Instantiation is how many of a module there are in the mesh.
type Instantiation string

// Every instantiation.
const (
	Any        Instantiation = "any"
	ExactlyOne Instantiation = "exactly_one" // from its first assignment on: it is never taken away
)

// Module can be assigned to a node.
type Module struct {
	Name          string // a DNS label; its resources' IDs begin with it
	Summary       string // one line
	Presence      Presence
	Instantiation Instantiation
	Excludes      []string // modules it cannot stand beside on one node
	// Resources is what the module declares, in the order of applying. The same
	// facts give equal resources.
	Resources func(Facts) []declaration.Resource
	// Contents is what the resources name by digest: packages, in bytes. What a file
	// holds is given with the file, however long it is. nil means nothing but what the
	// plane keeps already.
	Contents func(Facts) []string
}

// Facts are what modules make resources of.
type Facts struct {
	PlaneConfig string // the plane's configuration as config.Config.Render writes it
	// Host is what the node shall have of mesh-host; nil means whichever it has.
	Host *declaration.Package
}

// Catalogue is the modules of one mesh, with the facts they are made of.
type Catalogue struct {
	modules []Module // by name
	facts   Facts
}

// NewCatalogue takes modules, whose names differ, and the facts.
func NewCatalogue(facts Facts, modules ...Module) Catalogue {
	sorted := slices.SortedFunc(slices.Values(modules), func(a, b Module) int { return strings.Compare(a.Name, b.Name) })
	return Catalogue{sorted, facts}
}

// Facts are those that c has.
func (c Catalogue) Facts() Facts { return c.facts }

// On lists the modules of a node that these are assigned to.
func (c Catalogue) On(assigned []string) []string {
	all := slices.Clone(assigned)
	for _, m := range c.modules {
		if m.Presence == Everywhere {
			all = append(all, m.Name)
		}
	}
	return all
}

// With is c with other facts.
func (c Catalogue) With(facts Facts) Catalogue { return Catalogue{c.modules, facts} }

// Modules lists the catalogue by name.
func (c Catalogue) Modules() []Module { return slices.Clone(c.modules) }

// Resources is what module declares in this mesh.
func (c Catalogue) Resources(m Module) []declaration.Resource { return m.Resources(c.facts) }

// Contents is what the resources of module name by digest in this mesh.
func (c Catalogue) Contents(m Module) []string {
	if m.Contents == nil {
		return nil
	}
	return m.Contents(c.facts)
}

// Named finds a module. The error is a *refusal.Error.
func (c Catalogue) Named(name string) (Module, error) {
	var known []string
	for _, m := range c.modules {
		if m.Name == name {
			return m, nil
		}
		known = append(known, m.Name)
	}
	return Module{}, &refusal.Error{
		Kind: refusal.Unknown,
		What: fmt.Sprintf("module %q", name),
		Why:  "there is no such module",
		Do:   "take one of " + strings.Join(known, ", "),
	}
}

// CheckAssignable tells why nobody assigns m or takes it away. The error is a
// *refusal.Error; nil means that it can be.
func (m Module) CheckAssignable() error {
	if m.Presence != Everywhere {
		return nil
	}
	return &refusal.Error{
		Kind: refusal.Conflict,
		What: fmt.Sprintf("module %q", m.Name),
		Why:  "it is on every node by itself, and is neither assigned nor taken away",
		Do:   "leave it out",
	}
}

// Place is a node as a module sees it before it is assigned there.
type Place struct {
	Node         string // its name
	MachineID    string
	Profile      inventory.Profile
	Modules      []string // already assigned to it
	Holders      []string // nodes that have this module
	PlaneMachine string   // machine-id of the machine the plane runs on; empty where it is not known
}

// CheckPlace tells why m cannot be assigned at p. The error is a
// *refusal.Error; nil means it can.
func (c Catalogue) CheckPlace(m Module, p Place) error {
	for _, check := range []func(Module, Place) *refusal.Error{c.checkPresence, c.checkInstantiation, c.checkExclusion, c.checkProfile} {
		if e := check(m, p); e != nil {
			e.What = fmt.Sprintf("module %q cannot be assigned to node %q", m.Name, p.Node)
			return e
		}
	}
	return nil
}

func (c Catalogue) checkPresence(m Module, p Place) *refusal.Error {
	if m.Presence != BesidePlane || p.PlaneMachine == "" || p.MachineID == p.PlaneMachine {
		return nil
	}
	return &refusal.Error{
		Kind: refusal.Conflict,
		Why:  fmt.Sprintf("it belongs on the machine the plane runs on (machine-id %s), and this is another one (%s)", p.PlaneMachine, p.MachineID),
		Do:   "enrol the plane's own machine; the module is then assigned by itself",
	}
}

func (c Catalogue) checkInstantiation(m Module, p Place) *refusal.Error {
	if m.Instantiation != ExactlyOne {
		return nil
	}
	for _, holder := range p.Holders {
		if holder != p.Node {
			return &refusal.Error{Kind: refusal.Conflict, Why: fmt.Sprintf("exactly one may run, and node %q has it", holder)}
		}
	}
	return nil
}

func (c Catalogue) checkExclusion(m Module, p Place) *refusal.Error {
	for _, name := range p.Modules {
		beside, err := c.Named(name)
		if slices.Contains(m.Excludes, name) || err == nil && slices.Contains(beside.Excludes, m.Name) {
			return &refusal.Error{
				Kind: refusal.Conflict,
				Why:  fmt.Sprintf("it cannot stand beside module %q", name),
				Do:   fmt.Sprintf("unassign %q first, or take another node", name),
			}
		}
	}
	return nil
}

// checkProfile refuses what the machine cannot run.
func (c Catalogue) checkProfile(m Module, p Place) *refusal.Error {
	var missing []string
	for _, r := range c.Resources(m) {
		kind := string(r.Kind())
		if !slices.Contains(p.Profile.Kinds, kind) && !slices.Contains(missing, kind) {
			missing = append(missing, kind)
		}
	}
	if len(missing) > 0 {
		return &refusal.Error{
			Kind: refusal.Conflict,
			Why:  fmt.Sprintf("its host (mesh-host %s) cannot apply resources of kind %s", p.Profile.HostVersion, strings.Join(missing, ", ")),
			Do:   "upgrade mesh-host there, or take another node",
		}
	}
	return c.checkContainers(m, p)
}

// checkContainers refuses a module with containers where none run: the machine has
// no podman that will do, and the module does not bring it before them.
func (c Catalogue) checkContainers(m Module, p Place) *refusal.Error {
	for _, r := range c.Resources(m) {
		switch {
		case slices.Contains(p.Profile.Capabilities, inventory.CapabilityContainers), r.Package != nil && r.Package.Name == "podman":
			return nil
		case r.Container != nil:
			return &refusal.Error{
				Kind: refusal.Conflict,
				Why:  fmt.Sprintf("it declares container %q, and no containers run on that machine: it has no podman 4.4 or newer", r.Where()),
				Do:   "install podman there, or take another node",
			}
		}
	}
	return nil
}

// CheckAbsence tells why m cannot be taken from node. The error is a
// *refusal.Error; nil means it can.
func (c Catalogue) CheckAbsence(m Module, node string) error {
	if m.Instantiation != ExactlyOne {
		return nil
	}
	return &refusal.Error{
		Kind: refusal.Conflict,
		What: fmt.Sprintf("module %q cannot be taken from node %q", m.Name, node),
		Why:  "exactly one must run",
	}
}
