package volatile_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"mesh/lab/companion"
	"mesh/lab/volatile"
)

// TestMain is the server, or somebody who writes to a disk, when its arguments say so.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 4 && os.Args[1] == "disks":
		ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
		defer stop()
		config, err := volatile.ReadConfig(os.Args[3])
		if err == nil {
			err = volatile.Serve(ctx, config, os.Stdout)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case len(os.Args) == 4 && os.Args[1] == "hold":
		hold(os.Args[2], os.Args[3])
	default:
		goleak.VerifyTestMain(m)
	}
}

// hold opens a disk to write, writes to its beginning, and goes on for ever.
func hold(disk, content string) {
	f, err := os.OpenFile(disk, os.O_RDWR, 0)
	if err == nil {
		_, err = f.WriteAt([]byte(content), 0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("held")
	told := make(chan os.Signal, 1) // one that waits for nothing at all is taken for a deadlock
	signal.Notify(told, unix.SIGTERM)
	<-told
}

// need skips where disks cannot be served.
func need(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	if err := volatile.Works(); err != nil {
		t.Skip(err)
	}
}

// served is a server in a process of its own, with one disk that holds content.
func served(t *testing.T, content string) (volatile.Config, companion.Process) {
	t.Helper()
	need(t)
	dir := t.TempDir()
	c := volatile.Config{
		Directory: filepath.Join(dir, "behind"), Mount: filepath.Join(dir, "disks"),
		Control: filepath.Join(dir, "socket"), Log: filepath.Join(dir, "log"),
	}
	if err := os.Mkdir(c.Directory, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, behind(c), content)
	p := serve(t, c)
	t.Cleanup(func() { remove(t, c) })
	return c, p
}

func serve(t *testing.T, c volatile.Config) companion.Process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := volatile.Start(t.Context(), exe, configPath(c), c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func remove(t *testing.T, c volatile.Config) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := volatile.Remove(ctx, configPath(c), c); err != nil {
		t.Error(err)
	}
}

func configPath(c volatile.Config) string { return c.Log + ".json" }
func behind(c volatile.Config) string     { return filepath.Join(c.Directory, "a.qcow2") }
func disk(c volatile.Config) string       { return c.Disk("a.qcow2") }

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// holder is a process that has written to a disk, has it open and does not end. It
// is another one than the test's, because a power cut kills it.
func holder(t *testing.T, disk, content string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "hold", disk, content)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := io.ReadFull(out, make([]byte, len("held\n"))); err != nil {
		t.Fatal("the holder does not hold: ", err)
	}
	return cmd
}

// unflushed waits for the server to know as much; a close is told to it late.
func unflushed(t *testing.T, c volatile.Config, want int64) {
	t.Helper()
	var s volatile.Status
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		var err error
		if s, err = volatile.NewClient(c.Control).Status(t.Context()); err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for _, d := range s.Disks {
			sum += d.UnflushedBytes
		}
		if sum == want {
			return
		}
	}
	t.Errorf("status %+v, want %d bytes unflushed", s, want)
}

func is(err, target error) string {
	if errors.Is(err, target) {
		return ""
	}
	return fmt.Sprintf("%v, want %v", err, target)
}
