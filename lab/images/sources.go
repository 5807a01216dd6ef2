package images

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// keyring is what Debian's archives are signed with, from the package
// debian-archive-keyring that every Debian machine has. It knows the releases
// that the recipes name.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// archive is where packages come from, as this machine's apt is told.
type archive struct {
	targets string // `apt-get indextargets` of the main component, one "URI RELEASE" a line
	options string // apt's own `Acquire` settings
}

// readArchive asks apt. It works with no package lists downloaded.
func readArchive(ctx context.Context) (archive, error) {
	targets, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--no-release-info",
		"--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages", "Component: main").Output()
	if err != nil {
		return archive{}, fmt.Errorf("read the sources of apt: apt-get indextargets: %v", err)
	}
	options, err := exec.CommandContext(ctx, "apt-config", "dump", "Acquire").Output()
	if err != nil {
		return archive{}, fmt.Errorf("read the settings of apt: apt-config dump: %v", err)
	}
	return archive{string(targets), string(options)}, nil
}

// A release of Debian in a source line: by code name or by what it is today,
// with the pocket behind it.
var releaseForm = regexp.MustCompile(`^(?:bookworm|trixie|oldstable|stable)(-updates|-security)?$`)

// sources translates this machine's source lines into those of another release
// of Debian at the same places. None found is an error.
func (a archive) sources(suite string) ([]string, error) {
	var lines []string
	for line := range strings.Lines(a.targets) {
		uri, release, _ := strings.Cut(strings.TrimSpace(line), " ")
		pocket := releaseForm.FindStringSubmatch(release)
		if pocket == nil {
			continue
		}
		source := fmt.Sprintf("deb [signed-by=%s] %s %s%s main", keyring, uri, suite, pocket[1])
		if !slices.Contains(lines, source) {
			lines = append(lines, source)
		}
	}
	if len(lines) == 0 {
		return nil, problem{
			what: "find an archive of Debian", where: "the sources of this machine's apt",
			why:  "none of them is a release of Debian 12 or 13",
			do:   "give apt a source of Debian (man sources.list), then try again",
			code: exitPrerequisite,
		}
	}
	return lines, nil
}

// Settings of apt that say how to reach an archive, as against what to fetch.
var reachForm = regexp.MustCompile(`^Acquire::(?:(?:http|https|ftp|Check-Date|Check-Valid-Until|Retries|ForceIPv4|ForceIPv6)\b.*|(?i:.*::Proxy\b.*))`)

// reach keeps those settings: proxies, certificates, dates.
func (a archive) reach() []byte {
	var kept bytes.Buffer
	for lines := bufio.NewScanner(strings.NewReader(a.options)); lines.Scan(); {
		if reachForm.MatchString(lines.Text()) {
			fmt.Fprintln(&kept, lines.Text())
		}
	}
	return kept.Bytes()
}
