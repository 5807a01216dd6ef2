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

// EnrolledError refuses a bundle on a machine that is a member of a mesh.
type EnrolledError struct{ Mesh, Node string }

func (e *EnrolledError) Error() string {
	return fmt.Sprintf("reconcile bundle: this machine is node %s of mesh %s and follows its plane: a bundle is for a machine before it is enrolled; change what the plane declares instead", e.Node, e.Mesh)
}

// Accept reads a bundle strictly and gives the record of it, as it is accepted
// at the time given. It touches nothing. Its error is that of
// declaration.ParseBundle.
func Accept(text []byte, now time.Time) (store.Accepted, error) {
	b, err := declaration.ParseBundle(text)
	if err != nil {
		return store.Accepted{}, err
	}
	digest, err := b.Digest()
	if err != nil {
		return store.Accepted{}, err
	}
	return store.Accepted{Source: store.SourceBundle, Digest: digest, Time: now.UTC(), Document: text}, nil
}

// Reconcile reads the bundle and brings the machine to it through hand. The
// outcome is complete even when there is an error.
func Reconcile(ctx context.Context, hand Passer, text []byte, now time.Time) (declaration.Outcome, error) {
	accepted, err := Accept(text, now)
	if err != nil {
		return declaration.Outcome{}, err
	}
	_, outcome, err := hand.Pass(ctx, &accepted)
	if err != nil {
		return outcome, fmt.Errorf("reconcile bundle: %w", err)
	}
	return outcome, nil
}
