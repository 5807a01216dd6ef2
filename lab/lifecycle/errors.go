package lifecycle

import (
	"context"
	"errors"
	"strings"
)

// Exit codes that errors of this package carry; they are those of every program.
const (
	codeFailed       = 1
	codeUsage        = 2
	codePrerequisite = 4
	codeInterrupted  = 130
)

// ErrAbsent means that no scenario of that name is raised. Match with errors.Is.
var ErrAbsent = errors.New("no such scenario is raised")

// Error is a failure told to an operator in four parts. Where, Why and Next may
// be empty.
type Error struct {
	What  string // what failed
	Where string // file and line, machine, step
	Why   string // may have several lines
	Next  string // what to do
	Code  int    // exit code
	Cause error  // for errors.Is; not printed
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.What)
	for _, part := range []struct{ label, text string }{
		{"where", e.Where}, {"why", e.Why}, {"next", e.Next},
	} {
		if part.text == "" {
			continue
		}
		text := strings.ReplaceAll(strings.TrimRight(part.text, "\n"), "\n", "\n         ")
		b.WriteString("\n  " + part.label + ":" + strings.Repeat(" ", 6-len(part.label)) + text)
	}
	return b.String()
}

// ExitCode is the code that the program ends with.
func (e *Error) ExitCode() int { return e.Code }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }

// interrupted tells whether the operator ended ctx.
func interrupted(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

func absent(name string) error {
	return &Error{
		What: "no scenario is raised as " + name,
		Next: "`lab list` shows what is raised, `lab raise` raises one",
		Code: codeUsage, Cause: ErrAbsent,
	}
}
