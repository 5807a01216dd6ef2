package declare

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"mesh/plane/config"
	"mesh/plane/module"
	"mesh/plane/refusal"
	"mesh/plane/registry"
)

// Configuration is what became of a Configure.
type Configuration struct {
	Node       string // that the plane runs on
	Changed    bool   // false: it was declared so already
	Generation uint64 // the node's newest
	Notes      []string
}

const applying = "applying a configuration"

// Configure makes next the plane's configuration and declares it to the node the
// plane runs on, in one transaction; that node's host writes the file and
// restarts the plane. From then on it is what was applied that is declared, and
// no longer what the plane's file says. What may not change is refused with a
// *refusal.Error.
func (d *Declarer) Configure(ctx context.Context, next config.Config) (Configuration, error) {
	if err := d.mayBecome(next); err != nil {
		return Configuration{}, err
	}
	done := Configuration{Notes: d.notes(next)}
	err := d.Store.Update(ctx, func(ctx context.Context, v registry.View) (registry.Change, error) {
		holders, err := v.Holders(ctx, module.Plane().Name)
		if err != nil {
			return registry.Change{}, err
		}
		if len(holders) == 0 {
			return registry.Change{}, &refusal.Error{
				Kind: refusal.Conflict, What: applying,
				Why: "the machine the plane runs on is no node yet, so no host would write it",
				Do:  "change " + config.Path + " there and restart mesh-plane, or enrol the machine first",
			}
		}
		n, err := v.NodeNamed(ctx, holders[0])
		if err != nil {
			return registry.Change{}, err
		}
		done.Node, done.Generation = n.Name, n.Declared.Generation
		k, err := known(ctx, v)
		if err != nil {
			return registry.Change{}, err
		}
		k.planeConfig = next.Render()
		declared, err := d.next(k, n)
		if err != nil || declared == nil {
			return registry.Change{}, err
		}
		done.Changed, done.Generation = true, declared.Generation
		return registry.Change{At: d.Now(), PlaneConfig: next.Render(), Declare: []registry.Declaration{*declared}}, nil
	})
	if err != nil {
		return Configuration{}, err
	}
	if done.Changed {
		d.Log.Info("configuration applied", "node", done.Node, "generation", done.Generation)
	}
	return done, nil
}

// mayBecome refuses what a mesh with nodes cannot change, all at once.
func (d *Declarer) mayBecome(next config.Config) error {
	var why []string
	if next.Mesh != d.Running.Mesh {
		why = append(why, fmt.Sprintf("mesh is %q, and a mesh keeps its name, %q", next.Mesh, d.Running.Mesh))
	}
	if next.Overlay != d.Running.Overlay {
		why = append(why, fmt.Sprintf("overlay is another, nodes have addresses from %v, and renumbering is not possible yet", d.Running.Overlay.Prefixes()))
	}
	if next.Store != d.Running.Store {
		why = append(why, fmt.Sprintf("store is %q, and the keys and nodes of the mesh are in %q and do not move by themselves", next.Store, d.Running.Store))
	}
	if len(why) == 0 {
		return nil
	}
	return &refusal.Error{Kind: refusal.Invalid, What: applying, Why: strings.Join(why, "; "), Do: "put back what the plane has"}
}

// notes says what a change means for the nodes there are.
func (d *Declarer) notes(next config.Config) []string {
	notes := []string{}
	for _, a := range d.Running.Addresses {
		if !slices.Contains(next.Addresses, a) {
			notes = append(notes, fmt.Sprintf("nodes that were enrolled while %s was listed go on dialling it; one that has no other way to the plane has to be enrolled anew", a))
		}
	}
	if next.Listen != d.Running.Listen {
		notes = append(notes, fmt.Sprintf("the plane will listen on %s instead of %s; nodes go on dialling the addresses their tokens named", next.Listen, d.Running.Listen))
	}
	return notes
}
