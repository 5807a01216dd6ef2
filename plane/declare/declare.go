package declare

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"mesh/host/declaration"
	"mesh/plane/config"
	"mesh/plane/module"
	"mesh/plane/refusal"
	"mesh/plane/registry"
)

// Store runs a decision in one transaction with the change it decides on. An
// error of the decision comes back as it is, and nothing has changed.
type Store interface {
	Update(ctx context.Context, decide registry.Decide) error
}

// Config is what a Declarer needs; nothing has a default but Log.
type Config struct {
	Mesh         registry.Mesh
	Catalogue    module.Catalogue
	Running      config.Config // of this plane; what Configure starts from
	PlaneMachine string        // machine-id of the machine the plane runs on; empty where it is not known
	Store        Store
	Now          func() time.Time
	Log          *slog.Logger // nil discards
}

// Declarer keeps every node's declaration in step with its assignments. Safe
// for concurrent use.
type Declarer struct {
	Config
}

// New makes a Declarer.
func New(c Config) *Declarer {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Declarer{c}
}

// Next is the declaration that follows n.Declared, signed; nil when n is told
// already what it shall hold.
func (d *Declarer) Next(ctx context.Context, v registry.View, n registry.Node) (*registry.Declaration, error) {
	k, err := known(ctx, v)
	if err != nil {
		return nil, err
	}
	return d.next(k, n)
}

// knowledge is what declarations are made of beside what is known of each node.
type knowledge struct {
	planeConfig string // as it was applied; empty: as this plane was started with
	hosts       []registry.HostPackage
}

func known(ctx context.Context, v registry.View) (k knowledge, err error) {
	if k.planeConfig, err = v.PlaneConfig(ctx); err != nil {
		return k, err
	}
	k.hosts, err = v.HostPackages(ctx)
	return k, err
}

// on is the catalogue for one node.
func (k knowledge) on(n registry.Node, c module.Catalogue) module.Catalogue {
	facts := c.Facts()
	if k.planeConfig != "" {
		facts.PlaneConfig = k.planeConfig
	}
	facts.Host = k.host(n)
	return c.With(facts)
}

func (d *Declarer) next(k knowledge, n registry.Node) (*registry.Declaration, error) {
	modules, names := k.on(n, d.Catalogue), n.Modules
	if !n.Retiring() {
		names = modules.On(names)
	}
	resources, err := Merge(modules, names)
	if err != nil {
		return nil, err
	}
	short, contents, err := apart(modules, names, resources)
	if err != nil {
		return nil, err
	}
	if slices.Contains(n.Profile.Formats, declaration.FormatFor(short)) {
		resources = short
	} else {
		contents = nil // an older host, for which all is in the document
	}
	shall := d.document(n.Name, resources, n.Retiring())
	if format := shall.Format; !slices.Contains(n.Profile.Formats, format) {
		return nil, &refusal.Error{
			Kind: refusal.Conflict,
			What: fmt.Sprintf("declaring for node %q", n.Name),
			Why:  fmt.Sprintf("its host (mesh-host %s) reads declarations of formats %v, and what is declared to it needs %d", n.Profile.HostVersion, n.Profile.Formats, format),
			Do:   "upgrade mesh-host there",
		}
	}
	content, err := contentOf(shall)
	if err != nil {
		return nil, err
	}
	last := n.Declared
	if last.Epoch == d.Mesh.Epoch && last.Content == content {
		return nil, nil
	}
	next := registry.Declared{Epoch: d.Mesh.Epoch, Generation: 1, Content: content}
	if last.Epoch == d.Mesh.Epoch {
		next.Generation = last.Generation + 1
	}
	shall.Epoch, shall.Generation = next.Epoch, next.Generation
	signed, digest, err := declaration.Sign(shall, d.Mesh.DeclarationKey)
	if err != nil {
		return nil, fmt.Errorf("sign declaration of node %q: %v", n.Name, err)
	}
	next.Digest = digest
	return &registry.Declaration{Node: n.Ref(), Declared: next, Signed: signed, Contents: contents}, nil
}

// document is what node shall hold, as the very first generation.
func (d *Declarer) document(node string, resources []declaration.Resource, final bool) declaration.Declaration {
	format := declaration.FormatFor(resources)
	if final {
		format = max(format, declaration.FormatFinal)
	}
	return declaration.Declaration{
		Format: format, Mesh: d.Mesh.Name, Node: node, Epoch: 1, Generation: 1, Resources: resources, Final: final,
	}
}

// contentOf names what a node shall hold independently of when it was declared:
// the digest that first is given as the very first generation.
func contentOf(first declaration.Declaration) (string, error) {
	canonical, err := first.Canonical()
	if err != nil {
		return "", fmt.Errorf("write declaration of node %q: %v", first.Node, err)
	}
	return declaration.Digest(canonical), nil
}

// Place is n as m sees it before it is assigned there.
func (d *Declarer) Place(ctx context.Context, v registry.View, n registry.Node, m module.Module) (module.Place, error) {
	holders, err := v.Holders(ctx, m.Name)
	if err != nil {
		return module.Place{}, err
	}
	return module.Place{
		Node: n.Name, MachineID: n.Inventory.MachineID, Profile: n.Profile,
		Modules: n.Modules, Holders: holders, PlaneMachine: d.PlaneMachine,
	}, nil
}

