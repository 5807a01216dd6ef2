package declaration

import (
	"errors"
	"fmt"
	"strings"
)

// ErrFormat is matched by errors of Parse, ParseBundle and Open when the
// document is of a newer format than this build reads. Nothing is wrong with
// the document; the reader is too old.
var ErrFormat = errors.New("document format is newer than this build reads")

// Problem is one thing wrong with a document.
type Problem struct {
	Path    string // member, "resources[3].file.mode"; empty means the document as a whole
	Line    int    // from 1; 0 when the value was not read from text
	Column  int    // from 1, in bytes; 0 when the value was not read from text
	Message string // one line, what is wrong and what is wanted
}

func (p Problem) String() string {
	var s strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&s, "line %d, column %d: ", p.Line, p.Column)
	}
	if p.Path != "" {
		s.WriteString(p.Path + ": ")
	}
	s.WriteString(p.Message)
	return s.String()
}

// DocumentError says everything that is wrong with one document. The document
// was refused as a whole.
type DocumentError struct {
	What     string    // "declaration" or "bundle"
	Problems []Problem // at least one, in the order of the document
}

// maxShown bounds the text of a refusal, not the list.
const maxShown = 40

// Error is a single line for one problem, else a heading and one line each.
func (e *DocumentError) Error() string {
	if len(e.Problems) == 1 {
		return fmt.Sprintf("%s refused: %s", e.What, e.Problems[0])
	}
	var s strings.Builder
	fmt.Fprintf(&s, "%s refused, %d problems:", e.What, len(e.Problems))
	for i, p := range e.Problems {
		if i == maxShown {
			fmt.Fprintf(&s, "\n  and %d more", len(e.Problems)-i)
			break
		}
		s.WriteString("\n  " + p.String())
	}
	return s.String()
}

// ExitCode is that of a wrong document.
func (e *DocumentError) ExitCode() int { return 2 }

// formatError is the refusal of a document from a newer time.
type formatError struct {
	what string
	got  int
}

func (e *formatError) Error() string {
	return fmt.Sprintf("%s refused: it is of format %d and this host reads up to format %d: the host is too old, upgrade mesh-host", e.what, e.got, Format)
}
func (e *formatError) Is(target error) bool { return target == ErrFormat }
func (e *formatError) ExitCode() int        { return 2 }
