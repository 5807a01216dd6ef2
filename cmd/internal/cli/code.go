package cli

import "errors"

// Exit codes of every program.
const (
	OK           = 0   // done
	Failed       = 1   // tried, and failed
	Usage        = 2   // the command line, a document or a configuration is wrong
	Differs      = 3   // what stands differs from what is declared
	Prerequisite = 4   // something the machine must have is missing
	Interrupted  = 130 // SIGINT or SIGTERM
)

// Coder is implemented by errors that know their exit code. Packages below cmd
// implement it without importing this package.
type Coder interface{ ExitCode() int }

type coded struct {
	error
	code int
}

func (c coded) ExitCode() int { return c.code }
func (c coded) Unwrap() error { return c.error }

// WithCode gives err an exit code; nil stays nil.
func WithCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return coded{err, code}
}

// Code maps an error to an exit code: OK for nil, its own where a Coder is in
// its chain, Failed otherwise. Whether a signal was the reason Run alone knows.
func Code(err error) int {
	var c Coder
	switch {
	case err == nil:
		return OK
	case errors.As(err, &c):
		return c.ExitCode()
	}
	return Failed
}
