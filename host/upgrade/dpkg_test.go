package upgrade_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"mesh/host/system"
	"mesh/host/upgrade"
)

// debian is a directory in which the real dpkg works.
type debian struct {
	t    *testing.T
	root string
}

func newDebian(t *testing.T) *debian {
	t.Helper()
	if _, err := exec.LookPath("dpkg-deb"); err != nil || os.Geteuid() != 0 {
		t.Skip("this needs dpkg, and root")
	}
	d := &debian{t, filepath.Join(t.TempDir(), "root")}
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/mesh-host", "usr/bin"} {
		if err := os.MkdirAll(filepath.Join(d.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(d.root, "var/lib/dpkg/status"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return d
}

// build makes a package of a version; its program is content.
func (d *debian) build(version, content string) string {
	d.t.Helper()
	tree := filepath.Join(d.t.TempDir(), version)
	for path, text := range map[string]string{
		"DEBIAN/control":    fmt.Sprintf("Package: mesh-host\nVersion: %s\nArchitecture: all\nMaintainer: nobody <n@localhost>\nDescription: a test\n", version),
		"usr/bin/mesh-host": content,
	} {
		path = filepath.Join(tree, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			d.t.Fatal(err)
		}
	}
	d.run("dpkg-deb", "--build", "--root-owner-group", "-Znone", tree, tree+".deb")
	return tree + ".deb"
}

func (d *debian) run(argv ...string) string {
	d.t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		d.t.Fatalf("%v: %v: %s", argv, err, out)
	}
	return string(out)
}

// install installs a package, and sees to it that the program is there all the
// while, whole.
func (d *debian) install(file string, whole ...string) {
	d.t.Helper()
	stop := make(chan struct{})
	var watching sync.WaitGroup
	if _, err := os.Stat(d.path()); err == nil {
		watching.Go(func() {
			for {
				b, err := os.ReadFile(d.path())
				if !strings.Contains(strings.Join(whole, "|"), string(b)) || err != nil || len(b) == 0 {
					d.t.Errorf("while %s is installed, the program is %q: %v", file, b, err)
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	d.run("dpkg", "--root="+d.root, "--install", file)
	close(stop)
	watching.Wait()
}

func (d *debian) path() string { return filepath.Join(d.root, "usr/bin/mesh-host") }

// verify is what dpkg finds changed; empty when nothing is.
func (d *debian) verify() string {
	out, _ := exec.Command("dpkg", "--root="+d.root, "--verify", "mesh-host").CombinedOutput()
	return string(out)
}

func (d *debian) version() string {
	return strings.TrimSpace(d.run("dpkg-query", "--admindir="+d.root+"/var/lib/dpkg", "-W", "-f", "${Version} ${db:Status-Status}", "mesh-host"))
}

func (d *debian) keeper(version string) *upgrade.Keeper {
	return upgrade.New(upgrade.Config{
		Files: system.NewFiles(&system.Linux{}, 1), Directory: filepath.Join(d.root, "var/lib/mesh-host/program"),
		Program: d.path(), Version: version, Now: now,
	})
}

// What dpkg and the host do to one path goes together: the program is there at
// every moment, and the package of what was put back, installed once more, makes
// dpkg's database true again, and changes nothing of the program.
func TestWithRealDpkg(t *testing.T) {
	d := newDebian(t)
	const one, two = "program 1.0", "program 2.0"
	first, second := d.build("1.0", one), d.build("2.0", two)
	d.install(first)
	if err := d.keeper("1.0").Keep([]byte(one), ""); err != nil {
		t.Fatal(err)
	}

	d.install(second, one, two)
	dpkgSays := func() string { return strings.Fields(d.version())[0] }
	for i := range upgrade.Attempts + 1 {
		if _, err := d.keeper("1.0").Begin(dpkgSays); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(d.path()); err != nil || (string(b) == one) != (i == upgrade.Attempts) {
			t.Fatalf("start %d: %q, %v", i+1, b, err)
		}
	}
	if got := d.version(); got != "2.0 installed" {
		t.Fatalf("dpkg has %s", got)
	}
	if d.verify() == "" {
		t.Fatal("dpkg does not see that another program is there, so this shows nothing")
	}

	d.install(first, one)
	if got := d.version() + d.verify(); got != "1.0 installed" {
		t.Errorf("dpkg has %s", got)
	}
	if said, err := d.keeper("1.0").Begin(dpkgSays); said != "" || err != nil {
		t.Errorf("what was put back is begun with %q, %v", said, err)
	}
	s, err := d.keeper("1.0").Read()
	if err != nil || len(s.Broken) != 1 || s.Broken[0].Version != "2.0" {
		t.Errorf("%+v, %v", s, err)
	}
}
