package images_test

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mesh/lab/images"
)

var update = flag.Bool("update", false, "write the goldens of this package")

// A machine with sources of its own, of Debian twice, and of somebody else.
const targets = `http://mirror.example/debian/ bookworm
http://mirror.example/debian/ bookworm
http://mirror.example/debian/ bookworm-updates
http://security.example/ bookworm-security
http://elsewhere.example/ bookworm-pgdg
http://elsewhere.example/ nodistro
http://mirror.example/debian/ bookworm-backports
`

func TestSources(t *testing.T) {
	const signed = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "
	want := []string{
		signed + "http://mirror.example/debian/ trixie main",
		signed + "http://mirror.example/debian/ trixie-updates main",
		signed + "http://security.example/ trixie-security main",
	}
	for name, from := range map[string]string{
		"code name": targets, "role": strings.ReplaceAll(targets, "bookworm", "oldstable"),
		"next": strings.ReplaceAll(targets, "bookworm", "trixie"), "next role": strings.ReplaceAll(targets, "bookworm", "stable"),
	} {
		got, err := images.Sources(from, "trixie")
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestSourcesOfAnotherDistribution(t *testing.T) {
	_, err := images.Sources("http://elsewhere.example/ noble\n", "trixie")
	var coder interface{ ExitCode() int }
	if !errors.As(err, &coder) || coder.ExitCode() != 4 || !strings.Contains(err.Error(), "sources.list") {
		t.Errorf("got %v, want exit code 4 and what to do", err)
	}
}

func TestReach(t *testing.T) {
	const options = `Acquire "";
Acquire::AllowInsecureRepositories "0";
Acquire::IndexTargets::deb::Packages::MetaKey "$(COMPONENT)/binary-$(ARCHITECTURE)/Packages";
Acquire::Languages:: "none";
Acquire::Check-Date "false";
Acquire::Retries "3";
Acquire::http "";
Acquire::http::Proxy "http://proxy.example:3142";
Acquire::http::Proxy::direct.example "DIRECT";
Acquire::https::CAInfo "/etc/ssl/own.pem";
Acquire::httpsomething "no";
`
	const want = `Acquire::Check-Date "false";
Acquire::Retries "3";
Acquire::http "";
Acquire::http::Proxy "http://proxy.example:3142";
Acquire::http::Proxy::direct.example "DIRECT";
Acquire::https::CAInfo "/etc/ssl/own.pem";
`
	if diff := cmp.Diff(want, images.Reach(options)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBootstrapGolden(t *testing.T) {
	r, err := images.ParseRecipe(files(base), "one")
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	args, err := images.Bootstrap(r, targets, work, "/store/root")
	if err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(strings.Join(args, "\n")+"\n", work, "/store/work")
	golden := filepath.Join("testdata", "bootstrap.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, hook := range []string{"essential-00-early", "customize-00-network", "customize-01-apt"} {
		if _, err := os.Stat(filepath.Join(work, hook)); err != nil {
			t.Errorf("a script is not where the command looks for it: %v", err)
		}
	}
	for _, arg := range args {
		if _, script, ok := strings.Cut(arg, "-hook="); ok {
			if out, err := exec.Command("sh", "-n", "-c", script).CombinedOutput(); err != nil {
				t.Errorf("sh does not read %s: %v %s", script, err, out)
			}
		}
	}
}

// TestQuote: whatever a path holds, the shell reads it as one word.
func TestQuote(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.StringMatching(`['"$ \\;&a-z\n*-]*`), 30, 30).Draw(t, "words")
		script := "printf '%s\\0'"
		for _, w := range words {
			script += " " + images.Quote(w)
		}
		out, err := exec.Command("sh", "-c", script).Output()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.Join(words, "\x00")+"\x00", string(out)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
