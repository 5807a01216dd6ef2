package scenario

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// nameRule is a DNS label (RFC 1035, section 2.3.1) in lower case and of at
// most 32 characters, so that every name may become a host name and no name is
// ever shortened.
const nameRule = `^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$`

const nameLimit = 32

var nameForm = regexp.MustCompile(nameRule)

// Names in world.test that the world itself answers for; no machine may take one.
const (
	IssuerHost    = "acme"
	ArtefactsHost = "packages"
	ResolverHost  = "dns"
)

// reserved are machine names that would be mistaken for something else.
var reserved = []string{IssuerHost, ArtefactsHost, ResolverHost, "localhost"}

// CheckName refuses what cannot name a scenario, segment, router, machine or
// saved value, and says why: names begin with a lower-case letter, continue with
// lower-case letters, digits and hyphens, end with no hyphen, and have at most
// 32 characters. It is the rule for what a scenario is raised as, too.
func CheckName(name string) error {
	if nameForm.MatchString(name) {
		return nil
	}
	why := ""
	odd := strings.IndexFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-')
	})
	switch length := utf8.RuneCountInString(name); {
	case name == "":
		why = "it is empty"
	case length > nameLimit:
		why = fmt.Sprintf("it has %d characters, %d are allowed", length, nameLimit)
	case odd >= 0:
		r, _ := utf8.DecodeRuneInString(name[odd:])
		why = fmt.Sprintf("%q is not allowed in it", r)
	case name[0] < 'a':
		why = fmt.Sprintf("it begins with %q", name[0])
	default:
		why = "it ends with '-'"
	}
	advice := "use a-z, 0-9 and -, beginning with a letter"
	if lower := strings.ToLower(name); nameForm.MatchString(lower) {
		advice = fmt.Sprintf("write %q", lower)
	}
	return fmt.Errorf("%q cannot be a name: %s; %s", name, why, advice)
}

// suggest ends a message about an unknown word: the nearest known one where one
// is near, and all that are known.
func suggest(word string, known []string) string {
	if len(known) == 0 {
		return "none is declared"
	}
	list := strings.Join(known, ", ")
	if near := nearest(word, known); near != "" {
		return fmt.Sprintf("did you mean %q? (known: %s)", near, list)
	}
	return "known: " + list
}

// nearest returns the known word that word was most likely meant to be, or "".
func nearest(word string, known []string) string {
	best, limit := "", max(2, utf8.RuneCountInString(word)/3)+1
	for _, candidate := range known {
		if d := distance(strings.ToLower(word), strings.ToLower(candidate)); d < limit && d < len(candidate) {
			best, limit = candidate, d
		}
	}
	return best
}

// distance counts the insertions, deletions, replacements and swaps of
// neighbours that lead from a to b (optimal string alignment).
func distance(a, b string) int {
	from, to := []rune(a), []rune(b)
	if len(from) > 2*nameLimit || len(to) > 2*nameLimit {
		return max(len(from), len(to))
	}
	rows := make([][]int, len(from)+1)
	for i := range rows {
		rows[i] = make([]int, len(to)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(from); i++ {
		for j := 1; j <= len(to); j++ {
			replace := rows[i-1][j-1]
			if from[i-1] != to[j-1] {
				replace++
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, replace)
			if i > 1 && j > 1 && from[i-1] == to[j-2] && from[i-2] == to[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(from)][len(to)]
}
