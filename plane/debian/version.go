package debian

import (
	"cmp"
	"strings"
)

// Compare is negative when version a is lower than b, positive when it is higher,
// and 0 when neither is: "1.0" and "1.0-0" are not the same text, and are equal.
// https://www.debian.org/doc/debian-policy/ch-controlfields.html#version
func Compare(a, b string) int {
	epochA, restA := epochOf(a)
	epochB, restB := epochOf(b)
	upstreamA, revisionA := revisionOf(restA)
	upstreamB, revisionB := revisionOf(restB)
	return cmp.Or(compareParts(epochA, epochB), compareParts(upstreamA, upstreamB), compareParts(revisionA, revisionB))
}

func epochOf(version string) (epoch, rest string) {
	if epoch, rest, found := strings.Cut(version, ":"); found {
		return epoch, rest
	}
	return "", version
}

func revisionOf(version string) (upstream, revision string) {
	if i := strings.LastIndexByte(version, '-'); i >= 0 {
		return version[:i], version[i+1:]
	}
	return version, ""
}

// compareParts compares by turns what is no digit, and a number.
func compareParts(a, b string) int {
	for a != "" || b != "" {
		var textA, textB, numberA, numberB string
		textA, a = span(a, false)
		textB, b = span(b, false)
		numberA, a = span(a, true)
		numberB, b = span(b, true)
		if c := cmp.Or(compareText(textA, textB), compareNumbers(numberA, numberB)); c != 0 {
			return c
		}
	}
	return 0
}

// span cuts s behind the digits, or the others, that it begins with.
func span(s string, digits bool) (first, rest string) {
	i := 0
	for i < len(s) && isDigit(s[i]) == digits {
		i++
	}
	return s[:i], s[i:]
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func compareText(a, b string) int {
	for i := range max(len(a), len(b)) {
		if c := cmp.Compare(weight(a, i), weight(b, i)); c != 0 {
			return c
		}
	}
	return 0
}

// weight orders characters: ~ before the end, letters before everything else.
func weight(s string, i int) int {
	switch {
	case i >= len(s):
		return 0
	case s[i] == '~':
		return -1
	case 'a' <= s[i] && s[i] <= 'z' || 'A' <= s[i] && s[i] <= 'Z':
		return int(s[i])
	}
	return int(s[i]) + 256
}

// compareNumbers compares numbers of any length.
func compareNumbers(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}
