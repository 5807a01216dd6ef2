package guest_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mesh/lab/guest"
	"mesh/lab/machine"
	"mesh/lab/machine/libvirt"
)

var (
	boot = flag.Bool("boot", false, "boot the newest image of the lab's store, which takes most of a minute without KVM")
	keep = flag.String("keep", "", "with -boot: keep the console of the boot in this file")
)

// A real machine, from the cold to its end. What the fake agent of the other
// tests does was learnt here.
func TestRealMachine(t *testing.T) {
	m := bootReal(t)
	m.run(guest.Shell("systemctl is-system-running --wait"))
	m.took("boot done")
	m.run(guest.Command{Args: []string{"/bin/true"}})
	m.took("run true for the first time")
	for range 10 {
		m.run(guest.Command{Args: []string{"/bin/true"}})
	}
	m.took("run true ten times")
	m.testCommands()
	m.testCopies()
	m.testLongOutput()
	m.testGivenUp()
	m.testGoodBoot()
	m.testPanic()
}

// real is a booted machine and what is done with it.
type real struct {
	*testing.T
	ctx  context.Context
	h    *libvirt.Hypervisor
	g    *guest.Guests
	spec machine.Spec
	took func(what string)
}

func bootReal(t *testing.T) real {
	if !*boot {
		t.Skip("boots a machine: needs -boot")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	spec := newest(t)
	daemon, h := libvirt.NewDaemon("/run/mesh-lab", nil), libvirt.New()
	if err := daemon.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := errors.Join(h.Destroy(ctx, spec.Name), h.Forget(ctx, spec.Name), daemon.Release(ctx)); err != nil {
			t.Error(err)
		}
	})
	accelerator, why, err := daemon.Accelerator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Log(accelerator, why)
	spec.Accelerator = accelerator
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	t.Cleanup(cancel)
	m := real{t, ctx, h, guest.New(h), spec, stopwatch(t)}
	if err := h.Create(ctx, spec); err != nil {
		t.Fatal(err)
	}
	m.took("create")
	if err := h.Resume(ctx, spec.Name); err != nil {
		t.Fatal(err)
	}
	if err := m.g.Wait(ctx, spec.Name); err != nil {
		t.Fatal(err)
	}
	m.took("cold boot until the agent answers")
	return m
}

// run runs a command or ends the test.
func (m real) run(c guest.Command) guest.Result {
	m.Helper()
	r, err := m.g.Exec(m.ctx, m.spec.Name, c)
	if err != nil {
		m.Fatal(err)
	}
	return r
}

func (m real) testCommands() {
	r := m.run(guest.Command{Args: []string{"/bin/sh", "-c", `cat; echo "$A" >&2; exit 7`}, Env: []string{"A=<ä>", "PATH=/usr/bin"}, Stdin: []byte("in\x00put")})
	if r.ExitCode != 7 || string(r.Stdout) != "in\x00put" || string(r.Stderr) != "<ä>\n" {
		m.Errorf("%+v", r)
	}
	if r = m.run(guest.Shell("kill -KILL $$")); r.ExitCode != 128+9 {
		m.Errorf("killed: %+v", r)
	}
	if r = m.run(guest.Command{Args: []string{"/no/such"}}); r.ExitCode != 127 || string(r.Stderr) != "/no/such: No such file or directory\n" {
		m.Errorf("no such program: %d %q", r.ExitCode, r.Stderr)
	}
	m.took("three commands")
	long := bytes.Repeat([]byte("long input\n"), 50_000)
	r = m.run(guest.Command{Args: []string{"sh", "-c", `wc -c; ls -A /run | grep 'part.i'`}, Stdin: long})
	if string(r.Stdout) != fmt.Sprintln(len(long)) {
		m.Errorf("%d bytes of input: %q %q", len(long), r.Stdout, r.Stderr)
	}
	m.took("a command with 550 KB of input")
}

func (m real) testCopies() {
	big := make([]byte, 5<<20)
	_, _ = rand.Read(big)
	if err := m.g.CopyIn(m.ctx, m.spec.Name, bytes.NewReader(big), "/root/big", 0o640); err != nil {
		m.Fatal(err)
	}
	m.took("copy 5 MiB in")
	var back bytes.Buffer
	if err := m.g.CopyOut(m.ctx, m.spec.Name, "/root/big", &back); err != nil {
		m.Fatal(err)
	}
	m.took("copy 5 MiB out")
	if !bytes.Equal(back.Bytes(), big) {
		m.Errorf("%d bytes came back, not those that were sent", back.Len())
	}
	if r := m.run(guest.Shell("stat -c '%a %U' /root/big; ls -A /root | grep part")); string(r.Stdout) != "640 root\n" {
		m.Errorf("%q", r.Stdout)
	}
	if err := m.g.CopyOut(m.ctx, m.spec.Name, "/no/such", &back); err == nil || !strings.Contains(err.Error(), "No such file") {
		m.Errorf("no such file: %v", err)
	}
}

