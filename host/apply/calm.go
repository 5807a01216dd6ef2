package apply

import (
	"context"
	"maps"
	"slices"

	"mesh/host/declaration"
	"mesh/host/resource"
	"mesh/host/store"
)

// Calm is what a pass saw of a machine on which it had nothing to do. As long as
// the same is seen again, and the record is the same, another pass over the same
// declaration would come to the same.
type Calm struct {
	keys     []store.Key
	packages []declaration.Resource
	seen     Seen
}

// newCalm is of a pass that had this plan, left this record and knew this; nil where it had
// something to do, now or later.
func newCalm(d Desired, plan Plan, record store.View, k *known) *Calm {
	if !plan.Quiet() || len(record.Intents)+len(record.Debts) > 0 {
		return nil
	}
	c := &Calm{keys: k.places, seen: k.seen}
	for _, r := range d.Resources {
		if r.Package != nil {
			c.packages = append(c.packages, r)
		}
	}
	return c
}

// Still looks at the machine again and says whether it is as it was. It touches
// nothing. What cannot be looked at is not as it was.
func (c *Calm) Still(ctx context.Context, m resource.Machine) bool {
	accounts, err := m.Accounts()
	if err != nil || !maps.Equal(accounts.Users, c.seen.Accounts.Users) || !maps.Equal(accounts.Groups, c.seen.Accounts.Groups) {
		return false
	}
	for _, r := range c.packages {
		version, err := resource.Offered(ctx, m, r)
		broken, brokenErr := resource.BrokenVersions(m, r)
		if err != nil || brokenErr != nil || version != c.seen.Offered[r.Where()] || !slices.Equal(broken, c.seen.Broken[r.Where()]) {
			return false
		}
	}
	return resource.Same(ctx, m, c.keys, c.seen.Found)
}
