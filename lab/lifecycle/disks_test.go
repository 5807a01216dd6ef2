package lifecycle_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"mesh/lab/lifecycle"
	"mesh/lab/machine/qcow2"
)

// TestFlattenReal: a layer made of a chain by the real program holds what the
// chain does, what lies between and what was zeroed too, and leaves the chain as
// it was.
func TestFlattenReal(t *testing.T) {
	for _, program := range []string{"qemu-img", "qemu-io"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not installed")
		}
	}
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "images"), 0o755))
	must(t, os.MkdirAll(filepath.Join(dir, "layers"), 0o755))
	run := func(program string, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", program, err, out)
		}
	}
	at := func(id string) string { return filepath.Join(dir, "layers", id+".qcow2") }
	image := filepath.Join(dir, "images", "disk.qcow2")
	run("qemu-img", "create", "-q", "-f", "qcow2", image, "64M")
	run("qemu-io", "-c", "write -P 1 0 32M", image)
	var d lifecycle.LocalDisks
	under := image
	for _, l := range [][2]string{{"l1", "write -P 2 1M 4M"}, {"l2", "write -P 3 3M 4M"}, {"l3", "write -z 6M 2M"}} {
		must(t, d.Overlay(t.Context(), under, at(l[0])))
		run("qemu-io", "-c", l[1], at(l[0]))
		under = at(l[0])
	}
	before, err := os.ReadFile(at("l3"))
	must(t, err)
	must(t, d.Flatten(t.Context(), at("l3"), at("l1"), at("flat")))
	f, err := os.Open(at("flat"))
	must(t, err)
	defer f.Close()
	if base, err := qcow2.Backing(f); err != nil || base != "l1.qcow2" {
		t.Errorf("it stands on %q, %v", base, err)
	}
	must(t, os.Remove(at("l2"))) // nobody stands on it any more
	run("qemu-io", "-c", "read -P 1 0 1M", "-c", "read -P 2 1M 2M", "-c", "read -P 3 3M 3M",
		"-c", "read -P 0 6M 2M", "-c", "read -P 1 8M 24M", "-c", "read -P 0 32M 32M", at("flat"))
	if after, err := os.ReadFile(at("l3")); err != nil || string(after) != string(before) {
		t.Error("the chain was changed")
	}
	left, err := os.ReadDir(filepath.Join(dir, "layers"))
	must(t, err)
	for _, e := range left {
		if strings.HasSuffix(e.Name(), ".new") {
			t.Errorf("%s is left", e.Name())
		}
	}
}
