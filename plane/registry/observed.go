package registry

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"mesh/host/declaration"
	"mesh/host/identity"
	"mesh/host/inventory"
	"mesh/host/link"
)

// Report is what a node last said about itself. Only the last one is kept.
type Report struct {
	Node      identity.NodePublicKey
	At        time.Time // by the plane's clock
	Outcome   declaration.Outcome
	Inventory inventory.Inventory
	Refused   *link.Refused // what it is offered and does not follow; nil: nothing
}

// Counts says how many resources came to what in one pass.
type Counts struct {
	InSync  int `json:"in_sync"` // right, whether found so or put right
	Kept    int `json:"kept"`
	Waiting int `json:"waiting"`
	Failed  int `json:"failed"`
}

// Count counts results. A resource that was removed is gone and not counted.
func Count(results []declaration.Result) Counts {
	var c Counts
	for _, r := range results {
		switch r.Status {
		case declaration.StatusInSync, declaration.StatusChanged:
			c.InSync++
		case declaration.StatusKept:
			c.Kept++
		case declaration.StatusWaiting:
			c.Waiting++
		case declaration.StatusFailed:
			c.Failed++
		}
	}
	return c
}

// Settled tells whether a pass that came to c left nothing to be done.
func (c Counts) Settled() bool { return c.Waiting+c.Failed == 0 }

// String is for people: "3 in sync, 1 failed".
func (c Counts) String() string {
	parts := []string{fmt.Sprintf("%d in sync", c.InSync)}
	for _, other := range []struct {
		n    int
		what string
	}{{c.Kept, "kept"}, {c.Waiting, "waiting"}, {c.Failed, "failed"}} {
		if other.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", other.n, other.what))
		}
	}
	return strings.Join(parts, ", ")
}

// Acknowledged is what a node last said it holds. A zero At means it has not
// reported since its enrolment.
type Acknowledged struct {
	At         time.Time
	Epoch      uint64
	Generation uint64
	Digest     string
	Counts     Counts
}

// Standing is one node beside what was last heard of it.
type Standing struct {
	Name         string
	Key          identity.NodePublicKey
	Addresses    []netip.Addr
	Modules      []string
	EnrolledAt   time.Time
	RetiringAt   time.Time // since when it is being retired; zero: it is not
	SeenAt       time.Time // when the link was last known to be up, to a minute
	HostVersion  string    // of mesh-host, as it last said
	Declared     Declared
	Acknowledged Acknowledged
	Refused      *link.Refused // as it last reported
}

// Detail is everything about one node.
type Detail struct {
	Standing
	Profile   inventory.Profile
	Inventory inventory.Inventory
	Results   []declaration.Result // of the last report
}

// Linked is what a call over the link needs to know about its caller.
type Linked struct {
	Name      string
	MachineID string
	Profile   inventory.Profile
	Retiring  bool
	Declared  Declared
}
