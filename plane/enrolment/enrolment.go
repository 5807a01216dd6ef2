// Package enrolment decides who is a node: it issues tokens, admits machines
// that hold one, and removes nodes.
//
// A token admits one machine, once: it is spent in the transaction that makes
// the node, gives it its addresses and modules, and signs its first
// declaration. Whatever is refused leaves the token as it was. Secrets are in
// no error and no log.
package enrolment

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"mesh/host/identity"
	"mesh/host/inventory"
	"mesh/plane/config"
	"mesh/plane/declare"
	"mesh/plane/module"
	"mesh/plane/refusal"
	"mesh/plane/registry"
)

// DefaultLifetime is how long a token admits if nothing else is said, and
// MaxLifetime how long it may.
const (
	DefaultLifetime = time.Hour
	MaxLifetime     = 30 * 24 * time.Hour
)

// Store runs a decision in one transaction with the change it decides on. An
// error of the decision comes back as it is, and nothing has changed.
type Store interface {
	Update(ctx context.Context, decide registry.Decide) error
	// ForgetExpired overwrites the secrets of tokens whose time is over.
	ForgetExpired(ctx context.Context, now time.Time) error
}

// Config is what a Service needs.
type Config struct {
	Mesh         registry.Mesh
	Overlay      config.Overlay
	Addresses    []netip.AddrPort // of the plane, for tokens
	PlaneMachine string           // machine-id of the machine the plane runs on; empty where it is not known
	Catalogue    module.Catalogue
	Declarer     *declare.Declarer
	Store        Store
	Now          func() time.Time
	Random       io.Reader    // nil means crypto/rand
	Log          *slog.Logger // nil discards
}

// Service issues tokens and admits machines. Safe for concurrent use.
type Service struct {
	Config
}

// New makes a Service.
func New(c Config) *Service {
	if c.Random == nil {
		c.Random = rand.Reader
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{c}
}

// housekeepingInterval is how long the secret of an expired token stays at most.
const housekeepingInterval = time.Minute

// Run forgets the secrets of expired tokens until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(housekeepingInterval)
	defer tick.Stop()
	for {
		if err := s.Store.ForgetExpired(ctx, s.Now()); err != nil && ctx.Err() == nil {
			s.Log.Warn("expired tokens are not forgotten yet", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// TokenRequest says what a token is for. The zero value is a token for any
// machine, under its own name, without modules, for DefaultLifetime.
type TokenRequest struct {
	Node     string
	Modules  []string
	Lifetime time.Duration
}

// Issue makes a token and keeps what is needed to recognise it. What cannot be
// kept to later is refused now, with a *refusal.Error.
func (s *Service) Issue(ctx context.Context, r TokenRequest) (identity.Token, error) {
	if r.Lifetime == 0 {
		r.Lifetime = DefaultLifetime
	}
	modules := slices.Compact(slices.Sorted(slices.Values(r.Modules)))
	if err := s.checkRequest(r, modules); err != nil {
		return identity.Token{}, err
	}
	secret, err := identity.NewSecret(s.Random)
	if err != nil {
		return identity.Token{}, fmt.Errorf("make token: %v", err)
	}
	now := s.Now()
	t := identity.Token{
		Expires:   now.Add(r.Lifetime).UTC().Truncate(time.Second),
		Pins:      []identity.Pin{s.Mesh.LinkKey.Pin()},
		Addresses: s.Addresses,
		Secret:    secret,
	}
	if _, err := io.ReadFull(s.Random, t.ID[:]); err != nil {
		return identity.Token{}, fmt.Errorf("make token: %v", err)
	}
	if err := t.Check(); err != nil {
		return identity.Token{}, fmt.Errorf("make token: %v", err)
	}
	err = s.Store.Update(ctx, func(ctx context.Context, v registry.View) (registry.Change, error) {
		if err := s.checkHolders(ctx, v, r.Node, modules); err != nil {
			return registry.Change{}, err
		}
		return registry.Change{At: now, Issue: &registry.Token{
			ID: t.ID, Secret: secret, Issued: now, Expires: t.Expires, Node: r.Node, Modules: modules,
		}}, nil
	})
	if err != nil {
		return identity.Token{}, err
	}
	s.Log.Info("token issued", "token", t.IDText(), "node", r.Node, "expires", t.Expires)
	return t, nil
}

func (s *Service) checkRequest(r TokenRequest, modules []string) error {
	refuse := func(why, do string) error {
		return &refusal.Error{Kind: refusal.Invalid, What: "issuing a token", Why: why, Do: do}
	}
	switch {
	case r.Node != "" && !config.IsLabel(r.Node):
		return refuse(fmt.Sprintf("%q is not a name for a node", r.Node), "take 1 to 63 of a-z, 0-9 and -, not beginning or ending with -")
	case r.Lifetime < time.Second || r.Lifetime > MaxLifetime:
		return refuse(fmt.Sprintf("%s is no lifetime for a token", r.Lifetime), fmt.Sprintf("take one from 1s to %s", MaxLifetime))
	case len(s.Addresses) > identity.MaxTokenAddresses:
		return refuse(fmt.Sprintf("a token holds at most %d addresses of the plane, and its configuration names %d", identity.MaxTokenAddresses, len(s.Addresses)), "")
	}
	// Two modules that cannot stand on one node are found here already.
	_, err := declare.Merge(s.Catalogue, modules)
	return err
}

// checkHolders refuses a token for a module that a node other than the one it
// is bound to has, where exactly one may.
func (s *Service) checkHolders(ctx context.Context, v registry.View, node string, modules []string) error {
	for _, name := range modules {
		m, err := s.Catalogue.Named(name)
		if err != nil {
			return err
		}
		if err := m.CheckAssignable(); err != nil {
			return err
		}
		holders, err := v.Holders(ctx, name)
		if err != nil {
			return err
		}
		if m.Instantiation == module.ExactlyOne && len(holders) > 0 && holders[0] != node {
			return &refusal.Error{
				Kind: refusal.Conflict,
				What: fmt.Sprintf("issuing a token that assigns module %q", name),
				Why:  fmt.Sprintf("exactly one may run, and node %q has it", holders[0]),
			}
		}
	}
	return nil
}

// Attempt is what one machine sent to become a node.
type Attempt struct {
	TokenID   string // hex
	Proof     []byte
	Exporter  []byte                 // of the connection
	Key       identity.NodePublicKey // of the connection's verified leaf
	Profile   inventory.Profile
	Inventory inventory.Inventory
}

// Grant is what it got.
type Grant struct {
	Node      string
	Addresses []netip.Addr
}
