package config

import (
	"fmt"

	"mesh/spelling"
)

// unknownKey describes a key nobody knows, with the nearest known one.
func unknownKey(got string, keys []key) string {
	if best := spelling.Nearest(got, namesOf(keys)); best != "" {
		return fmt.Sprintf("unknown key %q; did you mean %q?", got, best)
	}
	return fmt.Sprintf("unknown key %q; known are %s", got, names(keys))
}
