package volatile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"mesh/lab/machine"
	"mesh/lab/machine/machinetest"
	"mesh/lab/volatile"
)

// store is a lab's, with one disk, and a run whose disks are served where its
// machines look for them.
func store(t *testing.T) (volatile.Config, *machinetest.Hypervisor, *volatile.Machines, machine.Spec) {
	t.Helper()
	need(t)
	dir := t.TempDir()
	const run = "0badcafe"
	layers, runtime := filepath.Join(dir, "layers"), filepath.Join(dir, "run")
	c := volatile.Config{
		Directory: layers, Mount: volatile.Mount(layers, run),
		Control: volatile.Control(filepath.Join(runtime, run)), Log: filepath.Join(dir, "log"),
	}
	for _, d := range []string{layers, filepath.Dir(c.Control)} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, behind(c), "flushed..")
	inner := machinetest.New()
	return c, inner, volatile.NewMachines(inner, inner, layers, runtime), machine.Spec{
		Name: "one", UUID: "00000000-0000-4000-8000-000000000001", Run: run, Accelerator: machine.TCG,
		MemoryBytes: 16 << 20, CPUs: 1, Disk: behind(c),
		ConsoleLog: filepath.Join(dir, "console"), ConsoleSock: filepath.Join(dir, "sock"),
	}
}

// TestMachines: a machine of a run with a server stands on the disk as it is
// served, also after a snapshot, while callers see the file behind; and it loses
// its power at the server.
func TestMachines(t *testing.T) {
	c, inner, machines, spec := store(t)
	serve(t, c)
	t.Cleanup(func() { remove(t, c) })
	if err := machines.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	on := func(file string) {
		t.Helper()
		if got, err := inner.Disk(t.Context(), spec.Name); got != c.Disk(file) || err != nil {
			t.Errorf("it writes to %s, %v; want %s", got, err, c.Disk(file))
		}
		if got, err := machines.Disk(t.Context(), spec.Name); got != filepath.Join(c.Directory, file) || err != nil {
			t.Errorf("callers see %s, %v", got, err)
		}
	}
	on("a.qcow2")
	next := filepath.Join(c.Directory, "b.qcow2")
	if err := machinetest.Overlay(disk(c), next); err != nil {
		t.Fatal(err)
	}
	if err := machines.Snapshot(t.Context(), spec.Name, filepath.Join(t.TempDir(), "memory"), next); err != nil {
		t.Fatal(err)
	}
	on("b.qcow2")
	before := content(t, next)
	h := holder(t, c.Disk("b.qcow2"), "unflushed")
	if err := machines.Destroy(t.Context(), spec.Name); err != nil {
		t.Fatal(err)
	}
	if h.Wait() == nil {
		t.Error("whoever wrote to the disk was not killed")
	}
	if got := content(t, next); got != before || inner.String() != "" {
		t.Errorf("after the destruction the disk holds %q, and there are %q", got, inner)
	}
}

// TestMachinesPlain: a run without a server has its machines on the files
// themselves; one whose server was killed is refused with the reason, and can be
// destroyed.
func TestMachinesPlain(t *testing.T) {
	c, inner, machines, spec := store(t)
	if err := machines.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if got, err := inner.Disk(t.Context(), spec.Name); got != behind(c) || err != nil {
		t.Errorf("it writes to %s, %v; want the file itself", got, err)
	}
	if err := machines.Destroy(t.Context(), spec.Name); err != nil {
		t.Fatal(err)
	}
	p := serve(t, c)
	t.Cleanup(func() { remove(t, c) })
	if err := machines.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(p.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := machines.Destroy(t.Context(), spec.Name); err != nil || inner.String() != "" {
		t.Errorf("destroy: %v; there are %q", err, inner)
	}
	if err := machines.Create(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "nobody serves its disk any more") {
		t.Errorf("create: %v", err)
	}
}
