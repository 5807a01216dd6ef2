package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"mesh/host/agent"
	"mesh/host/upgrade"
)

// unit is mesh-host.service with a service manager that only does what the test
// wants: real programs, real files, directories of their own.
type unit struct {
	t       *testing.T
	root    string
	program string
	notify  *net.UnixConn
}

func newUnit(t *testing.T) *unit {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("what the host writes is root's")
	}
	root := t.TempDir()
	for _, dir := range []string{"state", "run", "bin"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(root, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	return &unit{t, root, filepath.Join(root, "bin/mesh-host"), socket}
}

// builtProgram is this program as it is built for packages: small, and quick.
var builtProgram = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "mesh-host-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "mesh-host")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the program: %w: %s", err, out)
	}
	return os.ReadFile(path)
})

// install puts the program there as dpkg does, with mark behind it: another
// version that works like this one.
func (u *unit) install(mark string) {
	u.t.Helper()
	b, err := builtProgram()
	if err != nil {
		u.t.Fatal(err)
	}
	u.put(append(slices.Clone(b), mark...))
}

func (u *unit) put(content []byte) {
	u.t.Helper()
	if err := errors.Join(os.WriteFile(u.program+".new", content, 0o755), os.Rename(u.program+".new", u.program)); err != nil {
		u.t.Fatal(err)
	}
}

func (u *unit) good() string { return filepath.Join(u.root, "state/program/good") }

// command runs the program at path on the unit's directories.
func (u *unit) command(path string, args ...string) *exec.Cmd {
	flags := []string{"mesh-host", "--state", filepath.Join(u.root, "state"), "--runtime", filepath.Join(u.root, "run"), "--program", u.program}
	return &exec.Cmd{Path: path, Args: append(flags, args...), Env: append(os.Environ(), "NOTIFY_SOCKET="+filepath.Join(u.root, "notify"))}
}

// watch runs what the unit has before and behind the program.
func (u *unit) watch(args []string, env ...string) string {
	u.t.Helper()
	if _, err := os.Stat(u.good()); err != nil {
		return ""
	}
	cmd := u.command(u.good(), args...)
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		u.t.Fatalf("%v: %v: %s", args, err, out)
	}
	return string(out)
}

// start begins a start of the unit and says what came of what comes before.
func (u *unit) start() (cmd *exec.Cmd, said string, stderr *bytes.Buffer) {
	u.t.Helper()
	said, stderr = u.watch([]string{"trial", "begin"}), new(bytes.Buffer)
	cmd = u.command(u.program, "run", "--trial", "50ms", "--interval", "1s")
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, said, stderr
}

// notified is what the program tells its service manager next.
func (u *unit) notified() string {
	u.t.Helper()
	b := make([]byte, 256)
	if err := u.notify.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		u.t.Fatal(err)
	}
	n, err := u.notify.Read(b)
	if err != nil {
		u.t.Fatalf("it said nothing: %v", err)
	}
	return string(b[:n])
}

func (u *unit) status() *upgrade.State {
	u.t.Helper()
	out, err := u.command(u.program, "status", "--json").Output()
	if err != nil {
		u.t.Fatal(err)
	}
	var s agent.Status
	if err := json.Unmarshal(out, &s); err != nil {
		u.t.Fatal(err)
	}
	if s.Program == nil {
		return &upgrade.State{}
	}
	return s.Program
}

