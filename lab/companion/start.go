package companion

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Command is how a companion is started.
type Command struct {
	Exe  string
	Args []string
	Log  string   // file that its error output is appended to
	Env  []string // beside the caller's own
	// In, if set, calls start where the process shall live, as in a namespace.
	In func(start func() error) error
}

// Start starts a companion in a session of its own, with no terminal, so that it
// outlives the caller, and returns when it has written its first line. If it does
// not come to that it is ended, and the error holds the end of what it wrote to
// its log.
func Start(ctx context.Context, c Command) (Process, error) {
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return Process{}, fmt.Errorf("open log: %v", err)
	}
	defer log.Close()
	before, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return Process{}, fmt.Errorf("open log: %v", err)
	}
	said, out, err := os.Pipe()
	if err != nil {
		return Process{}, err
	}
	defer said.Close()
	cmd := exec.Command(c.Exe, c.Args...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Stdout, cmd.Stderr = out, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if c.In != nil {
		err = c.In(cmd.Start)
	} else {
		err = cmd.Start()
	}
	out.Close()
	if err != nil {
		return Process{}, err
	}
	p := Process{PID: cmd.Process.Pid}
	p.Start, _, err = stat(p.PID)
	if err == nil {
		err = awaitReady(ctx, said)
	}
	if err == nil {
		// From here on it is nobody's child to wait for; End reaps it if it
		// ends before its parent.
		return p, cmd.Process.Release()
	}
	cmd.Process.Kill()
	ended := cmd.Wait()
	if ctx.Err() != nil {
		return Process{}, context.Cause(ctx)
	}
	return Process{}, fmt.Errorf("%v (%v); the end of %s:\n%s", err, ended, c.Log, tail(log, before))
}

// awaitReady waits for the line that a companion writes when it is ready.
func awaitReady(ctx context.Context, said *os.File) error {
	defer context.AfterFunc(ctx, func() { said.SetReadDeadline(time.Unix(1, 0)) })()
	if _, err := bufio.NewReader(said).ReadString('\n'); err != nil {
		return errors.New("its process ended before it was ready")
	}
	return nil
}

// tail is the last lines of what was written to a log from an offset on.
func tail(log io.ReaderAt, from int64) string {
	const lines, size = 12, 64 << 10
	written, err := io.ReadAll(io.LimitReader(io.NewSectionReader(log, from, 1<<62), 16<<20))
	if err != nil {
		return err.Error()
	}
	written = bytes.TrimRight(written[max(0, len(written)-size):], "\n")
	all := strings.Split(string(written), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