// Assignment is what became of an Assign or Unassign.
type Assignment struct {
	Node       string
	Module     string
	Changed    bool   // false: it was so already
	Generation uint64 // the node's newest
}

// Assign gives module to node and makes the node's next generation, in one
// transaction. Assigning what is assigned changes nothing. What cannot be is
// refused with a *refusal.Error.
func (d *Declarer) Assign(ctx context.Context, node, name string) (Assignment, error) {
	return d.change(ctx, node, name, func(ctx context.Context, v registry.View, n *registry.Node, m module.Module) (registry.Change, error) {
		if n.Has(m.Name) {
			return registry.Change{}, nil
		}
		place, err := d.Place(ctx, v, *n, m)
		if err != nil {
			return registry.Change{}, err
		}
		if err := d.Catalogue.CheckPlace(m, place); err != nil {
			return registry.Change{}, err
		}
		n.Modules = slices.Sorted(slices.Values(append(slices.Clone(n.Modules), m.Name)))
		return registry.Change{Assign: []registry.Assignment{{Node: n.Ref(), Module: m.Name}}}, nil
	})
}

// Unassign takes module from node, like Assign.
func (d *Declarer) Unassign(ctx context.Context, node, name string) (Assignment, error) {
	return d.change(ctx, node, name, func(_ context.Context, _ registry.View, n *registry.Node, m module.Module) (registry.Change, error) {
		if !n.Has(m.Name) {
			return registry.Change{}, nil
		}
		if err := d.Catalogue.CheckAbsence(m, n.Name); err != nil {
			return registry.Change{}, err
		}
		n.Modules = slices.DeleteFunc(slices.Clone(n.Modules), func(has string) bool { return has == m.Name })
		return registry.Change{Unassign: []registry.Assignment{{Node: n.Ref(), Module: m.Name}}}, nil
	})
}

// change runs decide on the node and, where it changes something, adds the
// generation that follows from it.
func (d *Declarer) change(ctx context.Context, node, name string,
	decide func(context.Context, registry.View, *registry.Node, module.Module) (registry.Change, error),
) (Assignment, error) {
	m, err := d.Catalogue.Named(name)
	if err == nil {
		err = m.CheckAssignable()
	}
	if err != nil {
		return Assignment{}, err
	}
	done := Assignment{Node: node, Module: name}
	err = d.Store.Update(ctx, func(ctx context.Context, v registry.View) (registry.Change, error) {
		n, err := v.NodeNamed(ctx, node)
		if errors.Is(err, registry.ErrUnknown) {
			return registry.Change{}, UnknownNode(node)
		} else if err != nil {
			return registry.Change{}, err
		}
		if n.Retiring() {
			return registry.Change{}, &refusal.Error{
				Kind: refusal.Conflict, What: fmt.Sprintf("changing what is assigned to node %q", node),
				Why: "it is being retired", Do: "to keep the machine, enrol it anew with another token",
			}
		}
		done.Generation = n.Declared.Generation
		change, err := decide(ctx, v, &n, m)
		if err != nil || change.IsZero() {
			return registry.Change{}, err
		}
		done.Changed = true
		change.At = d.Now()
		next, err := d.Next(ctx, v, n)
		if err != nil {
			return registry.Change{}, err
		}
		if next != nil {
			change.Declare = append(change.Declare, *next)
			done.Generation = next.Generation
		}
		return change, nil
	})
	if err != nil {
		return Assignment{}, err
	}
	if done.Changed {
		d.Log.Info("assignment changed", "node", node, "module", name, "generation", done.Generation)
	}
	return done, nil
}

// UnknownNode is the refusal of a name no node has.
func UnknownNode(name string) error {
	return &refusal.Error{
		Kind: refusal.Unknown,
		What: fmt.Sprintf("node %q", name),
		Why:  "there is no such node",
		Do:   "`mesh-plane node list` shows them all",
	}
}

// Refresh makes the next generation of every node whose newest one is no longer
// what it shall hold, as after an upgrade of the plane or a change of its
// configuration. A node that cannot be declared for keeps its last one, and is
// logged.
func (d *Declarer) Refresh(ctx context.Context) error {
	return d.Store.Update(ctx, func(ctx context.Context, v registry.View) (registry.Change, error) {
		change := registry.Change{At: d.Now()}
		nodes, err := v.Nodes(ctx)
		if err != nil {
			return registry.Change{}, err
		}
		k, err := known(ctx, v)
		if err != nil {
			return registry.Change{}, err
		}
		d.renew(k, nodes, &change)
		return change, nil
	})
}

// renew adds to change the next generation of each of nodes that is not told yet
// what it shall hold, and says of each that keeps its last one why that is so.
func (d *Declarer) renew(k knowledge, nodes []registry.Node, change *registry.Change) (kept []string) {
	for _, n := range nodes {
		next, err := d.next(k, n)
		switch {
		case err != nil:
			d.Log.Error("node keeps its last declaration", "node", n.Name, "generation", n.Declared.Generation, "err", err)
			kept = append(kept, fmt.Sprintf("node %q keeps its last declaration: %v", n.Name, err))
		case next != nil:
			d.Log.Info("declared anew", "node", n.Name, "generation", next.Generation, "digest", next.Digest)
			change.Declare = append(change.Declare, *next)
		}
	}
	return kept
}