// kept waits until what is at the program's path is what is kept.
func (u *unit) kept(running *exec.Cmd, stderr *bytes.Buffer) {
	u.t.Helper()
	want, err := digestOf(u.program)
	if err != nil {
		u.t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		if k := u.status().Kept; k != nil && k.Digest == want {
			break
		}
		if time.Now().After(deadline) {
			_ = running.Process.Kill()
			_ = running.Wait()
			u.t.Fatalf("it is not kept: %s", stderr)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if got, err := digestOf(u.good()); err != nil || got != want {
		u.t.Fatalf("%v: another one is kept", err)
	}
}

// proved installs the first version, and stops it when it is kept.
func (u *unit) proved() {
	u.t.Helper()
	u.install("")
	cmd, _, stderr := u.start()
	u.notified()
	u.kept(cmd, stderr)
	u.stop(cmd)
}

func (u *unit) stop(cmd *exec.Cmd) {
	u.t.Helper()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		u.t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		u.t.Errorf("told to stop, it ended with %v", err)
	}
	u.watch([]string{"trial", "end"}, "SERVICE_RESULT=success", "EXIT_CODE=exited", "EXIT_STATUS=0")
}

// The first version is ready at once and kept when it has shown that it works;
// the second is ready then, and no sooner; it is the one that is kept from then
// on, without asking the network (case H12).
func TestCaseH12VersionProvesItself(t *testing.T) {
	u := newUnit(t)
	u.install("")
	cmd, _, stderr := u.start()
	if got := u.notified(); got != "READY=1" {
		t.Errorf("the first version says %q", got)
	}
	u.kept(cmd, stderr)
	u.stop(cmd)

	u.install("2")
	cmd, said, stderr := u.start()
	if !strings.Contains(said, "is on trial, start 1 of 3") {
		t.Errorf("the second version is begun with %q", said)
	}
	for _, want := range []string{"EXTEND_TIMEOUT_USEC=1800000000", "READY=1"} {
		if got := u.notified(); got != want {
			t.Errorf("the second version says %q, not %s", got, want)
		}
	}
	u.kept(cmd, stderr)
	if s := u.status(); s.Trial != nil {
		t.Errorf("it is still on trial: %+v", s.Trial)
	}
	u.stop(cmd)

	cmd, said, _ = u.start()
	if got := u.notified(); got != "READY=1" || said != "" {
		t.Errorf("known, it says %q, and is begun with %q", got, said)
	}
	u.stop(cmd)

	out, err := u.command(u.program, "purge").CombinedOutput()
	if _, there := os.Stat(filepath.Join(u.root, "state")); err != nil || !errors.Is(there, fs.ErrNotExist) {
		t.Errorf("%v: %s: something is left", err, out)
	}
}

// A version that cannot read the record says so, is tried three times, and is
// replaced by the one before, which runs (case H11).
func TestCaseH11VersionThatCannotReadTheRecord(t *testing.T) {
	u := newUnit(t)
	u.proved()
	before, err := digestOf(u.program)
	if err != nil {
		t.Fatal(err)
	}

	u.install("2")
	journal := filepath.Join(u.root, "state/journal")
	record, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	for range upgrade.Attempts {
		unreadable(t, journal)
		cmd, said, _ := u.start()
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
			t.Fatalf("%s: it ended with %v", said, err)
		}
		u.watch([]string{"trial", "end"}, "SERVICE_RESULT=exit-code", "EXIT_CODE=exited", "EXIT_STATUS=1")
	}
	if err := errors.Join(os.Remove(journal), os.WriteFile(journal, record, 0o600)); err != nil {
		t.Fatal(err)
	}
	cmd, said, _ := u.start()
	if !strings.Contains(said, "is put back") || !strings.Contains(said, "is a directory") {
		t.Errorf("it is begun with %q", said)
	}
	for { // what the others said is still there
		if u.notified() == "READY=1" {
			break
		}
	}
	if after, err := digestOf(u.program); err != nil || after != before {
		t.Errorf("%v: another program is there", err)
	}
	s := u.status()
	if len(s.Broken) != 1 || s.Trial != nil || !strings.Contains(s.Broken[0].Reason, "is a directory") {
		t.Errorf("%+v", s)
	}
	u.stop(cmd)

	out, err := u.command(u.program, "trial", "forget", s.Broken[0].Digest).CombinedOutput()
	if err != nil || len(u.status().Broken) != 0 {
		t.Errorf("%v: %s", err, out)
	}
}

// A version on trial that ends with an error is remembered with its own words.
func TestVersionOnTrialSaysWhyItEnds(t *testing.T) {
	u := newUnit(t)
	u.proved()

	u.install("2")
	lock, err := os.Create(filepath.Join(u.root, "run/agent.lock"))
	if err == nil {
		defer lock.Close()
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd, _, _ := u.start()
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("it ended with %v", err)
	}
	u.watch([]string{"trial", "end"}, "SERVICE_RESULT=exit-code", "EXIT_CODE=exited", "EXIT_STATUS=1")
	if s := u.status(); s.Trial == nil || !strings.Contains(s.Trial.Reason, "is running on this machine already") {
		t.Errorf("%+v", s.Trial)
	}
}

// unreadable puts something in the place of a file of the record.
func unreadable(t *testing.T, path string) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
}

// A program that the kernel does not even start is replaced all the same.
func TestVersionThatIsNoProgram(t *testing.T) {
	u := newUnit(t)
	u.proved()
	u.put([]byte("\x7fELF, and nothing behind it"))
	for range upgrade.Attempts {
		u.watch([]string{"trial", "begin"})
		if err := u.command(u.program, "run").Run(); err == nil {
			t.Fatal("it ran")
		}
		u.watch([]string{"trial", "end"}, "SERVICE_RESULT=exit-code", "EXIT_CODE=exited", "EXIT_STATUS=203")
	}
	cmd, said, _ := u.start()
	if !strings.Contains(said, "it could not be executed") {
		t.Errorf("it is begun with %q", said)
	}
	u.notified()
	u.stop(cmd)
}
