// Package registry is what the plane knows: the mesh itself, its nodes, the
// tokens it gave out, what each node was told and what it last reported.
//
// It is pure: values, and the shape in which decisions read and change them.
// A decision reads through a View and returns a Change; it does not act. Every
// package of the plane may import it.
package registry

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"mesh/host/declaration"
	"mesh/host/identity"
	"mesh/host/inventory"
)

// ErrUnknown is matched by errors of reads that found nothing.
var ErrUnknown = errors.New("not known to this plane")

// Mesh is what makes one mesh this one. It is made once and never changes, but
// for the epoch, which a restore raises.
type Mesh struct {
	Name           string
	Epoch          uint64
	LinkKey        identity.LinkKey
	DeclarationKey identity.DeclarationKey
	CreatedAt      time.Time
}

// Node is a machine that is enrolled.
type Node struct {
	Name       string
	Key        identity.NodePublicKey
	Addresses  []netip.Addr // overlay addresses granted, IPv4 before IPv6
	Modules    []string     // assigned, sorted
	Profile    inventory.Profile
	Inventory  inventory.Inventory
	EnrolledAt time.Time // of the present key
	RetiringAt time.Time // since when it is being retired; zero: it is not
	Declared   Declared
}

// Has tells whether module is assigned to n.
func (n Node) Has(module string) bool { return slices.Contains(n.Modules, module) }

// Retiring tells whether n is being retired: its declaration is the final one,
// and it is removed once it has carried that out.
func (n Node) Retiring() bool { return !n.RetiringAt.IsZero() }

// Declared is the newest declaration of a node, without its bytes.
type Declared struct {
	Epoch      uint64
	Generation uint64
	Digest     string // of the declaration
	Content    string // of its resources alone: equal for two generations that declare the same
}

// TokenID names a token; it is not secret.
type TokenID [8]byte

// Token is what the plane keeps of a token.
type Token struct {
	ID      TokenID
	Secret  identity.Secret // zero once the token is spent or was found expired
	Issued  time.Time
	Expires time.Time
	Node    string                 // the name it is bound to; empty: the machine's own
	Modules []string               // to assign at enrolment, sorted
	SpentBy identity.NodePublicKey // zero while it is not spent
}

// View reads what is known, as one transaction sees it. Nodes that were removed
// are not in it. Reads that find nothing match ErrUnknown; every other error is
// a store that cannot be read, and the decision has to end with it.
//
// It is a port: plane/store implements it over its database.
type View interface {
	Token(ctx context.Context, id TokenID) (Token, error)
	NodeNamed(ctx context.Context, name string) (Node, error)
	NodeOfKey(ctx context.Context, key identity.NodePublicKey) (Node, error)
	NodeOfMachine(ctx context.Context, machineID string) (Node, error)
	Nodes(ctx context.Context) ([]Node, error) // by name
	// Forgotten tells whether key was a node's once and is no longer.
	Forgotten(ctx context.Context, key identity.NodePublicKey) (bool, error)
	// Retired is the newest declaration that a node of this machine had before it
	// was removed, by its numbers alone; zero where there was none. The machine
	// may hold it still, and takes no lower generation.
	Retired(ctx context.Context, machineID string) (Declared, error)
	// Held lists the overlay addresses within prefix that are not free, ascending.
	Held(ctx context.Context, prefix netip.Prefix) ([]netip.Addr, error)
	// Holders lists the nodes that have module, by name.
	Holders(ctx context.Context, module string) ([]string, error)
	// PlaneConfig is the plane's configuration as it was last applied; empty while
	// the plane has what its file says.
	PlaneConfig(ctx context.Context) (string, error)
	// HostPackages lists what nodes shall have of mesh-host, by architecture.
	HostPackages(ctx context.Context) ([]HostPackage, error)
}

// Decide is a decision: it reads and says what shall change.
type Decide func(ctx context.Context, v View) (Change, error)

// Change is what one decision changes, all of it or nothing. The parts apply in
// the order of the fields. The zero value changes nothing.
type Change struct {
	At     time.Time // when it was decided
	Issue  *Token
	Enrol  *Enrolment
	Retire *Ref // marks it; its modules are left to Unassign, its end to Declare
	Remove *Ref
	// Assign and Unassign name a module that the node does not, or does, have.
	Assign      []Assignment
	Unassign    []Assignment
	PlaneConfig string // to be applied; empty leaves it
	SetHost     *HostPackage
	UnsetHost   bool // for every architecture
	Declare     []Declaration
}

// IsZero tells whether nothing changes.
func (c Change) IsZero() bool {
	return c.Issue == nil && c.Enrol == nil && c.Retire == nil && c.Remove == nil && c.PlaneConfig == "" &&
		c.SetHost == nil && !c.UnsetHost && len(c.Assign)+len(c.Unassign)+len(c.Declare) == 0
}

// Ref points at a node: by its key, with its name for people.
type Ref struct {
	Name string
	Key  identity.NodePublicKey
}

// Ref points at n.
func (n Node) Ref() Ref { return Ref{n.Name, n.Key} }

// Enrolment makes a node, or gives a node that exists a new key: then Replaces
// is its old key, which is forgotten. The token is spent with it.
type Enrolment struct {
	Node     Node // Modules and Declared are left to Assign and Declare
	Replaces identity.NodePublicKey
	Token    TokenID
}

// Assignment is one module at one node.
type Assignment struct {
	Node   Ref
	Module string
}

// Declaration is a new generation for one node, signed.
type Declaration struct {
	Node Ref
	Declared
	Signed   []byte // as declaration.Sign wrote it
	Contents []Content
}

// HostPackage is the Debian package of mesh-host that all nodes of one
// architecture shall have on which no higher version runs.
type HostPackage struct {
	Architecture string // as profiles have it
	Version      string
	Content      Content // without its data where it is read
	Since        time.Time
	Downgrade    bool // also those on which a higher version runs
}

// Content is what a declaration or a HostPackage names by digest. It is kept with
// that and for as long as one that is kept names it.
type Content struct {
	declaration.Blob
	Data string // empty: it is kept already
}
