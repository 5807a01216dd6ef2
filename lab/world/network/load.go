package network

import (
	"context"

	"mesh/lab/world/namespace"
)

// Load makes the filters of a namespace be as a ruleset says, in one transaction.
func Load(ctx context.Context, space, ruleset string) error {
	return namespace.Do(space, func() error { return load(ctx, ruleset) })
}
