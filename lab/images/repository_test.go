package images_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/images"
)

// need skips a test that a program is missing for.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed; `make setup` installs it", p)
		}
	}
}

// deb makes a package with nothing in it and returns its path.
func deb(t *testing.T, name, version string) string {
	t.Helper()
	need(t, "dpkg-deb", "apt-ftparchive", "apt-get")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "tree", "DEBIAN", "control"),
		"Package: "+name+"\nVersion: "+version+"\nArchitecture: all\nMaintainer: none <none@example.org>\nDescription: nothing\n")
	path := filepath.Join(dir, name+"_"+strings.ReplaceAll(version, ":", "%3a")+"_all.deb")
	if out, err := exec.Command("dpkg-deb", "--root-owner-group", "--build", filepath.Join(dir, "tree"), path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// offers asks apt what a repository holds.
func offers(t *testing.T, dir string) string {
	t.Helper()
	apt := t.TempDir()
	for _, d := range []string{"etc/apt.conf.d", "etc/preferences.d", "etc/sources.list.d", "state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(apt, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(apt, "etc/sources.list"), "deb [trusted=yes] file:"+dir+" ./\n")
	write(t, filepath.Join(apt, "state/status"), "")
	write(t, filepath.Join(apt, "apt.conf"), `Dir::Etc "`+apt+`/etc"; Dir::State "`+apt+`/state"; Dir::State::status "`+apt+`/state/status"; Dir::Cache "`+apt+`/cache"; Acquire::Languages "none"; APT::Sandbox::User ""; #clear APT::Update::Post-Invoke; #clear APT::Update::Post-Invoke-Success;`)
	run := func(args ...string) string {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "APT_CONFIG="+filepath.Join(apt, "apt.conf"), "LC_ALL=C")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
		return string(out)
	}
	run("apt-get", "update", "--error-on=any")
	return run("apt-cache", "madison", "a", "b")
}

func TestRepository(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "below", "mesh")
	first := []string{deb(t, "a", "1"), deb(t, "b", "2:1")}
	make := func(debs []string) {
		t.Helper()
		if err := images.Repository(ctx, debs, dir); err != nil {
			t.Fatal(err)
		}
		left, err := os.ReadDir(filepath.Dir(dir))
		if err != nil || len(left) != 1 {
			t.Errorf("beside the repository stand %v, %v", left, err)
		}
	}
	made := func() os.FileInfo {
		t.Helper()
		info, err := os.Stat(filepath.Join(dir, "Release"))
		if err != nil {
			t.Fatal(err)
		}
		return info
	}

	make(first)
	if got := offers(t, dir); !strings.Contains(got, "a |          1 |") || !strings.Contains(got, "b |        2:1 |") {
		t.Errorf("apt finds %q, want a 1 and b 2:1", got)
	}
	before := made()
	make(first)
	if !os.SameFile(before, made()) {
		t.Error("made anew though nothing is different")
	}
	make([]string{deb(t, "a", "2")})
	if got := offers(t, dir); !strings.Contains(got, "a |          2 |") || strings.Contains(got, "a |          1 |") || strings.Contains(got, "b |") {
		t.Errorf("apt finds %q, want a 2 alone", got)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff([]string{"Packages", "Packages.gz", "Release", "a_2_all.deb"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	make(nil)
	if got := offers(t, dir); got != "" {
		t.Errorf("apt finds %q in an empty repository", got)
	}
	if err := os.Remove(filepath.Join(dir, "Packages.gz")); err != nil {
		t.Fatal(err)
	}
	make(nil)
	if _, err := os.Stat(filepath.Join(dir, "Packages.gz")); err != nil {
		t.Errorf("a damaged repository is not mended: %v", err)
	}
}

func TestRepositoryOfNoPackage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mesh")
	missing := filepath.Join(t.TempDir(), "c_1_all.deb")
	if err := images.Repository(context.Background(), []string{missing}, dir); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("got %v, want the missing package", err)
	}
	if left, _ := os.ReadDir(filepath.Dir(dir)); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestRepositoryIsReplacedWhole: whoever reads while it is replaced finds an
// index, and every package of it.
func TestRepositoryIsReplacedWhole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mesh")
	versions := [][]string{{deb(t, "a", "1")}, {deb(t, "a", "2")}}
	if err := images.Repository(context.Background(), versions[0], dir); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			root, err := os.OpenRoot(dir) // as one reader of one repository
			if err != nil {
				t.Errorf("there was none: %v", err)
				return
			}
			index, err := root.ReadFile("Packages")
			if err != nil && !gone(dir, root) {
				t.Errorf("there was no index: %v", err)
			}
			_, file, _ := strings.Cut(string(index), "Filename: ./")
			file, _, _ = strings.Cut(file, "\n")
			if _, err := root.Stat(file); file != "" && err != nil && !gone(dir, root) {
				t.Errorf("the index names a package that is not there: %v", err)
			}
			root.Close()
		}
	})
	for i := range 20 {
		if err := images.Repository(context.Background(), versions[(i+1)%2], dir); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	reader.Wait()
}

// gone tells that root is no longer what dir names.
func gone(dir string, root *os.Root) bool {
	now, err := os.Stat(dir)
	if err != nil {
		return false
	}
	then, err := root.Stat(".")
	return err != nil || !os.SameFile(now, then)
}
