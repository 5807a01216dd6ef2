// Package link is the contract for what host and plane say to each other: the
// messages, the procedures they belong to, and the version of the protocol.
//
// The transport is Connect (JSON codec below, no generated code) over HTTP/2
// with TLS 1.3. Both ends present a self-signed Ed25519 certificate; the host
// knows the plane by the pin of its key, the plane knows a node by the node's
// public key. Unknown members are ignored on the wire; files are strict.
package link

import (
	"time"

	"mesh/host/declaration"
	"mesh/host/inventory"
)

// Protocol is the version this build speaks. History:
//
//	1  2026-11-30  enrol, watch, fetch, report; what is refused, in a report
//	1  2026-11-30  blob; asked for only where a declaration of format 2 names one
const Protocol = 1

// OldestProtocol is the oldest version either end still accepts.
const OldestProtocol = 1

// Procedures, as paths.
const (
	ProcedureEnrol  = "/mesh.link.v1.Link/Enrol"  // unary; the only one open to an unknown key
	ProcedureWatch  = "/mesh.link.v1.Link/Watch"  // server stream of Offer; open means connected
	ProcedureFetch  = "/mesh.link.v1.Link/Fetch"  // unary
	ProcedureReport = "/mesh.link.v1.Link/Report" // unary
	ProcedureBlob   = "/mesh.link.v1.Link/Blob"   // unary
)

// ExporterLabel is the label for tls.ConnectionState.ExportKeyingMaterial
// (RFC 5705, RFC 8446 §7.5) whose 32 bytes the enrolment proof covers.
const ExporterLabel = "EXPORTER-mesh-enrol-v1"

// MaxEnrolBytes bounds the body of an unauthenticated request.
const MaxEnrolBytes = 256 << 10

// EnrolRequest asks for membership. The node's key is the leaf of the
// connection's client certificate and is not repeated here.
type EnrolRequest struct {
	Protocol  int                 `json:"protocol"`
	TokenID   string              `json:"token_id"` // hex
	Proof     []byte              `json:"proof"`    // identity.Proof; the secret itself is never sent
	Profile   inventory.Profile   `json:"profile"`
	Inventory inventory.Inventory `json:"inventory"`
}

// EnrolResponse grants membership.
type EnrolResponse struct {
	Protocol       int       `json:"protocol"`
	Mesh           string    `json:"mesh"`
	Node           string    `json:"node"`            // the name granted
	Addresses      []string  `json:"addresses"`       // overlay addresses granted, one per family of the mesh
	DeclarationKey string    `json:"declaration_key"` // identity.DeclarationPublicKey text: pinned from now on
	Epoch          uint64    `json:"epoch"`
	Time           time.Time `json:"time"` // the plane's clock
}

// WatchRequest opens the link and says what the host holds.
type WatchRequest struct {
	Protocol   int               `json:"protocol"`
	Epoch      uint64            `json:"epoch"` // of the declaration held; 0 means none
	Generation uint64            `json:"generation"`
	Digest     string            `json:"digest"`
	Profile    inventory.Profile `json:"profile"`
}

// Offer says which declaration is the node's. The first one arrives at once;
// one with the digest already held means "same". Keepalives are offers too.
type Offer struct {
	Epoch      uint64    `json:"epoch"`
	Generation uint64    `json:"generation"`
	Digest     string    `json:"digest"` // empty: the plane has no declaration for this node yet
	Time       time.Time `json:"time"`
}

// KeepaliveInterval is how often the plane repeats its offer; a host that has
// heard nothing for LinkTimeout takes the link for dead.
const (
	KeepaliveInterval = 10 * time.Second
	LinkTimeout       = 30 * time.Second
)

// FetchRequest asks for a declaration by digest.
type FetchRequest struct {
	Digest string `json:"digest"`
}

// FetchResponse carries what declaration.Sign wrote.
type FetchResponse struct {
	Signed []byte `json:"signed"`
}

// MaxBlobPart is the most bytes of a blob in one response.
const MaxBlobPart = 1 << 20

// BlobRequest asks for a part of a content that the node's declaration names.
type BlobRequest struct {
	Digest string `json:"digest"` // declaration.Blob's
	Offset int64  `json:"offset"`
}

// BlobResponse carries at most MaxBlobPart bytes from the offset on; none at or
// behind the end.
type BlobResponse struct {
	Data []byte `json:"data"`
}

// ReportRequest carries what became of the declaration held. The outcome is zero
// while none is held that this plane made.
type ReportRequest struct {
	Outcome   declaration.Outcome `json:"outcome"`
	Inventory inventory.Inventory `json:"inventory"`
	Refused   *Refused            `json:"refused,omitempty"` // what is offered and not followed
}

// Refused is a declaration that the host does not follow. The one it holds stays
// in force.
type Refused struct {
	Epoch      uint64    `json:"epoch"`
	Generation uint64    `json:"generation"`
	Digest     string    `json:"digest"`
	Reason     string    `json:"reason"` // one line
	Time       time.Time `json:"time"`   // by the host's clock
}

// ReportResponse acknowledges a report.
type ReportResponse struct {
	Time time.Time `json:"time"`
}
