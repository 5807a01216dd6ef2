// Package spelling finds the word that somebody meant by one that nobody knows, for
// messages about documents and command lines.
//
// It is pure, depends on nothing, and anything may import it.
package spelling

import (
	"strings"
	"unicode/utf8"
)

// longest is how much of a word counts, in runes: longer ones are near to nothing.
const longest = 64

// Nearest is the known word that word was most likely meant to be, whatever its
// case; the first of several that are as near. Empty: none is near.
func Nearest(word string, known []string) string {
	from := fold(word)
	best, limit := "", max(2, len(from)/3)+1
	for _, candidate := range known {
		to := fold(candidate)
		if d := distance(from, to); d < limit && d < len(to) {
			best, limit = candidate, d
		}
	}
	return best
}

// fold is what counts of a word.
func fold(word string) []rune {
	all := []rune(strings.ToLower(word[:min(len(word), longest*utf8.UTFMax)]))
	return all[:min(len(all), longest)]
}

// distance counts the insertions, removals, replacements and swaps of neighbours
// that lead from one word to another (optimal string alignment).
func distance(from, to []rune) int {
	above, last := make([]int, len(to)+1), make([]int, len(to)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(from); i++ {
		row := make([]int, len(to)+1)
		row[0] = i
		for j := 1; j <= len(to); j++ {
			replace := last[j-1]
			if from[i-1] != to[j-1] {
				replace++
			}
			row[j] = min(last[j]+1, row[j-1]+1, replace)
			if i > 1 && j > 1 && from[i-1] == to[j-2] && from[i-2] == to[j-1] {
				row[j] = min(row[j], above[j-2]+1)
			}
		}
		above, last = last, row
	}
	return last[len(to)]
}
