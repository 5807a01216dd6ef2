package images

import "fmt"

// Exit codes of problems; the same numbers for every program.
const (
	exitFailed       = 1
	exitUsage        = 2
	exitPrerequisite = 4
)

// problem is a failure told to an operator: what failed, where, why, and what
// to do. It unwraps to a sentinel of this package where callers may match one.
type problem struct {
	what, where, why, do string
	code                 int
	state                error // nil or a sentinel
}

func (p problem) Error() string {
	s := p.what
	if p.where != "" {
		s += " (" + p.where + ")"
	}
	return fmt.Sprintf("%s: %s; %s", s, p.why, p.do)
}

func (p problem) ExitCode() int { return p.code }
func (p problem) Unwrap() error { return p.state }
