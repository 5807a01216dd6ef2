package system_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

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

// TestBounded: a command that only looks is not waited for as long as it likes.
func TestBounded(t *testing.T) {
	t.Parallel()
	for what, of := range map[string]func(time.Duration) system.Runner{"said": system.Bounded, "answer": system.BoundedAnswers} {
		out, err := of(50*time.Millisecond).Run(t.Context(), "sleep", "infinity")
		if err == nil || err.Error() != "it did not end within 50ms" {
			t.Errorf("%s: %q, %v", what, out, err)
		}
		if out, err = of(time.Minute).Run(t.Context(), "sh", "-c", "echo its answer; exit 3"); exitCode(err) != 3 || out != "its answer\n" {
			t.Errorf("%s: %q, %v", what, out, err)
		}
	}
}

// TestOutlived: what a command leaves running, and holds its output open, is not
// waited for.
func TestOutlived(t *testing.T) {
	t.Parallel()
	for what, of := range map[string]func(time.Duration) system.Runner{"said": system.Bounded, "answer": system.BoundedAnswers} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			out, err := of(time.Minute).Run(t.Context(), "sh", "-c", "sleep infinity & echo $!")
			pid, noPID := strconv.Atoi(strings.TrimSpace(out))
			if err != nil || noPID != nil {
				t.Fatalf("%q, %v", out, err)
			}
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Errorf("what was left running does not: %v", err)
			}
		})
	}
}
