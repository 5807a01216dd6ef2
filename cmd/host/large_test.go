package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// programOf is mesh-host as a program of its own: by this name the test program is.
func programOf(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "mesh-host")
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, program)
	}
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// TestBadInputLarge gives the program what is far too large, as a process of its
// own, and demands a refusal within bounds of time and memory.
func TestBadInputLarge(t *testing.T) {
	dir, program := t.TempDir(), programOf(t)
	gigabyte := filepath.Join(dir, "gigabyte.json")
	if err := errors.Join(os.WriteFile(gigabyte, []byte(`{"format":1,"resources":[`), 0o600), os.Truncate(gigabyte, 1<<30)); err != nil {
		t.Fatal(err)
	}
	var many bytes.Buffer
	many.WriteString(`{"format":1,"resources":[`)
	for i := range 100_000 {
		fmt.Fprintf(&many, `%s{"id":"a/%d","file":{"path":"/nowhere/%d","content":""}}`, map[bool]string{true: ",", false: ""}[i > 0], i, i)
	}
	many.WriteString("]}")
	resources := filepath.Join(dir, "resources.json")
	if err := os.WriteFile(resources, many.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		file, want string
		bytes      int64
	}{
		"a gigabyte":        {gigabyte, "bundle refused: it has 33554433 bytes, at most 33554432 are read", 640 << 20},
		"100,000 resources": {resources, "resources: more than 50000 entries", 640 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), program, "--state", filepath.Join(dir, "state"), "--runtime", filepath.Join(dir, "run"), "reconcile", tc.file)
			began := time.Now()
			out, err := cmd.CombinedOutput()
			took := time.Since(began)
			if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), tc.want) || strings.Count(string(out), "\n") != 1 {
				t.Errorf("%v: %.300s", err, out)
			}
			if most := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10; most > tc.bytes {
				t.Errorf("%d bytes of memory, at most %d", most, tc.bytes)
			}
			if took > 10*time.Second {
				t.Errorf("it took %s", took)
			}
			t.Logf("%s, %d MiB", took, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss>>10)
			if _, err := os.Lstat(filepath.Join(dir, "state")); err == nil {
				t.Error("something was made")
			}
		})
	}
}
