package system_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"mesh/host/system"
)

func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

func contains(s, part string) bool { return strings.Contains(s, part) }

// TestMain lets the test program stand in for an apt that has the lock.
func TestMain(m *testing.M) {
	if path := os.Getenv("MESH_TEST_HOLD_LOCK"); path != "" {
		holdLock(path)
		return
	}
	os.Exit(m.Run())
}

// holdLock takes a record lock, as apt does, until its input ends.
func holdLock(path string) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o640)
	if err == nil {
		err = unix.FcntlFlock(file.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	}
	fmt.Println("held", err)
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

func TestHeldBy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if holder := system.HeldBy(path); holder != "" {
		t.Errorf("a lock that is not there is held by %s", holder)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), "MESH_TEST_HOLD_LOCK="+path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if said, err := bufio.NewReader(out).ReadString('\n'); said != "held <nil>\n" {
		t.Fatalf("%q %v", said, err)
	}
	if holder, want := system.HeldBy(path), fmt.Sprintf("(process %d)", cmd.Process.Pid); !strings.HasSuffix(holder, want) {
		t.Errorf("held by %q, want %q", holder, want)
	}
	if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	if holder := system.HeldBy(path); holder != "" {
		t.Errorf("held by %s, who is gone", holder)
	}
}
