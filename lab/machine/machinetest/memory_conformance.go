package machinetest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"mesh/lab/machine"
	"mesh/lab/machine/bootsector"
)

// memoryTests hold to machine.Memory.
var memoryTests = []test{
	{"what is absent has no memory", testMemoryAbsent},
	{"a paused machine stands still", testPause},
	{"a saved machine goes on as another", testSave},
	{"two machines come of one image", testTwins},
	{"a snapshot leaves the machine and moves its disk", testSnapshot},
	{"a snapshot that cannot be taken changes nothing", testSnapshotRefused},
	{"an image that does not fit is refused", testUnfit},
	{"an image that is none, or cut short, is refused", testForeign},
	{"a memory image is never written over", testOverwrite},
	{"what was plugged is in the image", testPlug},
	{"a platform is the same each time", testPlatform},
}

// patience is how long a tiny guest may take to tick.
const patience = 30 * time.Second

// running makes a machine that counts and has begun to.
func (k Kit) running(t *testing.T, name string) machine.Spec {
	t.Helper()
	s := k.create(t, name, bootsector.Count())
	k.resume(t, s)
	k.countsBeyond(t, s, 0)
	return s
}

func (k Kit) resume(t *testing.T, s machine.Spec) {
	t.Helper()
	if err := k.Hypervisor.Resume(t.Context(), s.Name); err != nil {
		t.Fatal(err)
	}
}

func (k Kit) pause(t *testing.T, s machine.Spec) {
	t.Helper()
	if err := k.Hypervisor.Pause(t.Context(), s.Name); err != nil {
		t.Fatal(err)
	}
}

// countsBeyond waits until the guest has counted beyond n and returns its count.
func (k Kit) countsBeyond(t *testing.T, s machine.Spec, n int) int {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for {
		if now := k.Count(t, s); now > n {
			return now
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s has not counted beyond %d in %v", s.Name, n, patience)
		}
	}
}

// clone is a spec that fits what was made from s, with everything else its own
// and a disk over s's.
func (k Kit) clone(t *testing.T, s machine.Spec, name string) machine.Spec {
	t.Helper()
	c := k.Spec(t, name, bootsector.Halt())
	c.Disk = filepath.Join(k.Dir, name+"-over.qcow2")
	k.Overlay(t, s.Disk, c.Disk)
	for i, n := range s.NICs {
		c.NICs = append(c.NICs, machine.NIC{MAC: n.MAC, Tap: k.tap(name, i)})
	}
	return c
}

// tap is a link's name of the suite's.
func (k Kit) tap(name string, i int) string {
	const letters = "abcdefghij"
	tail := k.Run[max(0, len(k.Run)-6):]
	return "t" + tail + name[:min(len(name), 6)] + letters[i:i+1]
}

func (k Kit) file(name string) string { return filepath.Join(k.Dir, name) }

func wantNoFile(t *testing.T, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if _, err := os.Lstat(p); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is there (%v)", p, err)
		}
	}
}

func testMemoryAbsent(t *testing.T, k Kit) {
	h, name, memory := k.Hypervisor, "mesh-test-"+k.Run+"-nobody", k.file("memory")
	for what, err := range map[string]error{
		"pause":    h.Pause(t.Context(), name),
		"save":     h.Save(t.Context(), name, memory),
		"snapshot": h.Snapshot(t.Context(), name, memory, k.file("disk")),
		"plug":     h.Plug(t.Context(), name, machine.NIC{MAC: "52:54:00:00:00:01", Tap: k.tap("nobody", 0)}),
	} {
		if !errors.Is(err, machine.ErrAbsent) {
			t.Errorf("%s: %v, want ErrAbsent", what, err)
		}
	}
	wantNoFile(t, memory)
	s := k.Spec(t, "nothing", bootsector.Halt())
	if err := h.Restore(t.Context(), s, memory); err == nil || errors.Is(err, machine.ErrForeign) {
		t.Errorf("restore from no file: %v, want an error that is not ErrForeign", err)
	}
	k.wantAbsent(t, s.Name)
}

func testPause(t *testing.T, k Kit) {
	s := k.running(t, "pause")
	for range 2 { // a paused machine is left alone
		k.pause(t, s)
		k.wantState(t, s.Name, machine.Paused)
	}
	k.resume(t, s)
	k.countsBeyond(t, s, k.Count(t, s))
}

