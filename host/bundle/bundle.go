// Package bundle applies a bundle: the resources of the first node, in one file
// the operator hands over, before there is any plane.
//
// It is the same path a declaration takes, from the record on. A machine that is
// a member of a mesh follows its plane and takes no bundle.
//
// cmd/host may import it.
package bundle

import (
	"context"
	"fmt"
	"time"

	"mesh/host/declaration"
	"mesh/host/store"
)

// Passer accepts a declaration durably and applies it; *agent.Hand is one.
type Passer interface {
	Pass(ctx context.Context, accept *store.Accepted) (*store.Accepted, declaration.Outcome, error)
}

// Config is what reconciling a bundle needs.
type Config struct {
	Hand Passer
	Mesh string // the mesh this machine is a member of; empty for none
	Node string // its name there
	Now  func() time.Time
}

// EnrolledError refuses a bundle on a machine that is a member of a mesh.
// Nothing was touched.
type EnrolledError struct{ Mesh, Node string }

func (e *EnrolledError) Error() string {
	return fmt.Sprintf("reconcile bundle: this machine is node %s of mesh %s and follows its plane; a bundle is for a machine that is a member of no mesh: change what the plane declares instead", e.Node, e.Mesh)
}

// Accept reads a bundle strictly and makes the record of it. It touches nothing.
// Errors are those of declaration.ParseBundle.
func Accept(text []byte, now time.Time) (store.Accepted, error) {
	b, err := declaration.ParseBundle(text)
	if err != nil {
		return store.Accepted{}, err
	}
	return store.Accepted{Source: store.SourceBundle, Digest: declaration.Digest(text), Time: now.UTC(), Document: text, Resources: b.Resources}, nil
}

// Admit is Accept for the machine of cfg, of which it uses no Hand. It refuses
// what Reconcile refuses, with the same errors, and touches nothing.
func Admit(cfg Config, text []byte) (store.Accepted, error) {
	accepted, err := Accept(text, cfg.Now())
	if err == nil {
		err = cfg.refuses()
	}
	return accepted, err
}

func (cfg Config) refuses() error {
	if cfg.Mesh == "" {
		return nil
	}
	return &EnrolledError{Mesh: cfg.Mesh, Node: cfg.Node}
}

// Reconcile brings the machine to the bundle that Accept read and says what
// became of each resource; the outcome is complete even when there is an error.
// A machine that is a member of a mesh refuses it (*EnrolledError) before
// anything is touched.
func Reconcile(ctx context.Context, cfg Config, accepted store.Accepted) (declaration.Outcome, error) {
	if err := cfg.refuses(); err != nil {
		return declaration.Outcome{}, err
	}
	_, outcome, err := cfg.Hand.Pass(ctx, &accepted)
	if err != nil {
		return outcome, fmt.Errorf("reconcile bundle: %w", err)
	}
	return outcome, nil
}
