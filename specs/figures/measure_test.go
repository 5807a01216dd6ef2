package figures_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"mesh/specs/figures"
)

// measureEnv makes this program run another one, measure it, and write what it
// took into the file that it names.
const measureEnv = "MESH_FIGURES_MEASURE"

func TestMain(m *testing.M) {
	if file := os.Getenv(measureEnv); file != "" {
		os.Exit(beside(file, os.Args[1:]))
	}
	os.Exit(m.Run())
}

// beside runs one program in a process as small as this one is at its start: the
// kernel counts as a program's own what the process was that it was started from.
func beside(file string, argv []string) int {
	os.Unsetenv(measureEnv)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	begun := time.Now()
	err := cmd.Run()
	took := time.Since(begun)
	if cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, err)
		return 127
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage) // of it and what it waited for
	text, _ := json.Marshal(figures.Measured{
		Time: took, CPU: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), Peak: usage.Maxrss << 10,
	})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 127
	}
	return cmd.ProcessState.ExitCode()
}

// measure runs a program once. What is still to be written to disk is written
// before, so that nobody pays for another's.
func measure(ctx context.Context, dir string, env []string, argv ...string) (figures.Measured, error) {
	self, err := os.Executable()
	if err != nil {
		return figures.Measured{}, err
	}
	file := filepath.Join(dir, "measured.json")
	syscall.Sync()
	if err := run(ctx, append(env, measureEnv+"="+file), append([]string{self}, argv...)...); err != nil {
		return figures.Measured{}, err
	}
	var m figures.Measured
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	return m, err
}

// run runs a program; the error has the end of what it said.
func run(ctx context.Context, env []string, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(argv[len(argv)-1]), err, said.Bytes()[max(0, said.Len()-500):])
	}
	return nil
}

// synced begins a line of strace that is a call which waits for the disk.
var synced = regexp.MustCompile(`(?m)^(\d+ +)?(fsync|fdatasync|sync|syncfs|sync_file_range)\(`)

// count runs a program and counts its calls that wait for the disk; nil where
// strace is not installed.
func count(ctx context.Context, dir string, env []string, argv ...string) (*int, error) {
	if _, err := exec.LookPath("strace"); err != nil {
		return nil, run(ctx, env, argv...)
	}
	file := filepath.Join(dir, "calls")
	trace := []string{"strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=fsync,fdatasync,sync,syncfs,sync_file_range", "-e", "signal=none", "-o", file}
	if err := run(ctx, env, append(trace, argv...)...); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	n := len(synced.FindAll(text, -1))
	return &n, err
}
