package machinetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"mesh/lab/machine"
	"mesh/lab/machine/bootsector"
)

// Kit is what a hypervisor brings to the suite.
type Kit struct {
	Hypervisor interface {
		machine.Hypervisor
		machine.Memory
		machine.Abuse
	}
	Accelerator machine.Accelerator
	// Disk writes a raw disk as the qcow2 file that a spec names.
	Disk func(t *testing.T, raw []byte, path string)
	// Overlay makes a qcow2 file that stands on base.
	Overlay func(t *testing.T, base, path string)
	// Count is what the guest of bootsector.Count, which may run, has come to.
	Count func(t *testing.T, s machine.Spec) int
	// Dir is where disks, logs and sockets of machines may be; its path is short.
	Dir string
	// Run marks the suite's machines; it is unique.
	Run string
}

// test is one of the suite.
type test struct {
	name string
	run  func(t *testing.T, k Kit)
}

// RunConformance holds a hypervisor to what machine.Hypervisor, machine.Memory
// and machine.Abuse promise. Its
// machines are tiny; all are gone afterwards. It calls newKit for each of its
// tests, which run in parallel.
func RunConformance(t *testing.T, newKit func(t *testing.T) Kit) {
	tests := []test{
		{"a machine is made paused, runs, and is destroyed", testLife},
		{"what is absent is said to be", testAbsent},
		{"a machine is listed by its run", testList},
		{"what is taken is refused and the first machine stays", testTaken},
		{"a wrong spec is refused and nothing is left", testRefused},
		{"waiting sees the end at once", testWait},
		{"waiting ends with its context", testWaitCancelled},
		{"an agent that is not there is said to be", testNoAgent},
		{"a cancelled call does nothing", testCancelled},
		{"an ended machine is forgotten", testForget},
	}
	for _, tt := range slices.Concat(tests, memoryTests, abuseTests) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.run(t, newKit(t))
		})
	}
}

// Spec is a tiny machine of the suite's that runs raw; its files are in k.Dir
// and it is destroyed when t ends.
func (k Kit) Spec(t *testing.T, name string, raw []byte) machine.Spec {
	t.Helper()
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	s := machine.Spec{
		Name:        "mesh-test-" + k.Run + "-" + name,
		UUID:        fmt.Sprintf("%x-%x-4%03x-8%03x-%x", id[0:4], id[4:6], uint16(id[6])<<4|uint16(id[7]>>4), uint16(id[8])<<4|uint16(id[9]>>4), id[10:16]),
		Run:         k.Run,
		Accelerator: k.Accelerator,
		MemoryBytes: 16 << 20,
		CPUs:        1,
		Disk:        filepath.Join(k.Dir, name+".qcow2"),
		ConsoleLog:  filepath.Join(k.Dir, name+".log"),
		ConsoleSock: filepath.Join(k.Dir, name+".sock"),
	}
	k.Disk(t, raw, s.Disk)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer cancel()
		if err := errors.Join(k.Hypervisor.Destroy(ctx, s.Name), k.Hypervisor.Forget(ctx, s.Name)); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return s
}

// create makes a machine or ends the test.
func (k Kit) create(t *testing.T, name string, raw []byte) machine.Spec {
	t.Helper()
	s := k.Spec(t, name, raw)
	if err := k.Hypervisor.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return s
}

func (k Kit) wantState(t *testing.T, name string, want machine.State) {
	t.Helper()
	if got, err := k.Hypervisor.State(t.Context(), name); err != nil || got != want {
		t.Errorf("state of %s is %q, %v; want %q", name, got, err, want)
	}
}

func (k Kit) wantAbsent(t *testing.T, name string) {
	t.Helper()
	if got, err := k.Hypervisor.State(t.Context(), name); !errors.Is(err, machine.ErrAbsent) {
		t.Errorf("state of %s is %q, %v; want ErrAbsent", name, got, err)
	}
}

func testLife(t *testing.T, k Kit) {
	h := k.Hypervisor
	s := k.create(t, "life", bootsector.Halt())
	k.wantState(t, s.Name, machine.Paused)
	for range 2 { // a running machine is left alone
		if err := h.Resume(t.Context(), s.Name); err != nil {
			t.Fatal(err)
		}
		k.wantState(t, s.Name, machine.Running)
	}
	if _, err := h.Diagnosis(t.Context(), s.Name); err != nil {
		t.Error(err)
	}
	for range 2 { // absent is success
		if err := h.Destroy(t.Context(), s.Name); err != nil {
			t.Fatal(err)
		}
		k.wantAbsent(t, s.Name)
	}
	if err := h.Create(t.Context(), s); err != nil {
		t.Errorf("create again: %v", err)
	}
	k.wantState(t, s.Name, machine.Paused)
}

func testAbsent(t *testing.T, k Kit) {
	h, name := k.Hypervisor, "mesh-test-"+k.Run+"-nobody"
	k.wantAbsent(t, name)
	if err := h.Resume(t.Context(), name); !errors.Is(err, machine.ErrAbsent) {
		t.Errorf("resume: %v, want ErrAbsent", err)
	}
	if _, err := h.Agent(t.Context(), name, `{"execute":"guest-ping"}`); !errors.Is(err, machine.ErrAbsent) {
		t.Errorf("agent: %v, want ErrAbsent", err)
	}
	if err := errors.Join(h.Destroy(t.Context(), name), h.Forget(t.Context(), name)); err != nil {
		t.Errorf("destroy and forget: %v", err)
	}
	if text, err := h.Diagnosis(t.Context(), name); err != nil || text != "" {
		t.Errorf("diagnosis: %q, %v", text, err)
	}
	if d, err := h.Wait(t.Context(), name); err != nil || d.Cause != machine.Unknown {
		t.Errorf("wait: %+v, %v", d, err)
	}
}

