package agent

import (
	"context"
	"fmt"

	"mesh/host/apply"
	"mesh/host/resource"
	"mesh/host/store"
)

// Plan says what Hand.Pass, given the same accept, would do on machine now, and
// which declaration it would follow; nil and an empty plan when none is held. It
// decides as the pass does, from the record as it is at this moment, even while
// a pass goes on. Errors match store.ErrOlder for an accept that a pass would
// refuse, and store.ErrNewer.
func (i Inspection) Plan(ctx context.Context, machine resource.Machine, accept *store.Accepted) (*store.Accepted, apply.Plan, error) {
	view, _, err := store.Read(i.Store, RecordExpected(i.Identity))
	if err != nil {
		return nil, apply.Plan{}, fmt.Errorf("read this machine's record: %w", err)
	}
	follows := view.Accepted
	if isNew(follows, accept) {
		if err := view.MayAccept(*accept); err != nil {
			return nil, apply.Plan{}, err
		}
		follows = accept
	}
	if follows == nil {
		return nil, apply.Plan{}, nil
	}
	desired, err := Desired(*follows)
	if err != nil {
		return follows, apply.Plan{}, fmt.Errorf("read the declaration held: %w", err)
	}
	plan, err := apply.Foresee(ctx, machine, view, desired)
	return follows, plan, err
}

// Follows is what a machine that holds this follows; nil for nothing.
func Follows(held *store.Accepted) (*apply.Desired, error) {
	if held == nil {
		return nil, nil
	}
	desired, err := Desired(*held)
	if err != nil {
		return nil, fmt.Errorf("read the declaration held: %w", err)
	}
	return &desired, nil
}

// Orphans is apply.Orphans for the record as it is at this moment.
func (i Inspection) Orphans(ctx context.Context, machine resource.Machine) ([]apply.Orphan, error) {
	view, _, err := store.Read(i.Store, RecordExpected(i.Identity))
	if err != nil {
		return nil, fmt.Errorf("read this machine's record: %w", err)
	}
	desired, err := Follows(view.Accepted)
	if err != nil {
		return nil, err
	}
	return apply.Orphans(ctx, machine, view, desired)
}
