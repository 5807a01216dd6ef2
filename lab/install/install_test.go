package install_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/install"
)

const debian = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n# a comment=1\nVERSION_ID=\"12\"\nID=debian\n"

// all is what dpkg says of a machine that has every package but some.
func all(but ...string) string {
	var b strings.Builder
	for _, p := range install.Packages() {
		if !slices.Contains(but, p.Name) {
			b.WriteString("installed " + p.Name + "\n")
		}
	}
	return b.String()
}

func TestPlan(t *testing.T) {
	p, err := install.NewPlan(debian, all("nftables", "zstd")+"config-files zstd\nnot-installed nftables\n")
	if err != nil {
		t.Fatal(err)
	}
	want := `Debian GNU/Linux 12 (bookworm) lacks, for the lab:
  nftables                    routers of scenarios
  zstd                        packages of images
it gets them by
  apt-get update
  apt-get install --yes --no-install-recommends nftables zstd
`
	if diff := cmp.Diff(want, p.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	p, err = install.NewPlan(debian, all())
	if err != nil || len(p.Missing) != 0 || len(p.Commands) != 0 {
		t.Errorf("nothing is missing: %+v, %v", p, err)
	}
}

func TestSystems(t *testing.T) {
	for text, ok := range map[string]bool{
		debian:                                    true,
		"ID=debian\nPRETTY_NAME='Debian sid'\n":   true,
		"ID=debian\nVERSION_ID=\"11\"\n":          false,
		"ID=ubuntu\nVERSION_ID=\"24.04\"\n":       true,
		"ID=ubuntu\nVERSION_ID=\"22.04\"\n":       false,
		"ID=fedora\nVERSION_ID=44\nNAME=Fedora\n": false,
		"ID=debian\nVERSION_ID=twelve\n":          false,
		"":                                        false,
	} {
		_, err := install.NewPlan(text, "")
		var code interface{ ExitCode() int }
		if (err == nil) != ok || err != nil && (!errors.As(err, &code) || code.ExitCode() != 4 || !strings.Contains(err.Error(), "lab verify")) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestList: every package says what it is for, and stands once, in order.
func TestList(t *testing.T) {
	var names []string
	for _, p := range install.Packages() {
		names = append(names, p.Name)
		if p.For == "" {
			t.Errorf("%s does not say what it is for", p.Name)
		}
	}
	if len(names) == 0 || !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("not sorted, or twice: %v", names)
	}
}
