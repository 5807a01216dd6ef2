// Package bench is the system under test for specs: a raised scenario, driven
// through the lab's own command line and through nothing else, so that a spec
// sees what an operator sees. It has no back door into host or plane.
//
// Other people's suites may use it: make a Lab, Raise a scenario, talk to its
// Machines, and Destroy it. Nothing here asserts; methods return what happened.
package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// Lab is one installation of the lab program. The zero value is of no use: Bin
// must name the program. Safe for concurrent use.
type Lab struct {
	Bin      string    // path of the lab program
	Packages string    // directory of the project's .debs; empty: none are offered to machines
	Log      io.Writer // the narration of every command; nil discards it
}

// Result is what one command came to.
type Result struct {
	Command string
	Code    int // exit code; -1 when the command could not run or was ended
	Stdout  string
	Stderr  string
	Took    time.Duration
}

// Err is nil for exit code 0, and otherwise an error that shows the command,
// its code and the end of what it said.
func (r Result) Err() error {
	if r.Code == 0 {
		return nil
	}
	return fmt.Errorf("%s: exit code %d after %.1fs\nstdout: %s\nstderr: %s",
		r.Command, r.Code, r.Took.Seconds(), tail(r.Stdout), tail(r.Stderr))
}

// String makes failures readable.
func (r Result) String() string {
	return fmt.Sprintf("%s (exit code %d, %.1fs)\n%s%s", r.Command, r.Code, r.Took.Seconds(), r.Stdout, r.Stderr)
}

// tail keeps the last 4 KiB of s.
func tail(s string) string {
	if len(s) > 4<<10 {
		return "…" + s[len(s)-4<<10:]
	}
	return s
}

// Run runs the lab program with args, giving it stdin; an empty stdin is no
// input at all. The command is interrupted (SIGINT) when ctx ends, so that the
// lab undoes what it began.
func (l Lab) Run(ctx context.Context, stdin string, args ...string) Result {
	cmd := l.command(ctx, args...)
	if stdin != "" {
		cmd.Stdin = strings.NewReader(stdin)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if l.Log != nil {
		cmd.Stderr = io.MultiWriter(&stderr, l.Log)
	}
	start := time.Now()
	err := cmd.Run()
	r := Result{
		Command: strings.Join(append([]string{"lab"}, args...), " "),
		Code:    cmd.ProcessState.ExitCode(),
		Stdout:  stdout.String(),
		Stderr:  stderr.String(),
		Took:    time.Since(start),
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		r.Code, r.Stderr = -1, r.Stderr+err.Error()
	}
	return r
}

// Start begins a lab command without waiting for it, for specs that end it by
// force. Its narration goes to narration line by line as it comes.
func (l Lab) Start(ctx context.Context, narration io.Writer, args ...string) (*exec.Cmd, error) {
	cmd := l.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = narration, narration
	return cmd, cmd.Start()
}

func (l Lab) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, l.Bin, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(interrupt) }
	cmd.WaitDelay = 60 * time.Second
	return cmd
}

// Raise raises scenario under the name as. A mesh is returned even when the
// raise failed, so that its evidence can be collected and its rest destroyed.
func (l Lab) Raise(ctx context.Context, scenario, as string, args ...string) (*Mesh, Result) {
	full := append([]string{"raise", scenario, "--as", as}, args...)
	if l.Packages != "" {
		full = append(full, "--packages", l.Packages)
	}
	return l.Mesh(as), l.Run(ctx, "", full...)
}

// Mesh names a raised scenario; nothing is checked before it is used.
func (l Lab) Mesh(name string) *Mesh { return &Mesh{lab: l, Name: name} }
