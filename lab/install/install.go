// Package install says what a Debian or Ubuntu machine lacks to be a lab machine,
// and how to get it. It is pure: whoever carries a plan out runs its commands.
package install

import (
	"bufio"
	_ "embed" // the list of packages
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Package is one that a lab machine needs.
type Package struct {
	Name string `json:"name"`
	For  string `json:"for"`
}

//go:embed packages
var list string

// Packages lists all that a lab machine needs, by name.
func Packages() (all []Package) {
	for line := range strings.Lines(list) {
		name, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != "" && !strings.HasPrefix(name, "#") {
			all = append(all, Package{name, strings.TrimSpace(what)})
		}
	}
	return all
}

// Plan is how a machine becomes a lab machine.
type Plan struct {
	System  string    `json:"system"` // the machine's name of itself
	Missing []Package `json:"missing"`
	// Commands are run in order, as root, without a question asked; none where
	// nothing is missing.
	Commands [][]string `json:"commands"`
}

// oldest are the first releases that have all of it, new enough.
var oldest = map[string]float64{"debian": 12, "ubuntu": 24.04}

// Unsupported means that this system's packages are not known. It has exit code 4.
type Unsupported string

func (u Unsupported) Error() string {
	return string(u) + ": the lab knows the packages of Debian from 12 on and of Ubuntu from 24.04 on\n" +
		"  next:  install QEMU, libvirt, mmdebstrap, nftables and apt's tools yourself; `lab verify` says what is missing"
}

// ExitCode says that the machine lacks something.
func (Unsupported) ExitCode() int { return 4 }

// NewPlan makes a plan out of os-release(5) and of what
//
//	dpkg-query --show --showformat '${db:Status-Status} ${Package}\n'
//
// prints. Unsupported.
func NewPlan(osRelease, dpkg string) (Plan, error) {
	about := release(osRelease)
	p := Plan{System: about["PRETTY_NAME"], Missing: []Package{}, Commands: [][]string{}}
	if p.System == "" {
		p.System = "this system"
	}
	// Testing has no number: it is newer than any.
	number, err := strconv.ParseFloat(about["VERSION_ID"], 64)
	first, known := oldest[about["ID"]]
	if !known || about["VERSION_ID"] != "" && (err != nil || number < first) {
		return Plan{}, Unsupported(p.System)
	}
	installed := strings.Split(dpkg, "\n")
	for _, one := range Packages() {
		if !slices.Contains(installed, "installed "+one.Name) {
			p.Missing = append(p.Missing, one)
		}
	}
	if len(p.Missing) > 0 {
		install := []string{"apt-get", "install", "--yes", "--no-install-recommends"}
		for _, one := range p.Missing {
			install = append(install, one.Name)
		}
		p.Commands = [][]string{{"apt-get", "update"}, install}
	}
	return p, nil
}

// release reads the assignments of os-release(5).
func release(text string) map[string]string {
	values := map[string]string{}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		key, value, ok := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		if !ok || strings.HasPrefix(key, "#") {
			continue
		}
		if len(value) > 1 && strings.ContainsAny(value[:1], `"'`) && value[len(value)-1] == value[0] {
			value = value[1 : len(value)-1]
		}
		values[key] = value
	}
	return values
}

// String explains a plan to whoever is to agree to it.
func (p Plan) String() string {
	if len(p.Missing) == 0 {
		return p.System + " has all packages that the lab needs\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s lacks, for the lab:\n", p.System)
	for _, one := range p.Missing {
		fmt.Fprintf(&b, "  %-26s  %s\n", one.Name, one.For)
	}
	b.WriteString("it gets them by\n")
	for _, c := range p.Commands {
		fmt.Fprintf(&b, "  %s\n", strings.Join(c, " "))
	}
	return b.String()
}
