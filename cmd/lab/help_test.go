package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
)

// TestHelpFitsTerminals asks every command for its help.
func TestHelpFitsTerminals(t *testing.T) {
	const columns = 80
	for _, path := range paths(newRoot(cli.Streams{})) {
		var out bytes.Buffer
		s := cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out}
		if code := cli.Run(newRoot(s), s, append(strings.Fields(path)[1:], "--help")); code != 0 {
			t.Errorf("%s --help ends with %d: %s", path, code, &out)
		}
		for line := range strings.Lines(out.String()) {
			if width := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); width > columns {
				t.Errorf("%s --help has a line of %d columns, want at most %d: %s", path, width, columns, line)
			}
		}
	}
}

// paths are those of c and of all commands below it.
func paths(c *cobra.Command) []string {
	all := []string{c.CommandPath()}
	for _, below := range c.Commands() {
		all = append(all, paths(below)...)
	}
	return all
}
