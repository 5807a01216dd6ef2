package libvirt_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/machine/libvirt"
)

// The files are made by the program that defines them.
func TestBackingChain(t *testing.T) {
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Skip("needs qemu-img (apt-get install qemu-utils)")
	}
	dir := t.TempDir()
	create := func(name string, args ...string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		out, err := exec.CommandContext(t.Context(), "qemu-img", append(append([]string{"create", "-f", "qcow2"}, args...), file)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return file
	}
	base := filepath.Join(dir, "base.qcow2")
	if out, err := exec.CommandContext(t.Context(), "qemu-img", "create", "-f", "qcow2", base, "1M").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	middle := create("middle.qcow2", "-b", "base.qcow2", "-F", "qcow2") // relative to the file itself
	top := create("top.qcow2", "-b", middle, "-F", "qcow2")
	for file, want := range map[string][]string{base: nil, middle: {base}, top: {middle, base}} {
		got, err := libvirt.BackingChain(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
	if err := os.Remove(base); err != nil {
		t.Fatal(err)
	}
	if _, err := libvirt.BackingChain(top); err == nil || !strings.Contains(err.Error(), base) {
		t.Errorf("a chain whose end is missing: %v", err)
	}
}
