// Package api is what an operator asks of a running plane: server and client
// together, so that neither knows a word the other does not.
//
// It is served on a UNIX socket that its owner alone can open; whoever can open
// it is the operator. Calls are Connect with JSON, like the link.
package api

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"mesh/host/declaration"
	"mesh/host/inventory"
	"mesh/host/link"
	"mesh/plane/registry"
)

// Procedures, as paths.
const (
	procedureIssueToken = "/mesh.plane.v1.Operator/IssueToken"
	procedureNodes      = "/mesh.plane.v1.Operator/Nodes"
	procedureNode       = "/mesh.plane.v1.Operator/Node"
	procedureRetire     = "/mesh.plane.v1.Operator/RetireNode"
	procedureRemove     = "/mesh.plane.v1.Operator/RemoveNode"
	procedureAssign     = "/mesh.plane.v1.Operator/Assign"
	procedureModules    = "/mesh.plane.v1.Operator/Modules"
	procedureConfigure  = "/mesh.plane.v1.Operator/Configure"
	procedureHost       = "/mesh.plane.v1.Operator/Host"
	procedureSetHost    = "/mesh.plane.v1.Operator/SetHost"
	procedureUnsetHost  = "/mesh.plane.v1.Operator/UnsetHost"
)

// The answers below are also what --json prints: members may be added, and
// never change their meaning.

// TokenRequest asks for a token.
type TokenRequest struct {
	Node            string   `json:"node,omitempty"`
	Modules         []string `json:"modules,omitempty"`
	LifetimeSeconds int64    `json:"lifetime_seconds,omitempty"` // 0 means the default
}

// TokenResponse carries a token that was issued.
type TokenResponse struct {
	Token     TokenText `json:"token"`
	ID        string    `json:"id"`
	ExpiresAt time.Time `json:"expires_at"`
	Node      string    `json:"node,omitempty"`
	Modules   []string  `json:"modules"`
}

// TokenText is a token's line, which holds its secret. Printing it shows
// nothing; a conversion to string does.
type TokenText string

const redacted = "[token]"

func (TokenText) String() string             { return redacted }
func (TokenText) GoString() string           { return redacted }
func (TokenText) LogValue() slog.Value       { return slog.StringValue(redacted) }
func (TokenText) Format(f fmt.State, _ rune) { io.WriteString(f, redacted) }

// States of a node.
const (
	Connected    = "connected"
	Disconnected = "disconnected"
)

// Node is one node as a list shows it.
type Node struct {
	Name         string        `json:"name"`
	State        string        `json:"state"`        // Connected or Disconnected
	StateSince   time.Time     `json:"state_since"`  // when the link was opened, or was last known to be up
	HostVersion  string        `json:"host_version"` // of mesh-host, as it last said
	Addresses    []string      `json:"addresses"`    // overlay
	Modules      []string      `json:"modules"`
	Declared     Generation    `json:"declared"`
	Acknowledged *Acknowledge  `json:"acknowledged"` // null before the first report
	Refused      *link.Refused `json:"refused"`      // what it is offered and does not follow; null: nothing
	// RetiringSince is when it began to be retired; null: it is not. It goes when it
	// has reported that it owns nothing any more.
	RetiringSince *time.Time `json:"retiring_since"`
}

// Generation numbers a declaration.
type Generation struct {
	Epoch      uint64 `json:"epoch"`
	Generation uint64 `json:"generation"`
	Digest     string `json:"digest"`
}

// Acknowledge is what a node last reported to hold.
type Acknowledge struct {
	Generation
	ReportedAt time.Time       `json:"reported_at"`
	Resources  registry.Counts `json:"resources"`
}

// NodeDetail is everything about one node.
type NodeDetail struct {
	Node
	Key        string               `json:"key"`
	EnrolledAt time.Time            `json:"enrolled_at"`
	Profile    inventory.Profile    `json:"profile"`
	Inventory  inventory.Inventory  `json:"inventory"`
	HostAbove  string               `json:"host_above,omitempty"` // the version of mesh-host it would have been declared, did no higher one run there
	Results    []declaration.Result `json:"results"`              // of the last report
}

// Module is one module of the catalogue.
type Module struct {
	Name          string   `json:"name"`
	Summary       string   `json:"summary"`
	Presence      string   `json:"presence"`
	Instantiation string   `json:"instantiation"`
	Excludes      []string `json:"excludes"`
	Nodes         []string `json:"nodes"` // that have it
}

// AssignRequest gives a module to a node, or takes it away.
type AssignRequest struct {
	Node     string `json:"node"`
	Module   string `json:"module"`
	Unassign bool   `json:"unassign,omitempty"`
}

// AssignResponse says what became of it.
type AssignResponse struct {
	Node       string `json:"node"`
	Module     string `json:"module"`
	Changed    bool   `json:"changed"` // false: it was so already
	Generation uint64 `json:"generation"`
}

// RetireResponse says what became of retiring a node.
type RetireResponse struct {
	Node       string `json:"node"`
	Changed    bool   `json:"changed"`    // false: it was being retired already
	Generation uint64 `json:"generation"` // the final one
}

// ConfigureRequest gives the plane another configuration.
type ConfigureRequest struct {
	File string `json:"file"` // what problems call it
	Text string `json:"text"`
}

// ConfigureResponse says what became of it.
type ConfigureResponse struct {
	Node       string   `json:"node"`    // whose host writes it and restarts the plane
	Changed    bool     `json:"changed"` // false: it was so already
	Generation uint64   `json:"generation"`
	Notes      []string `json:"notes"` // what it means for the nodes there are
}

// HostPackage is what all nodes of one architecture shall have of mesh-host.
type HostPackage struct {
	Architecture string    `json:"architecture"` // as profiles have it
	Version      string    `json:"version"`
	Digest       string    `json:"digest"`
	Bytes        int64     `json:"bytes"`
	Since        time.Time `json:"since"`
	Downgrade    bool      `json:"downgrade"` // it is also for nodes on which a higher version runs
}

// HostPackages is the answer that lists them, by architecture.
type HostPackages struct {
	Packages []HostPackage `json:"packages"`
}

// SetHostRequest gives a Debian package of mesh-host.
type SetHostRequest struct {
	Deb       []byte `json:"deb"`
	Downgrade bool   `json:"downgrade,omitempty"` // it may be lower than what runs, now and on nodes to come
}

// SetHostResponse says what became of it.
type SetHostResponse struct {
	Package HostPackage `json:"package"`
	Changed bool        `json:"changed"` // false: it was so already
	Nodes   []string    `json:"nodes"`   // that it is declared to
	Notes   []string    `json:"notes"`   // about nodes that it does not reach
}

// UnsetHostResponse says what became of unsetting it.
type UnsetHostResponse struct {
	Changed bool     `json:"changed"` // false: none was set
	Nodes   []string `json:"nodes"`   // that it is declared to no more
	Notes   []string `json:"notes"`
}

// NodeRequest names a node.
type NodeRequest struct {
	Name string `json:"name"`
}

// Nodes is the answer that lists nodes, by name.
type Nodes struct {
	Nodes []Node `json:"nodes"`
}

// Modules is the answer that lists modules, by name.
type Modules struct {
	Modules []Module `json:"modules"`
}

// Empty is an answer without a word.
type Empty struct{}
