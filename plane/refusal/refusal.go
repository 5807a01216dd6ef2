// Package refusal is how the plane says no to a person: what was refused, why,
// and what to do next, with a kind that maps to an exit code and to a status on
// the wire.
//
// It is pure, and every package of the plane may import it. A refusal carries
// words only, never a cause: what went wrong inside (a disk, a lock) is an
// ordinary error and stays inside.
package refusal

import "errors"

// Kind is why something was refused. The numbers are the status codes of the
// wire, which are those of gRPC:
// https://grpc.github.io/grpc/core/md_doc_statuscodes.html
type Kind uint32

// Every kind.
const (
	Invalid     Kind = 3  // the request itself is wrong
	Unknown     Kind = 5  // what it names is not there
	Taken       Kind = 6  // what it asks for belongs to another
	Denied      Kind = 7  // the caller has not shown that it may
	Exhausted   Kind = 8  // nothing of it is left, or it comes too often
	Conflict    Kind = 9  // it contradicts what stands
	Unavailable Kind = 14 // not now; the same request may work later
)

// Error is one refusal. Each part is a clause without a final stop; Do may be
// empty where nothing can be done.
type Error struct {
	Kind Kind
	What string // what was refused, with the node, module or token it is about
	Why  string
	Do   string
}

// Error is one line of all parts.
func (e *Error) Error() string {
	line := e.What + ": " + e.Why
	if e.Do != "" {
		line += "; " + e.Do
	}
	return line
}

// ExitCode is 2 for a request that is wrong in itself, else 1.
func (e *Error) ExitCode() int {
	if e.Kind == Invalid {
		return 2
	}
	return 1
}

// Of finds the refusal in err's chain; nil where there is none.
func Of(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}