func testSave(t *testing.T, k Kit) {
	h, memory := k.Hypervisor, k.file("save.memory")
	s := k.running(t, "save")
	at := k.countsBeyond(t, s, 5)
	if err := h.Save(t.Context(), s.Name, memory); err != nil {
		t.Fatal(err)
	}
	k.wantAbsent(t, s.Name)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if d, err := h.Wait(ctx, s.Name); err != nil || d.Cause != machine.Saved {
		t.Errorf("it ended as %+v, %v; want saved", d, err)
	}
	c := k.clone(t, s, "other")
	if err := h.Restore(t.Context(), c, memory); err != nil {
		t.Fatal(err)
	}
	k.wantState(t, c.Name, machine.Paused)
	k.wantAbsent(t, s.Name)
	if got, err := h.List(t.Context(), c.Run); err != nil || len(got) != 1 || got[0] != c.Name {
		t.Errorf("machines of the run: %q, %v", got, err)
	}
	k.resume(t, c)
	if first := k.countsBeyond(t, c, 0); first < at {
		t.Errorf("it goes on at %d, it was saved at %d", first, at)
	}
}

func testTwins(t *testing.T, k Kit) {
	h, memory := k.Hypervisor, k.file("twins.memory")
	s := k.running(t, "parent")
	if err := h.Save(t.Context(), s.Name, memory); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(memory)
	if err != nil {
		t.Fatal(err)
	}
	one, two := k.clone(t, s, "one"), k.clone(t, s, "two")
	failed := make(chan error, 2)
	for _, c := range []machine.Spec{one, two} {
		go func() { failed <- h.Restore(t.Context(), c, memory) }()
	}
	if err := errors.Join(<-failed, <-failed); err != nil {
		t.Fatal(err)
	}
	for _, c := range []machine.Spec{one, two} {
		k.resume(t, c)
		k.countsBeyond(t, c, 0)
	}
	if after, err := os.ReadFile(memory); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the image was changed (%v)", err)
	}
	if err := h.Restore(t.Context(), one, memory); err == nil {
		t.Error("the same machine was restored twice")
	}
	k.wantState(t, one.Name, machine.Running)
}

func testSnapshot(t *testing.T, k Kit) {
	h, memory := k.Hypervisor, k.file("snap.memory")
	s := k.running(t, "snap")
	k.pause(t, s)
	next, other := k.file("next.qcow2"), k.file("other.qcow2")
	k.Overlay(t, s.Disk, next)
	k.Overlay(t, s.Disk, other)
	if err := h.Snapshot(t.Context(), s.Name, memory, next); err != nil {
		t.Fatal(err)
	}
	k.wantState(t, s.Name, machine.Paused)
	if disk, err := h.Disk(t.Context(), s.Name); err != nil || disk != next {
		t.Errorf("its disk is %q, %v; want %q", disk, err, next)
	}
	at := k.Count(t, s)
	if err := h.Snapshot(t.Context(), s.Name, k.file("again.memory"), other); err == nil {
		t.Error("a second snapshot moved it to a disk that does not stand on the one it has now")
	}
	k.resume(t, s)
	k.countsBeyond(t, s, at)
	c := k.clone(t, s, "fork") // beside it, over the disk that is not written any more
	if err := h.Restore(t.Context(), c, memory); err != nil {
		t.Fatal(err)
	}
	k.resume(t, c)
	if first := k.countsBeyond(t, c, 0); first < at-1 {
		t.Errorf("it goes on at %d, the snapshot was taken at %d", first, at)
	}
	k.wantState(t, s.Name, machine.Running)
}

func testSnapshotRefused(t *testing.T, k Kit) {
	h, memory := k.Hypervisor, k.file("refused.memory")
	s := k.running(t, "refused")
	next := k.file("beyond.qcow2")
	k.Overlay(t, s.Disk, next)
	for what, try := range map[string]func() error{
		"while it runs":   func() error { return h.Snapshot(t.Context(), s.Name, memory, next) },
		"without a disk":  func() error { k.pause(t, s); return h.Snapshot(t.Context(), s.Name, memory, k.file("no.qcow2")) },
		"to nowhere":      func() error { k.pause(t, s); return h.Snapshot(t.Context(), s.Name, k.file("no/memory"), next) },
		"when given up":   func() error { k.pause(t, s); return h.Snapshot(cancelled(t), s.Name, memory, next) },
		"save to nowhere": func() error { return h.Save(t.Context(), s.Name, k.file("no/memory")) },
	} {
		if err := try(); err == nil {
			t.Errorf("%s: was taken", what)
		}
		wantNoFile(t, memory)
		if disk, err := h.Disk(t.Context(), s.Name); err != nil || disk != s.Disk {
			t.Errorf("%s: its disk is %q, %v; want %q", what, disk, err, s.Disk)
		}
		k.resume(t, s)
		k.countsBeyond(t, s, k.Count(t, s))
	}
}

