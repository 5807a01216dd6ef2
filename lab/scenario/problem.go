package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one reason to refuse a document. Line and Column count from 1,
// columns in characters.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"` // what, why and what to do, on one line
}

// String is file:line:column: message, the form editors can follow.
func (p Problem) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
}

// Problems is everything that is wrong with a document, in its order. As an
// error it is matched with errors.As and has exit code 2.
type Problems []Problem

// Error is one line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}

// ExitCode says that the document is wrong, not the program.
func (Problems) ExitCode() int { return 2 }

// Err is p as an error: nil where there is no problem.
func (p Problems) Err() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

// report collects the problems of one document.
type report struct {
	file     string
	problems Problems
}

func (r *report) add(at Position, format string, args ...any) {
	r.problems = append(r.problems, Problem{r.file, at.Line, at.Column, fmt.Sprintf(format, args...)})
}

// sorted returns the problems in the order of the document.
func (r *report) sorted() Problems {
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return r.problems
}
