// Package deptest holds the arrows of the architecture: which package may reach
// which, each rule with its reason in words. Only tests import it.
package deptest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Package is what `go list` says of one package of the module; test files are
// left out.
type Package struct {
	ImportPath string
	Imports    []string // direct
	Deps       []string // direct and indirect
	Standard   bool
}

// List asks the go command for patterns, seen from the module's root.
func List(t *testing.T, patterns ...string) []Package {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports,Deps,Standard"}, patterns...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v\n%s", patterns, err, stderr.String())
	}
	var all []Package
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p Package
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("read go list: %v", err)
		}
		all = append(all, p)
	}
}

// Rule forbids imports to a set of packages.
type Rule struct {
	// Of selects the packages bound by the rule; see Match.
	Of []string
	// Except takes packages out of Of again.
	Except []string
	// Never lists what they may not reach; see Match.
	Never []string
	// But takes imports out of Never again.
	But []string
	// Through is true when indirect imports count too.
	Through bool
	// Because is the reason, for the person who runs into it.
	Because string
}

// Match tells whether path is named by a pattern: itself, or anything below it
// where the pattern ends in "/...".
func Match(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if root, ok := strings.CutSuffix(p, "/..."); ok {
			return path == root || strings.HasPrefix(path, root+"/")
		}
		return path == p
	})
}

// Broken lists what breaks the rule, one line each.
func (r Rule) Broken(packages []Package) []string {
	var lines []string
	for _, p := range packages {
		if !Match(r.Of, p.ImportPath) || Match(r.Except, p.ImportPath) {
			continue
		}
		imports := p.Imports
		if r.Through {
			imports = p.Deps
		}
		for _, dep := range imports {
			if Match(r.Never, dep) && !Match(r.But, dep) {
				lines = append(lines, p.ImportPath+" must not reach "+dep+": "+r.Because)
			}
		}
	}
	return lines
}

// Check fails the test for every broken rule.
func Check(t *testing.T, packages []Package, rules []Rule) {
	t.Helper()
	for _, r := range rules {
		for _, line := range r.Broken(packages) {
			t.Error(line)
		}
	}
}
