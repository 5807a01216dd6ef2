package verify

import (
	"context"
	"time"

	"mesh/lab/machine"
)

// Small parts that are tested alone.
var (
	Available = available
	Nearest   = nearest
	OneLine   = oneLine
	Prefix    = prefix
	PrefixOf  = prefixOf
	Abandoned = abandoned
	Smallest  = smallest
)

// Hypervisor is what the checks need of one.
type Hypervisor = hypervisor

// DiskMount is the mount in a check's directory.
const DiskMount = diskMount

// OfGuests does the checks of a whole guest on any hypervisor, each within limit.
func OfGuests(ctx context.Context, limit time.Duration, h Hypervisor, a machine.Accelerator, cfg Config) (results []Result) {
	v := &virt{hypervisor: h, accelerator: a, store: cfg.Store, layer: cfg.Layer}
	for _, c := range v.guestChecks() {
		timed, cancel := context.WithTimeout(ctx, limit)
		results = append(results, c.run(timed))
		cancel()
	}
	return results
}
