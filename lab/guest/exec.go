package guest

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Command is one command line.
type Command struct {
	Args  []string // the first is a path, or a name looked for in PATH
	Env   []string // NAME=value; nil: the agent's own environment
	Stdin []byte   // nil: none
}

// Shell is the command that gives line to /bin/sh.
func Shell(line string) Command { return Command{Args: []string{"/bin/sh", "-c", line}} }

// Result is what a command came to. Output is whole, however long.
type Result struct {
	ExitCode int // as a shell says it: 127 not found, 126 cannot be run, 128 and a signal's number
	Stdout   []byte
	Stderr   []byte
}

// Exec runs a command to its end; an exit code other than 0 is not an error. It
// does not wait for what the command left running in the background. When ctx
// ends, the command is asked to end too.
func (g *Guests) Exec(ctx context.Context, name string, c Command) (Result, error) {
	if len(c.Args) == 0 {
		return Result{}, errors.New("run nothing: the command is empty")
	}
	for _, word := range slices.Concat(c.Args, c.Env) {
		if !utf8.ValidString(word) || strings.ContainsRune(word, 0) {
			return Result{}, fmt.Errorf("run %s on machine %s: %q cannot be sent: it is not UTF-8, or holds a NUL", c.Args[0], name, word)
		}
	}
	r, err := g.wrapped(ctx, name, c)
	if err != nil {
		return Result{}, fmt.Errorf("run %s on machine %s: %w", c.Args[0], name, err)
	}
	return r, nil
}

// maxOutput is how much of each output the wrapper prints, in bytes. The agent
// takes what it is given whole, but an answer of more than 4 MiB is lost in
// libvirt, and after one of 10 MiB libvirt speaks to that agent no more.
const maxOutput = 1 << 20

// wrapper is a program that prints what a command prints, up to maxOutput, and
// keeps the rest in files.
//
//go:embed wrapper.pl
var wrapper string

// wrapped runs a command through the wrapper.
func (g *Guests) wrapped(ctx context.Context, name string, c Command) (Result, error) {
	tmp := partName("/run")
	if len(c.Stdin) > inChunk {
		if err := g.writeFile(ctx, name, bytes.NewReader(c.Stdin), tmp+".i"); err != nil {
			return Result{}, fmt.Errorf("send its input: %w", err)
		}
		c.Stdin = nil
	}
	c.Args = append([]string{"/usr/bin/perl", "-e", wrapper, "--", tmp}, c.Args...)
	r, err := g.exec(ctx, name, c, lastPoll)
	if err != nil {
		g.removeParts(ctx, name, tmp)
		return Result{}, err
	}
	if len(r.Stdout) < maxOutput && len(r.Stderr) < maxOutput {
		return r, nil
	}
	defer g.removeParts(ctx, name, tmp)
	for suffix, output := range map[string]*[]byte{".o": &r.Stdout, ".e": &r.Stderr} {
		if len(*output) < maxOutput {
			continue
		}
		whole := bytes.NewBuffer(*output)
		if err := g.CopyOut(ctx, name, tmp+suffix, whole); err != nil {
			return Result{}, fmt.Errorf("read the rest of its output: %w", err)
		}
		*output = whole.Bytes()
	}
	return r, nil
}

// removeParts removes what a command's wrapper may have left; it is best effort.
func (g *Guests) removeParts(ctx context.Context, name, tmp string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTime)
	defer cancel()
	_ = g.must(ctx, name, "/bin/rm", "-f", tmp+".i", tmp+".o", tmp+".e")
}

// execStatus is the answer to guest-exec-status.
type execStatus struct {
	Exited   bool   `json:"exited"`
	ExitCode int    `json:"exitcode"`
	Signal   int    `json:"signal"`
	Out      []byte `json:"out-data"` // base64 in JSON
	Err      []byte `json:"err-data"`
}

// exec runs a command by the agent alone, which is asked at intervals of up to
// last whether it has ended.
func (g *Guests) exec(ctx context.Context, name string, c Command, last time.Duration) (Result, error) {
	var started struct {
		PID int `json:"pid"`
	}
	err := g.call(ctx, name, "guest-exec", struct {
		Path    string   `json:"path"`
		Args    []string `json:"arg,omitempty"`
		Env     []string `json:"env,omitempty"`
		Input   []byte   `json:"input-data,omitempty"`
		Capture bool     `json:"capture-output"`
	}{c.Args[0], c.Args[1:], c.Env, c.Stdin, true}, &started)
	if err != nil {
		return Result{}, err
	}
	for p := newPoll(last); ; {
		var s execStatus
		err := g.call(ctx, name, "guest-exec-status", map[string]int{"pid": started.PID}, &s)
		if err == nil && s.Exited {
			if s.Signal != 0 {
				s.ExitCode = 128 + s.Signal
			}
			return Result{ExitCode: s.ExitCode, Stdout: s.Out, Stderr: s.Err}, nil
		}
		if err == nil {
			err = p.wait(ctx)
		}
		if err != nil {
			if ctx.Err() != nil {
				g.endGroup(ctx, name, started.PID)
			}
			return Result{}, err
		}
	}
}

// endGroup asks all of a command's processes to end after its caller has
// given up; it is best effort.
func (g *Guests) endGroup(ctx context.Context, name string, pid int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTime)
	defer cancel()
	_ = g.must(ctx, name, "/bin/kill", "-TERM", "--", fmt.Sprintf("-%d", pid))
}
