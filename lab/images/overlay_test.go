package images_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/images"
)

// disk makes a qcow2 file, on top of another where one is given.
func disk(t testing.TB, path, under string) {
	t.Helper()
	args := []string{"create", "-q", "-f", "qcow2", path, "1M"}
	if under != "" {
		args = []string{"create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", under, path}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Skip("qemu-img is not installed; `make setup` installs it")
	}
	if out, err := exec.Command("qemu-img", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestUsers reads what qemu-img writes.
func TestUsers(t *testing.T) {
	dir := t.TempDir()
	image := images.Image{Name: "one", Disk: filepath.Join(dir, "images", strings.Repeat("a", 64), "disk.qcow2")}
	other := filepath.Join(dir, "images", strings.Repeat("b", 64), "disk.qcow2")
	disk(t, image.Disk, "")
	disk(t, other, "")
	scenarios := filepath.Join(dir, "scenarios")
	if users, err := images.Users(scenarios, image); len(users) != 0 || err != nil {
		t.Errorf("nothing raised: got %v, %v", users, err)
	}
	disk(t, filepath.Join(scenarios, "pair", "one.qcow2"), image.Disk)
	disk(t, filepath.Join(scenarios, "pair", "two.qcow2"), image.Disk)
	disk(t, filepath.Join(scenarios, "single", "machines", "one.qcow2"), other)
	disk(t, filepath.Join(scenarios, "trio", "machines", "one.qcow2"), image.Disk)
	users, err := images.Users(scenarios, image)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"pair", "trio"}, users); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := os.WriteFile(filepath.Join(scenarios, "single", "broken.qcow2"), []byte("QFI"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := images.Users(scenarios, image); err == nil || !strings.Contains(err.Error(), "broken.qcow2") {
		t.Errorf("a disk that cannot be read: got %v, want its name", err)
	}
}

func FuzzBacking(f *testing.F) {
	dir := f.TempDir()
	for name, under := range map[string]string{"base": "", "top": filepath.Join(dir, "base")} {
		if name == "top" {
			disk(f, under, "")
		}
		disk(f, filepath.Join(dir, name), under)
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content[:1024])
	}
	f.Add([]byte("QFI\xfb\x00\x00\x00\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, content []byte) {
		name, err := images.Backing(bytes.NewReader(content))
		if err == nil && name != "" && !bytes.Contains(content, []byte(name)) {
			t.Errorf("%q is not in the file", name)
		}
		if len(name) > 1023 {
			t.Errorf("a name of %d bytes", len(name))
		}
	})
}