func (m real) testLongOutput() {
	for _, mib := range []int{1, 4, 20} {
		if r := m.run(guest.Shell(fmt.Sprintf("head -c %dM /dev/zero", mib))); len(r.Stdout) != mib<<20 {
			m.Errorf("%d MiB of output came back as %d bytes", mib, len(r.Stdout))
		}
	}
	m.took("long outputs")
}

func (m real) testGivenUp() {
	short, stop := context.WithTimeout(m.ctx, time.Second)
	defer stop()
	if _, err := m.g.Exec(short, m.spec.Name, guest.Shell("sleep 4242; true")); !errors.Is(err, context.DeadlineExceeded) {
		m.Errorf("given up: %v", err)
	}
	r := m.run(guest.Shell("grep -al 'sleep.4242$' /proc/[0-9]*/cmdline; ls -A /run | grep part"))
	if len(r.Stdout) > 0 {
		m.Errorf("a command that was given up runs on, or something is left: %s", r.Stdout)
	}
}

func (m real) testGoodBoot() {
	console, err := os.ReadFile(m.spec.ConsoleLog)
	if err != nil {
		m.Fatal(err)
	}
	if *keep != "" {
		if err := os.WriteFile(*keep, console, 0o644); err != nil {
			m.Error(err)
		}
	}
	if found := guest.Scan(bytes.NewReader(console)); len(found) != 0 {
		m.Errorf("a good boot is called fatal: %v", found)
	}
	if tail, err := guest.Tail(bytes.NewReader(console), 5); err != nil || tail == "" {
		m.Errorf("tail: %q, %v", tail, err)
	}
	journal := m.run(guest.Shell("journalctl -b --no-pager"))
	if found := guest.Scan(bytes.NewReader(journal.Stdout)); len(found) != 0 {
		m.Errorf("the journal of a good boot is called fatal: %v", found)
	}
	m.took("console and journal")
}

// Case L9: a panic ends the machine and whoever waits for it.
func (m real) testPanic() {
	ends := make(chan machine.Death, 1)
	go func() {
		d, err := m.h.Wait(m.ctx, m.spec.Name)
		if err != nil {
			m.Error(err)
		}
		ends <- d
	}()
	_, _ = m.g.Exec(m.ctx, m.spec.Name, guest.Shell("echo c >/proc/sysrq-trigger"))
	if d := <-ends; d.Cause != machine.Panicked {
		m.Errorf("it ended because it %s, not by its panic", d.Cause)
	}
	m.took("panic")
	console, err := os.Open(m.spec.ConsoleLog)
	if err != nil {
		m.Fatal(err)
	}
	defer console.Close()
	if found := guest.Scan(console); len(found) == 0 || found[0].Kind != "kernel panic" {
		m.Errorf("on the console: %v", found)
	}
	if err := m.g.Wait(m.ctx, m.spec.Name); !errors.Is(err, machine.ErrAbsent) {
		m.Errorf("wait for a machine that is gone: %v", err)
	}
}

// newest is a machine on the image that was built last.
func newest(t *testing.T) machine.Spec {
	manifests, _ := filepath.Glob("/var/lib/mesh-lab/images/*/manifest.json")
	if len(manifests) == 0 {
		t.Skip("needs an image: lab image build debian-13")
	}
	var m struct {
		Cmdline string    `json:"cmdline"`
		Built   time.Time `json:"built"`
	}
	var dir string
	for _, file := range manifests {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		was := m.Built
		if err := json.Unmarshal(text, &m); err != nil {
			t.Fatal(err)
		}
		if !m.Built.Before(was) {
			dir = filepath.Dir(file)
		}
	}
	work, err := os.MkdirTemp("/run", "mlt-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(work) })
	if err := os.Chmod(work, 0o755); err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(work, "disk.qcow2")
	out, err := exec.CommandContext(t.Context(), "qemu-img", "create", "-q", "-f", "qcow2", "-b", filepath.Join(dir, "disk.qcow2"), "-F", "qcow2", overlay).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return machine.Spec{
		Name: "mesh-test-guest", UUID: "0d0b4f6e-6a53-4d7e-9d53-0a1f3a9c5b11", Run: "test-guest",
		MemoryBytes: 512 << 20, CPUs: 1, Disk: overlay,
		Kernel: filepath.Join(dir, "kernel"), Initrd: filepath.Join(dir, "initrd"), Cmdline: m.Cmdline,
		NICs:       []machine.NIC{{MAC: "52:54:00:00:00:01", Tap: "mltguest0"}},
		ConsoleLog: filepath.Join(work, "console"), ConsoleSock: filepath.Join(work, "sock"),
	}
}

func stopwatch(t *testing.T) func(what string) {
	last := time.Now()
	return func(what string) {
		t.Logf("%8.2fs  %s", time.Since(last).Seconds(), what)
		last = time.Now()
	}
}
