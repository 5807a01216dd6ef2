package snapshot

import (
	"context"
	"errors"

	"mesh/lab/lifecycle"
)

// Exit codes that errors of this package carry; they are those of every program.
const (
	codeFailed       = 1
	codeUsage        = 2
	codePrerequisite = 4
	codeInterrupted  = 130
)

// failure tells why something that was begun came to nothing.
func failure(ctx context.Context, what string, err error, next string) error {
	e := &lifecycle.Error{What: what + " failed", Why: err.Error(), Next: next, Code: codeFailed, Cause: err}
	if inner := (*lifecycle.Error)(nil); errors.As(err, &inner) {
		e.Code = inner.Code
		if err.Error() == inner.Error() { // nothing else is to be told
			e.What, e.Where, e.Why = what+": "+inner.What, inner.Where, inner.Why
			if inner.Next != "" {
				e.Next = inner.Next
			}
		}
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		e.What, e.Why, e.Code = what+": interrupted", "", codeInterrupted
	}
	return e
}
