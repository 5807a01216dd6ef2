package system

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Accounts are the users and groups of a machine, by name.
type Accounts struct {
	Users  map[string]uint32
	Groups map[string]uint32
}

// ParseAccounts reads the text of passwd(5) and group(5); lines that are not of
// their form are left out, as the C library does.
func ParseAccounts(passwd, group string) Accounts {
	return Accounts{Users: ids(passwd), Groups: ids(group)}
}

// ids reads name:x:number:… lines; the first line of a name counts.
func ids(text string) map[string]uint32 {
	found := map[string]uint32{}
	for line := range strings.Lines(text) {
		part := strings.Split(strings.TrimSpace(line), ":")
		if len(part) < 3 {
			continue
		}
		id, err := strconv.ParseUint(part[2], 10, 32)
		if err != nil {
			continue
		}
		if _, twice := found[part[0]]; !twice {
			found[part[0]] = uint32(id)
		}
	}
	return found
}

// passwd is where this machine's accounts are; only local ones count, so that
// an owner never depends on a directory service that cannot be reached.
type passwd struct{}

// Accounts reads them anew, because a package may have brought some.
func (passwd) Accounts() (Accounts, error) {
	users, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return Accounts{}, fmt.Errorf("read users: %w", err)
	}
	groups, err := os.ReadFile("/etc/group")
	if err != nil {
		return Accounts{}, fmt.Errorf("read groups: %w", err)
	}
	return ParseAccounts(string(users), string(groups)), nil
}
