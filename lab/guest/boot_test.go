package guest_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
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

var boot = flag.Bool("boot", false, "boot the newest image of the lab's store, which takes most of a minute without KVM")

// A real machine, from the cold to its end. What the fake agent of the other
// tests does was learnt here.
func TestRealMachine(t *testing.T) {
	if !*boot {
		t.Skip("boots a machine: needs -boot")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	spec := newest(t)
	daemon := libvirt.NewDaemon("/run/mesh-lab", nil)
	if err := daemon.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := libvirt.New()
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
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	took := stopwatch(t)
	if err := h.Create(ctx, spec); err != nil {
		t.Fatal(err)
	}
	took("create")
	if err := h.Resume(ctx, spec.Name); err != nil {
		t.Fatal(err)
	}
	g := guest.New(h)
	if err := g.Wait(ctx, spec.Name); err != nil {
		t.Fatal(err)
	}
	took("cold boot until the agent answers")

	r := must(t, g, ctx, spec.Name, guest.Shell("systemctl is-system-running --wait; echo; cat /proc/cmdline; lscpu | grep Model"))
	t.Logf("%s", r.Stdout)
	took("boot done")
	must(t, g, ctx, spec.Name, guest.Command{Args: []string{"/bin/true"}})
	took("run true for the first time")
	for range 10 {
		must(t, g, ctx, spec.Name, guest.Command{Args: []string{"/bin/true"}})
	}
	took("run true ten times")

	r = must(t, g, ctx, spec.Name, guest.Command{Args: []string{"/bin/sh", "-c", `cat; echo "$A" >&2; exit 7`}, Env: []string{"A=<ä>", "PATH=/usr/bin"}, Stdin: []byte("in\x00put")})
	if r.ExitCode != 7 || string(r.Stdout) != "in\x00put" || string(r.Stderr) != "<ä>\n" {
		t.Errorf("%+v", r)
	}
	if r = must(t, g, ctx, spec.Name, guest.Shell("kill -KILL $$")); r.ExitCode != 128+9 {
		t.Errorf("killed: %+v", r)
	}
	if r = must(t, g, ctx, spec.Name, guest.Command{Args: []string{"/no/such"}}); r.ExitCode != 127 || string(r.Stderr) != "exec: /no/such: not found\n" {
		t.Errorf("no such program: %d %q", r.ExitCode, r.Stderr)
	}
	took("four commands")
	long := bytes.Repeat([]byte("long input\n"), 50_000)
	r = must(t, g, ctx, spec.Name, guest.Command{Args: []string{"sh", "-c", `wc -c; ls -A /run | grep 'part.i'`}, Stdin: long})
	if string(r.Stdout) != fmt.Sprintln(len(long)) {
		t.Errorf("%d bytes of input: %q %q", len(long), r.Stdout, r.Stderr)
	}
	took("a command with 550 KB of input")

	big := make([]byte, 5<<20)
	_, _ = rand.Read(big)
	if err := g.CopyIn(ctx, spec.Name, bytes.NewReader(big), "/root/big", 0o640); err != nil {
		t.Fatal(err)
	}
	took("copy 5 MiB in")
	var back bytes.Buffer
	if err := g.CopyOut(ctx, spec.Name, "/root/big", &back); err != nil {
		t.Fatal(err)
	}
	took("copy 5 MiB out")
	if !bytes.Equal(back.Bytes(), big) {
		t.Errorf("%d bytes came back, not those that were sent", back.Len())
	}
	if r = must(t, g, ctx, spec.Name, guest.Shell("stat -c '%a %U' /root/big; ls -A /root | grep part")); string(r.Stdout) != "640 root\n" {
		t.Errorf("%q", r.Stdout)
	}
	if err := g.CopyOut(ctx, spec.Name, "/no/such", &back); err == nil || !strings.Contains(err.Error(), "No such file") {
		t.Errorf("no such file: %v", err)
	}
	for _, mib := range []int{1, 4, 20} {
		r := must(t, g, ctx, spec.Name, guest.Shell(fmt.Sprintf("head -c %dM /dev/zero", mib)))
		if len(r.Stdout) != mib<<20 {
			t.Errorf("%d MiB of output came back as %d bytes", mib, len(r.Stdout))
		}
	}
	took("long outputs")
	must(t, g, ctx, spec.Name, guest.Command{Args: []string{"/bin/true"}}) // the agent lives

	short, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	if _, err := g.Exec(short, spec.Name, guest.Shell("sleep 4242; true")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("given up: %v", err)
	}
	r = must(t, g, ctx, spec.Name, guest.Shell("grep -al 'sleep.4242$' /proc/[0-9]*/cmdline; ls -A /run | grep part"))
	// Its own two files are all that there is.
	if strings.Contains(string(r.Stdout), "/cmdline") || strings.Count(string(r.Stdout), "\n") != 2 {
		t.Errorf("a command that was given up runs on, or something is left: %s", r.Stdout)
	}

	console, err := os.Open(spec.ConsoleLog)
	if err != nil {
		t.Fatal(err)
	}
	defer console.Close()
	if found := guest.Scan(console); len(found) != 0 {
		t.Errorf("a good boot is called fatal: %v", found)
	}
	if tail, err := guest.Tail(console, 5); err != nil || tail == "" {
		t.Errorf("tail: %q, %v", tail, err)
	} else {
		t.Log(tail)
	}
	journal := must(t, g, ctx, spec.Name, guest.Shell("journalctl -b --no-pager"))
	if found := guest.Scan(bytes.NewReader(journal.Stdout)); len(found) != 0 {
		t.Errorf("the journal of a good boot is called fatal: %v", found)
	}
	if keep := os.Getenv("KEEP_CONSOLE"); keep != "" {
		_, _ = console.Seek(0, 0)
		data, _ := io.ReadAll(console)
		_ = os.WriteFile(keep, data, 0o644)
		_ = os.WriteFile(keep+".journal", journal.Stdout, 0o644)
	}
	took("console and journal")

	_, _ = g.Exec(ctx, spec.Name, guest.Shell("echo c >/proc/sysrq-trigger"))
	for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
		_, _ = console.Seek(0, 0)
		if found := guest.Scan(console); len(found) > 0 {
			t.Log(found[0])
			break
		}
		if ctx.Err() != nil {
			t.Fatal("a panic is not seen on the console")
		}
	}
	took("panic")
	state, err := h.State(ctx, spec.Name)
	t.Log("after the panic: ", state, err)
	if err := h.Destroy(ctx, spec.Name); err != nil {
		t.Error(err)
	}
	if err := g.Wait(ctx, spec.Name); !errors.Is(err, machine.ErrAbsent) {
		t.Errorf("wait for a machine that is gone: %v", err)
	}
	took("destroy")
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
		Name: "mesh-test-guest", UUID: "6ba7b810-9dad-41d1-80b4-00c04fd430c8", Run: "test-guest",
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

func must(t *testing.T, g *guest.Guests, ctx context.Context, name string, c guest.Command) guest.Result {
	t.Helper()
	r, err := g.Exec(ctx, name, c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
