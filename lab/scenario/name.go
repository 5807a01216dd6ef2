package scenario

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"mesh/spelling"
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

// Suggest ends a message about an unknown word: the nearest known one where one
// is near, and all that are known.
func Suggest(word string, known []string) string {
	if len(known) == 0 {
		return "none is declared"
	}
	list := strings.Join(known, ", ")
	if near := spelling.Nearest(word, known); near != "" {
		return fmt.Sprintf("did you mean %q? (known: %s)", near, list)
	}
	return "known: " + list
}
