package enrolment

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"mesh/host/identity"
	"mesh/host/inventory"
	"mesh/host/link"
	"mesh/plane/config"
	"mesh/plane/module"
	"mesh/plane/refusal"
	"mesh/plane/registry"
)

// Enrol admits the machine that a names, or says why not with a *link.Refusal,
// whose message is one line. Any other error is the plane's own trouble.
//
// A machine that asks again with the same key and token, because the answer got
// lost, gets the same answer.
func (s *Service) Enrol(ctx context.Context, a Attempt) (Grant, error) {
	var grant Grant
	var change registry.Change
	err := s.Store.Update(ctx, func(ctx context.Context, v registry.View) (_ registry.Change, err error) {
		change, grant, err = s.admit(ctx, v, a, s.Now())
		return change, err
	})
	switch {
	case err != nil:
		return Grant{}, err
	case change.Enrol == nil:
		s.Log.Info("enrolment answered again", "node", grant.Node, "key", a.Key.String())
	case !change.Enrol.Replaces.IsZero():
		s.Log.Warn("node enrolled again; its old key is forgotten", "node", grant.Node, "key", a.Key.String(), "old_key", change.Enrol.Replaces.String())
	default:
		s.Log.Info("node enrolled", "node", grant.Node, "key", a.Key.String(), "addresses", grant.Addresses)
	}
	return grant, nil
}

// admit decides on one attempt.
func (s *Service) admit(ctx context.Context, v registry.View, a Attempt, now time.Time) (registry.Change, Grant, error) {
	token, err := readToken(ctx, v, a.TokenID)
	if err != nil {
		return registry.Change{}, Grant{}, err
	}
	if !token.SpentBy.IsZero() {
		g, err := answerAgain(ctx, v, token, a.Key)
		return registry.Change{}, g, err
	}
	if err := checkToken(token, a, now); err != nil {
		return registry.Change{}, Grant{}, err
	}
	// From here on the caller is known to hold the token, and may be told why.
	node, replaces, err := s.identify(ctx, v, token, a)
	if err != nil {
		return registry.Change{}, Grant{}, err
	}
	if node.Addresses, err = s.grantAddresses(ctx, v, node); err != nil {
		return registry.Change{}, Grant{}, err
	}
	change := registry.Change{At: now, Enrol: &registry.Enrolment{Node: node, Replaces: replaces, Token: token.ID}}
	if change.Assign, err = s.grantModules(ctx, v, &node, token); err != nil {
		return registry.Change{}, Grant{}, err
	}
	next, err := s.Declarer.Next(ctx, v, node)
	if err != nil {
		return registry.Change{}, Grant{}, toLink(err, link.ReasonTooOld)
	}
	if next != nil {
		change.Declare = []registry.Declaration{*next}
	}
	return change, Grant{node.Name, node.Addresses}, nil
}

// unknownToken answers alike for a token that is not known and for a proof that
// is not one of its secret.
func unknownToken() error {
	return &link.Refusal{Reason: link.ReasonTokenUnknown,
		Message: "the token is not one of this plane: it was never issued here, or it was altered; issue a new one with `mesh-plane token issue`"}
}

func readToken(ctx context.Context, v registry.View, text string) (registry.Token, error) {
	var id registry.TokenID
	if b, err := hex.DecodeString(text); err != nil || len(b) != len(id) {
		return registry.Token{}, &link.Refusal{Reason: link.ReasonMalformed, Message: "the request names no token; mesh-host and the plane may be of different versions"}
	} else {
		copy(id[:], b)
	}
	t, err := v.Token(ctx, id)
	if errors.Is(err, registry.ErrUnknown) {
		return t, unknownToken()
	}
	return t, err
}

// answerAgain repeats the grant to the very node that spent the token.
func answerAgain(ctx context.Context, v registry.View, t registry.Token, key identity.NodePublicKey) (Grant, error) {
	spent := &link.Refusal{Reason: link.ReasonTokenSpent,
		Message: "the token was used already, and it admits one machine once; issue a new one with `mesh-plane token issue`"}
	if t.SpentBy != key {
		return Grant{}, spent
	}
	n, err := v.NodeOfKey(ctx, key)
	if errors.Is(err, registry.ErrUnknown) {
		return Grant{}, spent // and its node was removed since
	}
	return Grant{n.Name, n.Addresses}, err
}

func checkToken(t registry.Token, a Attempt, now time.Time) error {
	if !now.Before(t.Expires) {
		return &link.Refusal{Reason: link.ReasonTokenExpired,
			Message: fmt.Sprintf("the token expired at %s, and the plane's clock says %s; issue a new one with `mesh-plane token issue`",
				t.Expires.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))}
	}
	if !identity.VerifyProof(t.Secret, a.Exporter, a.Key, a.Proof) {
		return unknownToken()
	}
	return nil
}

