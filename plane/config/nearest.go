package config

import (
	"fmt"
	"strings"
)

// unknownKey describes a key nobody knows, with the nearest known one.
func unknownKey(got string, keys []key) string {
	best, least := "", 1+max(1, min(len(got), 64)/3)
	for _, k := range keys {
		if d := distance(strings.ToLower(got), k.name); d < least {
			best, least = k.name, d
		}
	}
	if best == "" {
		return fmt.Sprintf("unknown key %q; known are %s", got, names(keys))
	}
	return fmt.Sprintf("unknown key %q; did you mean %q?", got, best)
}

// distance counts the insertions, removals, changes and swaps of neighbours
// that make b of a (optimal string alignment). Only the first 64 bytes of a
// count: longer ones are near to nothing.
func distance(a, b string) int {
	a = a[:min(len(a), 64)]
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
