package main

import (
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// TestLastLines: as many as asked for, the unfinished one among them, however
// they are read.
func TestLastLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.RuneFrom([]rune("ab\n"))).Draw(t, "text")
		n := rapid.IntRange(0, 8).Draw(t, "n")
		lines := strings.SplitAfter(text, "\n")
		if lines[len(lines)-1] == "" {
			lines = lines[:len(lines)-1]
		}
		want := strings.Join(lines[max(0, len(lines)-n):], "")
		if got := lastLines(strings.NewReader(text), n); string(got) != want {
			t.Fatalf("%q: got %q, want %q", text, got, want)
		}
		if got := lastLines(iotest.OneByteReader(strings.NewReader(text)), n); string(got) != want {
			t.Fatalf("byte by byte %q: got %q, want %q", text, got, want)
		}
	})
}
