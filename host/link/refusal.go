package link

// Reason says why the plane refused a call, in a word both ends know. A word an
// end does not know is treated by its error code alone.
type Reason string

// Every reason of this version of the protocol.
const (
	ReasonTokenUnknown Reason = "token_unknown" // no such token, or the proof is not one of its secret
	ReasonTokenExpired Reason = "token_expired"
	ReasonTokenSpent   Reason = "token_spent"
	ReasonNameTaken    Reason = "name_taken"     // another node has the name
	ReasonKeyKnown     Reason = "key_known"      // the key is a node's already, from another machine or with another token
	ReasonOverlap      Reason = "range_overlap"  // a range of the mesh is one of the machine's networks
	ReasonRangeFull    Reason = "range_full"     // no address is free
	ReasonTooOld       Reason = "host_too_old"   // protocol or format
	ReasonModule       Reason = "module_refused" // a module of the token cannot be on this machine
	ReasonMalformed    Reason = "malformed"      // the request cannot be one of this protocol
	ReasonNotANode     Reason = "not_a_node"     // the key is no node's: never enrolled, retired or revoked
	ReasonNotFound     Reason = "not_found"      // no declaration, or no content, with this digest
	ReasonBusy         Reason = "busy"           // too many requests; try again
	ReasonUnavailable  Reason = "unavailable"    // the plane cannot answer now; try again
)

// ReasonHeader carries the Reason in the metadata of a Connect error.
const ReasonHeader = "Mesh-Reason"

// Code is the Connect (and gRPC) status code for r, so that both ends map it
// the same way: https://connectrpc.com/docs/protocol#error-codes.
func (r Reason) Code() uint32 {
	switch r {
	case ReasonMalformed:
		return 3 // invalid_argument
	case ReasonNotFound:
		return 5 // not_found
	case ReasonNameTaken, ReasonKeyKnown:
		return 6 // already_exists
	case ReasonTokenUnknown, ReasonTokenExpired, ReasonTokenSpent:
		return 7 // permission_denied
	case ReasonRangeFull, ReasonBusy:
		return 8 // resource_exhausted
	case ReasonOverlap, ReasonTooOld, ReasonModule:
		return 9 // failed_precondition
	case ReasonUnavailable:
		return 14 // unavailable
	case ReasonNotANode:
		return 16 // unauthenticated
	}
	return 2 // unknown
}

// Refusal is the plane's answer when it refuses a call. Message is one line for
// the operator at the host: what, why, and what to do. It never holds a secret.
type Refusal struct {
	Reason  Reason
	Message string
}

// Error is the message.
func (r *Refusal) Error() string { return r.Message }