func cancelled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func testUnfit(t *testing.T, k Kit) {
	h, memory := k.Hypervisor, k.file("unfit.memory")
	s := k.running(t, "unfit")
	if err := h.Save(t.Context(), s.Name, memory); err != nil {
		t.Fatal(err)
	}
	c := k.clone(t, s, "fits")
	for what, change := range map[string]func(c *machine.Spec){
		"more memory": func(c *machine.Spec) { c.MemoryBytes *= 2 },
		"more cores":  func(c *machine.Spec) { c.CPUs++ },
		"a NIC":       func(c *machine.Spec) { c.NICs = []machine.NIC{{MAC: "52:54:00:00:00:01", Tap: k.tap("unfit", 0)}} },
		"a display":   func(c *machine.Spec) { c.Display = true },
	} {
		other := c
		change(&other)
		if err := h.Restore(t.Context(), other, memory); !errors.Is(err, machine.ErrForeign) {
			t.Errorf("%s: %v, want ErrForeign", what, err)
		}
		k.wantAbsent(t, c.Name)
	}
	if err := h.Restore(t.Context(), c, memory); err != nil {
		t.Errorf("the right one, after them: %v", err)
	}
}

func testForeign(t *testing.T, k Kit) {
	h, memory := k.Hypervisor, k.file("whole.memory")
	s := k.running(t, "foreign")
	if err := h.Save(t.Context(), s.Name, memory); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(memory)
	if err != nil {
		t.Fatal(err)
	}
	c := k.clone(t, s, "stranger")
	for what, content := range map[string][]byte{
		"empty":             {},
		"garbage":           bytes.Repeat([]byte("garbage "), 1000),
		"without its end":   whole[:len(whole)-1],
		"half":              whole[:len(whole)/2],
		"its beginning":     whole[:50],
		"another beginning": append([]byte("X"), whole[1:]...),
	} {
		broken := k.file("broken.memory")
		if err := os.WriteFile(broken, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := h.Restore(t.Context(), c, broken); !errors.Is(err, machine.ErrForeign) {
			t.Errorf("%s: %v, want ErrForeign", what, err)
		}
		k.wantAbsent(t, c.Name)
		wantNoFile(t, c.ConsoleSock)
	}
}

func testOverwrite(t *testing.T, k Kit) {
	h, memory := k.Hypervisor, k.file("mine")
	s := k.running(t, "keen")
	if err := os.WriteFile(memory, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.Save(t.Context(), s.Name, memory); err == nil {
		t.Error("saved over a file")
	}
	k.wantState(t, s.Name, machine.Running)
	if got, err := os.ReadFile(memory); err != nil || string(got) != "mine" {
		t.Errorf("the file holds %q, %v", got, err)
	}
}

func testPlug(t *testing.T, k Kit) {
	h, memory := k.Hypervisor, k.file("plug.memory")
	s := k.running(t, "plug")
	for i, mac := range []string{"52:54:00:00:00:0a", "52:54:00:00:00:0b"} {
		s.NICs = append(s.NICs, machine.NIC{MAC: mac, Tap: k.tap("plug", i)})
		if err := h.Plug(t.Context(), s.Name, s.NICs[i]); err != nil {
			t.Fatal(err)
		}
		k.pause(t, s) // the second while it stands still
	}
	for what, nic := range map[string]machine.NIC{
		"its own address":  {MAC: s.NICs[0].MAC, Tap: k.tap("plug", 2)},
		"its own tap":      {MAC: "52:54:00:00:00:0c", Tap: s.NICs[0].Tap},
		"no address":       {Tap: k.tap("plug", 2)},
		"no name of a tap": {MAC: "52:54:00:00:00:0c"},
	} {
		if err := h.Plug(t.Context(), s.Name, nic); err == nil {
			t.Errorf("%s was plugged in once more", what)
		}
	}
	if err := h.Save(t.Context(), s.Name, memory); err != nil {
		t.Fatal(err)
	}
	c := k.clone(t, s, "wired")
	swapped := c
	swapped.NICs = []machine.NIC{c.NICs[1], c.NICs[0]}
	if err := h.Restore(t.Context(), swapped, memory); !errors.Is(err, machine.ErrForeign) {
		t.Errorf("with its NICs in another order: %v, want ErrForeign", err)
	}
	if err := h.Restore(t.Context(), c, memory); err != nil {
		t.Error(err)
	}
	k.wantState(t, c.Name, machine.Paused)
}

func testPlatform(t *testing.T, k Kit) {
	one, err := k.Hypervisor.Platform(t.Context(), k.Accelerator)
	if err != nil {
		t.Fatal(err)
	}
	two, err := k.Hypervisor.Platform(t.Context(), k.Accelerator)
	if err != nil || one != two {
		t.Errorf("%+v, then %+v, %v", one, two, err)
	}
	if one.Emulator == "" || one.MachineType == "" || one.CPU == "" || one.Accelerator != k.Accelerator {
		t.Errorf("%+v", one)
	}
}
