package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"mesh/host/agent"
)

// TestCaseH8RealDisk has the program write to a real file system that is full, and
// to one that is read-only: the errno is said, nothing is half done, the rest goes
// on, and it converges by itself once there is room.
func TestCaseH8RealDisk(t *testing.T) {
	dir := t.TempDir()
	small := filepath.Join(dir, "small")
	if err := os.Mkdir(small, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("a disk of its own wants root and the right to mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(small, 0); err != nil {
			t.Error(err)
		}
	})
	remount := func(flags uintptr, options string) {
		t.Helper()
		if err := unix.Mount("tmpfs", small, "tmpfs", unix.MS_REMOUNT|flags, options); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(small, "big"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	bundle := func(content string) string {
		file := filepath.Join(dir, "bundle.json")
		text := fmt.Sprintf(`{"format":1,"resources":[{"id":"d/big","file":{"path":%q,"content":%q}},{"id":"d/else","file":{"path":%q,"content":%q}}]}`,
			filepath.Join(small, "big"), content, filepath.Join(dir, "else"), content)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	run := programOf(t)
	pass := func(when, content string, code int, want string) {
		t.Helper()
		args := []string{"--state", filepath.Join(dir, "state"), "--runtime", filepath.Join(dir, "run")}
		cmd := exec.Command(run, append(args, "reconcile", bundle(content))...)
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != code {
			t.Errorf("%s: exit code %d\n%.500s", when, cmd.ProcessState.ExitCode(), out)
		}
		said, err := exec.Command(run, append(args, "status", "--json")...).Output()
		var s agent.Status
		if err == nil {
			err = json.Unmarshal(said, &s)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		if got := string(s.Resources[0].Status) + ": " + s.Resources[0].Reason; !strings.Contains(got, want) || s.Converged != (code == 0) {
			t.Errorf("%s: %s, wanted …%s…; converged: %t", when, got, want, s.Converged)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "else")); err != nil || string(b) != content {
			t.Errorf("%s: the rest did not go on: %d bytes, %v", when, len(b), err)
		}
	}
	holds := func(when, want string) {
		t.Helper()
		names, err := os.ReadDir(small)
		b, readErr := os.ReadFile(filepath.Join(small, "big"))
		if err != nil || readErr != nil || string(b) != want || len(names) != 1 {
			t.Errorf("%s: %d bytes among %v, %v, %v", when, len(b), names, err, readErr)
		}
	}
	big, other := strings.Repeat("x", 256<<10), strings.Repeat("y", 256<<10)
	pass("full", big, 1, "failed: ")
	pass("full", big, 1, "no space left on device")
	holds("full", "old")
	remount(0, "size=1m")
	pass("room", big, 0, "changed: ")
	holds("room", big)
	remount(unix.MS_RDONLY, "size=1m")
	pass("read-only", other, 1, "read-only file system")
	holds("read-only", big)
	remount(0, "size=1m")
	pass("writable", other, 0, "changed: ")
	holds("writable", other)
}
