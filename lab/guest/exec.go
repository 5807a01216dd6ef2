package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Command is one command line.
type Command struct {
	Args  []string // the first is a path, or a name looked for in the agent's PATH
	Env   []string // NAME=value; nil: the agent's own environment
	Stdin []byte   // nil: none
}

// Shell is the command that gives line to /bin/sh.
func Shell(line string) Command { return Command{Args: []string{"/bin/sh", "-c", line}} }

// Result is what a command came to.
type Result struct {
	ExitCode  int // 128 and the signal's number where a signal ended it
	Stdout    []byte
	Stderr    []byte
	Truncated bool // the agent kept only the beginning of an output
}

// execStatus is the answer to guest-exec-status.
type execStatus struct {
	Exited       bool   `json:"exited"`
	ExitCode     int    `json:"exitcode"`
	Signal       int    `json:"signal"`
	Out          []byte `json:"out-data"` // base64 in JSON
	Err          []byte `json:"err-data"`
	OutTruncated bool   `json:"out-truncated"`
	ErrTruncated bool   `json:"err-truncated"`
}

// Exec runs a command to its end; an exit code other than 0 is not an error. A
// command that cannot be started is one, in the agent's words. When ctx ends,
// the command is asked to end too. Output of more than about 3 MiB does not fit
// through the agent and is an error; let such a command write to a file and use
// CopyOut.
func (g *Guests) Exec(ctx context.Context, name string, c Command) (Result, error) {
	if len(c.Args) == 0 {
		return Result{}, errors.New("run nothing: the command is empty")
	}
	for _, word := range slices.Concat(c.Args, c.Env) {
		if !utf8.ValidString(word) || strings.ContainsRune(word, 0) {
			return Result{}, fmt.Errorf("run %s on machine %s: %q cannot be sent: it is not UTF-8, or holds a NUL", c.Args[0], name, word)
		}
	}
	if len(c.Stdin) > inChunk {
		tmp := partName("/run")
		if err := g.writeFile(ctx, name, bytes.NewReader(c.Stdin), tmp); err != nil {
			return Result{}, fmt.Errorf("send the input of %s to machine %s: %w", c.Args[0], name, err)
		}
		c.Args = append([]string{"/bin/sh", "-c", `exec <"$0" && rm "$0" && exec "$@"`, tmp}, c.Args...)
		c.Stdin = nil
	}
	result, err := g.exec(ctx, name, c)
	if err != nil {
		return Result{}, fmt.Errorf("run %s on machine %s: %w", c.Args[0], name, err)
	}
	return result, nil
}

func (g *Guests) exec(ctx context.Context, name string, c Command) (Result, error) {
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
	for p := newPoll(); ; {
		var s execStatus
		err := g.call(ctx, name, "guest-exec-status", map[string]int{"pid": started.PID}, &s)
		if err == nil && s.Exited {
			return s.result(), nil
		}
		if err == nil {
			err = p.wait(ctx)
		}
		if err != nil {
			if ctx.Err() != nil {
				g.endProcess(ctx, name, started.PID)
			}
			return Result{}, err
		}
	}
}

func (s execStatus) result() Result {
	r := Result{ExitCode: s.ExitCode, Stdout: s.Out, Stderr: s.Err, Truncated: s.OutTruncated || s.ErrTruncated}
	if s.Signal != 0 {
		r.ExitCode = 128 + s.Signal
	}
	return r
}

// endProcess asks a process to end whose caller has given up; it is best effort.
func (g *Guests) endProcess(ctx context.Context, name string, pid int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTime)
	defer cancel()
	_ = g.call(ctx, name, "guest-exec", map[string]any{
		"path": "/bin/sh", "arg": []string{"-c", fmt.Sprintf("kill -TERM %d", pid)},
	}, nil)
}
