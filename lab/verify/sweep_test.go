package verify_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"mesh/lab/companion"
	"mesh/lab/machine"
	"mesh/lab/machine/machinetest"
	"mesh/lab/verify"
	"mesh/lab/volatile"
)

// gone is the prefix of a process that has ended.
func gone(t *testing.T) string {
	t.Helper()
	child := exec.Command("cat")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := companion.ProcessOf(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	name := verify.PrefixOf(p)
	if verify.Abandoned(name + "1") {
		t.Errorf("%s is called abandoned, and its process lives", name)
	}
	in.Close()
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	return name
}

// daemon tells what was asked of it; no answer of it fails.
type daemon string

func (d *daemon) Ensure(context.Context) error  { *d += "ensured "; return nil }
func (d *daemon) Release(context.Context) error { *d += "released "; return nil }

func TestAbandoned(t *testing.T) {
	mine, err := verify.Prefix()
	if err != nil {
		t.Fatal(err)
	}
	later := verify.PrefixOf(companion.Process{PID: os.Getpid(), Start: 1})
	for name, want := range map[string]bool{
		gone(t) + "12ab": true,
		later + "12ab":   true, // another had this one's number
		mine + "12ab":    false,
		"mesh-verify-":   false, "mesh-verify-1": false, "mesh-verify-99999999-": false, "mesh-verify-1a2b3c4d": false,
		"mesh-verify-x-1-": false, "": false, "other-mesh-verify-0-0-": false, "mesh.s-one": false,
	} {
		if got := verify.Abandoned(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}

// A verification that is killed amid its power cut leaves a mount that nobody
// answers for.
func TestSweepOfAKilledPowerCut(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if err := volatile.Works(); err != nil {
		t.Skip(err)
	}
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), exe, "serve disks")
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSpace(line)
	mount := filepath.Join(dir, verify.DiskMount)
	t.Cleanup(func() { _ = unix.Unmount(mount, unix.MNT_DETACH) })
	h := fake{machinetest.New()}
	if _, err := verify.Sweep(t.Context(), new(daemon), h); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadDir(mount); err != nil {
		t.Errorf("of one that lives: %v", err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	if _, err := os.ReadDir(mount); !errors.Is(err, unix.ENOTCONN) {
		t.Errorf("the mount of one that was killed: %v", err)
	}
	if _, err := verify.Sweep(t.Context(), new(daemon), h); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// What a verification left that was killed is removed, a mount too; what is
// another's stays.
func TestSweep(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	mine, err := verify.Prefix()
	if err != nil {
		t.Fatal(err)
	}
	dead := gone(t)
	h := fake{machinetest.New()}
	for i, name := range []string{dead + "1", mine + "2", "mesh.s-one"} {
		dir := filepath.Join(tmp, name)
		if err := os.MkdirAll(filepath.Join(dir, verify.DiskMount), 0o755); err != nil {
			t.Fatal(err)
		}
		spec := machine.Spec{
			Name: name, UUID: strings.Repeat("0", 8) + "-0000-4000-8000-00000000000" + string(rune('0'+i)), Run: "run",
			Accelerator: machine.TCG, MemoryBytes: 1 << 20, CPUs: 1, Disk: dir + "/disk.qcow2",
			ConsoleLog: dir + "/console", ConsoleSock: "/run/" + name,
		}
		if err := h.Create(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	elsewhere := t.TempDir()
	if err := os.Symlink(elsewhere, filepath.Join(tmp, dead+"link")); err != nil {
		t.Fatal(err)
	}
	want := []string{mine + "2", dead + "link", "mesh.s-one"}
	if os.Geteuid() == 0 {
		mount := filepath.Join(tmp, dead+"1", verify.DiskMount)
		if err := unix.Mount("none", mount, "tmpfs", 0, ""); err != nil {
			t.Logf("without a mount: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(mount, unix.MNT_DETACH) })
		other := filepath.Join(tmp, dead+"other")
		if err := os.Mkdir(other, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(other, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		want = append(want, dead+"other")
	}
	var d daemon
	for _, want := range [][]string{{"machine " + dead + "1", "directory " + filepath.Join(tmp, dead+"1")}, nil} {
		swept, err := verify.Sweep(t.Context(), &d, h)
		if diff := cmp.Diff(want, swept); err != nil || diff != "" {
			t.Errorf("%v; swept (-want +got):\n%s", err, diff)
		}
	}
	if d != "ensured released " {
		t.Errorf("the daemon was %s", d)
	}
	left, err := h.List(t.Context(), "")
	if diff := cmp.Diff([]string{mine + "2", "mesh.s-one"}, left); diff != "" || err != nil {
		t.Errorf("machines: %v, (-want +got):\n%s", err, diff)
	}
	entries, err := os.ReadDir(tmp)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(want)
	slices.Sort(names)
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("directories (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(elsewhere); err != nil {
		t.Error(err)
	}
}
