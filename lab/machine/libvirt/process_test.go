package libvirt_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mesh/lab/machine/libvirt"
)

// holdEnv makes this program, started again, a daemon that holds its pid file.
const holdEnv = "LIBVIRT_TEST_HOLD"

func hold(file string) {
	f, err := os.Create(file)
	if err != nil {
		panic(err)
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Len: 1}); err != nil {
		panic(err)
	}
	os.Stdout.WriteString("held\n")
	<-make(chan struct{})
}

func holder(t *testing.T, file string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdEnv+"="+file)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	return cmd
}

func TestOnlyTheHolderOfAPidFileIsEnded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "d.pid")
	if pid, err := libvirt.Terminate(t.Context(), file, time.Second); pid != 0 || err != nil {
		t.Errorf("no file: %d, %v", pid, err)
	}
	// A number left behind is somebody else's now: here this very test's.
	if err := os.WriteFile(file, []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		t.Fatal(err)
	}
	if pid, err := libvirt.Terminate(t.Context(), file, time.Second); pid != 0 || err != nil {
		t.Errorf("a file that nobody holds: %d, %v", pid, err)
	}
	cmd := holder(t, file)
	if pid, err := libvirt.LockHolder(file); pid != cmd.Process.Pid || err != nil {
		t.Fatalf("holder is %d, %v; want %d", pid, err, cmd.Process.Pid)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if pid, err := libvirt.Terminate(t.Context(), file, 10*time.Second); pid != cmd.Process.Pid || err != nil {
		t.Errorf("the holder: %d, %v; want %d", pid, err, cmd.Process.Pid)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "terminated") {
		t.Errorf("it ended with %v", err)
	}
}
