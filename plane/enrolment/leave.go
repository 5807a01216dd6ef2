package enrolment

import (
	"context"
	"errors"
	"fmt"

	"mesh/host/declaration"
	"mesh/host/identity"
	"mesh/plane/declare"
	"mesh/plane/module"
	"mesh/plane/refusal"
	"mesh/plane/registry"
)

// Retirement is what became of a Retire.
type Retirement struct {
	Node       string
	Changed    bool   // false: it was being retired already
	Generation uint64 // the final one
}

// Retire takes everything from a node and declares to it that this is the end,
// in one transaction. The node stays one until it has reported that it owns
// nothing any more; see Depart. The error is a *refusal.Error for an unknown
// node, for the one the plane runs on, and for one whose host cannot read a
// final declaration.
func (s *Service) Retire(ctx context.Context, name string) (Retirement, error) {
	done := Retirement{Node: name}
	err := s.Store.Update(ctx, func(ctx context.Context, v registry.View) (registry.Change, error) {
		n, err := s.leaving(ctx, v, name, "retiring")
		if err != nil {
			return registry.Change{}, err
		}
		done.Generation = n.Declared.Generation
		if n.Retiring() {
			return registry.Change{}, nil
		}
		ref := n.Ref()
		change := registry.Change{At: s.Now(), Retire: &ref}
		for _, m := range n.Modules {
			change.Unassign = append(change.Unassign, registry.Assignment{Node: ref, Module: m})
		}
		n.Modules, n.RetiringAt = nil, change.At
		next, err := s.Declarer.Next(ctx, v, n)
		if err != nil {
			return registry.Change{}, err
		}
		if next != nil {
			change.Declare = []registry.Declaration{*next}
			done.Generation = next.Generation
		}
		done.Changed = true
		return change, nil
	})
	if err != nil {
		return Retirement{}, err
	}
	if done.Changed {
		s.Log.Info("node is being retired", "node", name, "generation", done.Generation)
	}
	return done, nil
}

// Depart removes the node with this key if it is being retired and outcome says
// that it has carried out its final declaration: then it owns nothing.
func (s *Service) Depart(ctx context.Context, key identity.NodePublicKey, outcome declaration.Outcome) error {
	var gone string
	err := s.Store.Update(ctx, func(ctx context.Context, v registry.View) (registry.Change, error) {
		n, err := v.NodeOfKey(ctx, key)
		if errors.Is(err, registry.ErrUnknown) {
			return registry.Change{}, nil
		} else if err != nil {
			return registry.Change{}, err
		}
		if !n.Retiring() || outcome.Digest != n.Declared.Digest || !registry.Count(outcome.Results).Settled() {
			return registry.Change{}, nil
		}
		gone = n.Name
		ref := n.Ref()
		return registry.Change{At: s.Now(), Remove: &ref}, nil
	})
	if err == nil && gone != "" {
		s.Log.Info("node is retired: it owns nothing any more", "node", gone)
	}
	return err
}

// Remove forgets a node: its key is refused from then on, and its name and
// addresses are free. The machine itself is not touched. The error is a
// *refusal.Error for an unknown node, and for the node the plane runs on.
func (s *Service) Remove(ctx context.Context, name string) error {
	err := s.Store.Update(ctx, func(ctx context.Context, v registry.View) (registry.Change, error) {
		n, err := s.leaving(ctx, v, name, "removing")
		if err != nil {
			return registry.Change{}, err
		}
		ref := n.Ref()
		return registry.Change{At: s.Now(), Remove: &ref}, nil
	})
	if err == nil {
		s.Log.Info("node removed", "node", name)
	}
	return err
}

// leaving finds a node that may go.
func (s *Service) leaving(ctx context.Context, v registry.View, name, doing string) (registry.Node, error) {
	n, err := v.NodeNamed(ctx, name)
	if errors.Is(err, registry.ErrUnknown) {
		return n, declare.UnknownNode(name)
	} else if err != nil {
		return n, err
	}
	for _, has := range n.Modules {
		m, err := s.Catalogue.Named(has)
		if err != nil {
			continue // a module of an older plane holds no node
		}
		if m.Instantiation == module.ExactlyOne {
			return n, &refusal.Error{
				Kind: refusal.Conflict,
				What: fmt.Sprintf("%s node %q", doing, name),
				Why:  fmt.Sprintf("it has module %q, of which exactly one must run", has),
			}
		}
	}
	return n, nil
}
