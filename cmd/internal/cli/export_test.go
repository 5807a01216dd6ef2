package cli

import "io"

// NewTerminal narrates as on a terminal of a size.
func NewTerminal(w io.Writer, width, height int, colour bool) *Progress {
	return newProgress(w, func() (int, int) { return width, height }, colour)
}