// identify finds out which node the machine becomes: a new one, or the one it
// was, with the key that is then replaced. Addresses are those it had.
func (s *Service) identify(ctx context.Context, v registry.View, t registry.Token, a Attempt) (registry.Node, identity.NodePublicKey, error) {
	var none identity.NodePublicKey
	node := registry.Node{Key: a.Key, Profile: a.Profile, Inventory: a.Inventory, EnrolledAt: s.Now()}
	var err error
	if node.Name, err = nameOf(t, a.Inventory); err != nil {
		return node, none, err
	}
	if err := checkKey(ctx, v, a.Key); err != nil {
		return node, none, err
	}
	before, err := v.NodeOfMachine(ctx, a.Inventory.MachineID)
	switch {
	case err == nil && before.Name != node.Name:
		return node, none, &link.Refusal{Reason: link.ReasonNameTaken,
			Message: fmt.Sprintf("this machine (machine-id %s) is node %q already and cannot become %q as well; issue a token with `--name %s`, or remove that node with `mesh-plane node remove %s`",
				a.Inventory.MachineID, before.Name, node.Name, before.Name, before.Name)}
	case err == nil:
		node.Addresses, node.Modules, node.Declared = before.Addresses, before.Modules, before.Declared
		return node, before.Key, nil
	case !errors.Is(err, registry.ErrUnknown):
		return node, none, err
	}
	other, err := v.NodeNamed(ctx, node.Name)
	if err == nil {
		return node, none, &link.Refusal{Reason: link.ReasonNameTaken,
			Message: fmt.Sprintf("the name %q belongs to another machine: node %q, host name %q, machine-id %s; issue a token with another `--name`, or remove that node with `mesh-plane node remove %s`",
				node.Name, other.Name, other.Inventory.Hostname, other.Inventory.MachineID, other.Name)}
	}
	if !errors.Is(err, registry.ErrUnknown) {
		return node, none, err
	}
	node.Declared, err = v.Retired(ctx, a.Inventory.MachineID)
	return node, none, err
}

func checkKey(ctx context.Context, v registry.View, key identity.NodePublicKey) error {
	other, err := v.NodeOfKey(ctx, key)
	if err == nil {
		return &link.Refusal{Reason: link.ReasonKeyKnown,
			Message: fmt.Sprintf("the key of this machine is that of node %q already; a machine enrols again with a new key", other.Name)}
	}
	if !errors.Is(err, registry.ErrUnknown) {
		return err
	}
	forgotten, err := v.Forgotten(ctx, key)
	if forgotten {
		return &link.Refusal{Reason: link.ReasonKeyKnown,
			Message: "the key of this machine was a node's once and is refused for ever; a machine enrols again with a new key"}
	}
	return err
}

// nameOf is the name the token is bound to, or the machine's own.
func nameOf(t registry.Token, i inventory.Inventory) (string, error) {
	if !isMachineID(i.MachineID) {
		return "", &link.Refusal{Reason: link.ReasonMalformed,
			Message: fmt.Sprintf("the machine has no machine-id (it says %.40q): run `systemd-machine-id-setup` there", i.MachineID)}
	}
	if t.Node != "" {
		return t.Node, nil
	}
	name := strings.ToLower(i.Hostname)
	if !config.IsLabel(name) {
		return "", &link.Refusal{Reason: link.ReasonMalformed,
			Message: fmt.Sprintf("the machine's host name %.80q cannot be the name of a node (1 to 63 of a-z, 0-9 and -); issue a token with `--name`", i.Hostname)}
	}
	return name, nil
}

// isMachineID tells whether s is one as machine-id(5) wants it.
func isMachineID(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 16 && s == strings.ToLower(s) && s != strings.Repeat("0", 32)
}

// grantAddresses gives the node one overlay address of each family, those it
// has already first.
func (s *Service) grantAddresses(ctx context.Context, v registry.View, n registry.Node) ([]netip.Addr, error) {
	ranges := s.Overlay.Prefixes()
	if o, found := findOverlap(ranges, n.Inventory.Interfaces, n.Addresses); found {
		return nil, &link.Refusal{Reason: link.ReasonOverlap,
			Message: fmt.Sprintf("node %q stands in the network %s at its interface %q, which the mesh's range %s overlaps; change the network, or the overlay in the plane's configuration",
				n.Name, o.Network, o.Interface, o.Range)}
	}
	var granted []netip.Addr
	for _, r := range ranges {
		has := slices.IndexFunc(n.Addresses, r.Contains)
		if has >= 0 {
			granted = append(granted, n.Addresses[has])
			continue
		}
		held, err := v.Held(ctx, r)
		if err != nil {
			return nil, err
		}
		a, ok := NextAddress(r, held)
		if !ok {
			return nil, &link.Refusal{Reason: link.ReasonRangeFull,
				Message: fmt.Sprintf("the mesh's range %s is full: %d addresses are held and none is free; remove a node with `mesh-plane node remove`", r, len(held))}
		}
		granted = append(granted, a)
	}
	return granted, nil
}

// grantModules adds to n what the token assigns, and to the machine the plane
// runs on what has to be there.
func (s *Service) grantModules(ctx context.Context, v registry.View, n *registry.Node, t registry.Token) ([]registry.Assignment, error) {
	wanted := slices.Clone(t.Modules)
	for _, m := range s.Catalogue.Modules() {
		beside := m.Presence == module.BesidePlane && s.PlaneMachine != "" && n.Inventory.MachineID == s.PlaneMachine
		if beside && !slices.Contains(wanted, m.Name) {
			wanted = append(wanted, m.Name)
		}
	}
	var assign []registry.Assignment
	for _, name := range wanted {
		if n.Has(name) {
			continue
		}
		m, err := s.Catalogue.Named(name)
		if err != nil {
			return nil, toLink(err, link.ReasonModule)
		}
		place, err := s.Declarer.Place(ctx, v, *n, m)
		if err != nil {
			return nil, err
		}
		if err := s.Catalogue.CheckPlace(m, place); err != nil {
			return nil, toLink(err, link.ReasonModule)
		}
		n.Modules = slices.Sorted(slices.Values(append(slices.Clone(n.Modules), name)))
		assign = append(assign, registry.Assignment{Node: n.Ref(), Module: name})
	}
	return assign, nil
}

// toLink turns a refusal in words into one of the link.
func toLink(err error, reason link.Reason) error {
	if r := refusal.Of(err); r != nil {
		return &link.Refusal{Reason: reason, Message: r.Error()}
	}
	return err
}