func testList(t *testing.T, k Kit) {
	a, b := k.create(t, "a", bootsector.Halt()), k.create(t, "b", bootsector.Halt())
	other := k.Spec(t, "other", bootsector.Halt())
	other.Run = k.Run + "-other"
	if err := k.Hypervisor.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	list := func(run string) []string {
		t.Helper()
		names, err := k.Hypervisor.List(t.Context(), run)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(names)
		return names
	}
	if got, want := list(k.Run), []string{a.Name, b.Name}; !slices.Equal(got, want) {
		t.Errorf("machines of the run: %q, want %q", got, want)
	}
	if got := list("nobodys-run"); len(got) != 0 {
		t.Errorf("machines of no run: %q", got)
	}
	for all, name := list(""), other.Name; !slices.Contains(all, name) || !slices.Contains(all, a.Name); {
		t.Fatalf("all machines: %q", all)
	}
}

func testTaken(t *testing.T, k Kit) {
	first := k.create(t, "first", bootsector.Halt())
	second := k.Spec(t, "second", bootsector.Halt())
	for what, change := range map[string]func(s *machine.Spec){
		"name": func(s *machine.Spec) { s.Name = first.Name },
		"UUID": func(s *machine.Spec) { s.UUID = first.UUID },
	} {
		s := second
		change(&s)
		if err := k.Hypervisor.Create(t.Context(), s); err == nil {
			t.Errorf("a second machine with that %s was made", what)
		}
		k.wantState(t, first.Name, machine.Paused)
	}
	k.wantAbsent(t, second.Name)
}

func testRefused(t *testing.T, k Kit) {
	good := k.Spec(t, "wrong", bootsector.Halt())
	for what, change := range map[string]func(s *machine.Spec){
		"relative disk":   func(s *machine.Spec) { s.Disk = "disk" },
		"no memory":       func(s *machine.Spec) { s.MemoryBytes = 0 },
		"no accelerator":  func(s *machine.Spec) { s.Accelerator = "" },
		"socket too long": func(s *machine.Spec) { s.ConsoleSock = filepath.Join("/", string(make([]byte, 108))) },
	} {
		s := good
		change(&s)
		if err := k.Hypervisor.Create(t.Context(), s); err == nil {
			t.Errorf("%s: was made", what)
		}
		k.wantAbsent(t, good.Name)
	}
	if err := k.Hypervisor.Create(t.Context(), good); err != nil {
		t.Errorf("the right one, after them: %v", err)
	}
}

func testWait(t *testing.T, k Kit) {
	s := k.create(t, "wait", bootsector.Halt())
	type end struct {
		death machine.Death
		err   error
		at    time.Time
	}
	ends := make(chan end, 1)
	go func() {
		d, err := k.Hypervisor.Wait(t.Context(), s.Name)
		ends <- end{d, err, time.Now()}
	}()
	if err := k.Hypervisor.Resume(t.Context(), s.Name); err != nil {
		t.Error(err)
	}
	if err := k.Hypervisor.Destroy(t.Context(), s.Name); err != nil {
		t.Error(err)
	}
	destroyed := time.Now()
	e := <-ends
	if e.err != nil || (e.death.Cause != machine.Destroyed && e.death.Cause != machine.Unknown) {
		t.Errorf("wait: %+v, %v", e.death, e.err)
	}
	if late := e.at.Sub(destroyed); late > time.Second {
		t.Errorf("the end was seen %v late", late)
	}
	if d, err := k.Hypervisor.Wait(t.Context(), s.Name); err != nil || d.Cause != machine.Destroyed {
		t.Errorf("wait afterwards: %+v, %v", d, err)
	}
}

func testWaitCancelled(t *testing.T, k Kit) {
	s := k.create(t, "patient", bootsector.Halt())
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := k.Hypervisor.Wait(ctx, s.Name)
		failed <- err
	}()
	k.wantState(t, s.Name, machine.Paused)
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("wait: %v, want context.Canceled", err)
	}
	k.wantState(t, s.Name, machine.Paused)
}

func testNoAgent(t *testing.T, k Kit) {
	s := k.create(t, "mute", bootsector.Halt())
	for _, state := range []machine.State{machine.Paused, machine.Running} {
		k.wantState(t, s.Name, state)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if got, err := k.Hypervisor.Agent(ctx, s.Name, `{"execute":"guest-ping"}`); !errors.Is(err, machine.ErrAgent) {
			t.Errorf("agent of a %s machine: %q, %v; want ErrAgent", state, got, err)
		}
		cancel()
		if err := k.Hypervisor.Resume(t.Context(), s.Name); err != nil {
			t.Fatal(err)
		}
	}
}

func testCancelled(t *testing.T, k Kit) {
	s := k.Spec(t, "never", bootsector.Halt())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := k.Hypervisor.Create(ctx, s); !errors.Is(err, context.Canceled) {
		t.Errorf("create: %v, want context.Canceled", err)
	}
	k.wantAbsent(t, s.Name)
}

func testForget(t *testing.T, k Kit) {
	s := k.create(t, "past", bootsector.Halt())
	if err := k.Hypervisor.Forget(t.Context(), s.Name); err == nil {
		t.Error("a machine that exists was forgotten")
	}
	k.wantState(t, s.Name, machine.Paused)
	if err := k.Hypervisor.Destroy(t.Context(), s.Name); err != nil {
		t.Fatal(err)
	}
	if err := k.Hypervisor.Forget(t.Context(), s.Name); err != nil {
		t.Error(err)
	}
	if d, err := k.Hypervisor.Wait(t.Context(), s.Name); err != nil || d.Cause != machine.Unknown {
		t.Errorf("wait for a forgotten machine: %+v, %v", d, err)
	}
}
