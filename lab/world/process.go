package world

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mesh/lab/world/namespace"
)

// Process is one process, told from a later one with the same number by the time
// at which it started. The zero value is no process.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after boot: proc_pid_stat(5), field 22
}

// Alive tells whether that very process runs; one that has ended and was not
// waited for does not.
func (p Process) Alive() bool {
	if p.PID <= 0 {
		return false
	}
	start, state, err := stat(p.PID)
	return err == nil && start == p.Start && state != 'Z' && state != 'X'
}

// ProcessOf identifies the process that has a number now.
func ProcessOf(pid int) (Process, error) {
	start, _, err := stat(pid)
	return Process{PID: pid, Start: start}, err
}

// Start writes c to configPath, makes the world's namespace and starts
// `exe world --config configPath` in it: in a session of its own, with no
// terminal, with its error output in c's log, so that it outlives the caller. It
// returns when the world is ready. If it does not become ready, it is ended, what
// Start made is removed, and the error holds the end of what the process wrote.
//
// A world whose process is gone is started anew over its standing network with
// the same call; one that answers is refused.
func Start(ctx context.Context, exe, configPath string, c Config) (Process, error) {
	if err := WriteConfig(configPath, c); err != nil {
		return Process{}, err
	}
	created, err := namespace.Create(c.Underlay.Namespace)
	if err != nil {
		return Process{}, err
	}
	p, err := start(ctx, exe, configPath, c)
	if err != nil {
		err = fmt.Errorf("start world of run %s: %w", c.Underlay.Run, err)
		if created {
			err = errors.Join(err, Remove(context.WithoutCancel(ctx), c, p))
		}
		return Process{}, err
	}
	return p, nil
}

func start(ctx context.Context, exe, configPath string, c Config) (Process, error) {
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
	cmd := exec.Command(exe, "world", "--config", configPath)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = out, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = namespace.Do(c.Underlay.Namespace, cmd.Start)
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
		// From here on it is nobody's child to wait for; finish reaps it if it
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

// awaitReady waits for the line that a world writes when it is ready.
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

// stat reads a process's start time and state: proc_pid_stat(5).
func stat(pid int) (start uint64, state byte, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("look at process %d: %v", pid, err)
	}
	return parseStat(string(text))
}

// parseStat reads fields 3 and 22. Field 2 may hold anything, parentheses and
// spaces among it.
func parseStat(text string) (start uint64, state byte, err error) {
	after := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(after) < 20 || len(after[0]) != 1 {
		return 0, 0, errors.New("look at process: stat has too few fields")
	}
	start, err = strconv.ParseUint(after[19], 10, 64)
	return start, after[0][0], err
}

// patience is how long a process has to end by itself.
const patience = 3 * time.Second

// finish ends a process and waits for its end: SIGTERM, and SIGKILL after a
// while. same tells, of the process that has the number now, whether it is still
// the one that is meant; one that is not is left alone.
func finish(ctx context.Context, pid int, same func() bool) error {
	// The descriptor stays with the process, whoever gets its number later.
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("end process %d: %v", pid, err)
	}
	defer unix.Close(fd)
	if !same() {
		return nil
	}
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		err := unix.PidfdSendSignal(fd, signal, nil, 0)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("end process %d: %v", pid, err)
		}
		if awaitEnd(ctx, fd) {
			unix.Wait4(pid, nil, unix.WNOHANG, nil) // only where it is ours; its status tells nothing
			return nil
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("end process %d: %w", pid, context.Cause(ctx))
	}
	return fmt.Errorf("end process %d: it still runs after SIGKILL", pid)
}

// awaitEnd waits a while for a process's end, less if ctx is done.
func awaitEnd(ctx context.Context, pidfd int) bool {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline) && ctx.Err() == nil; {
		poll := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 50) // ms: how often ctx is looked at
		if n > 0 || (err != nil && !errors.Is(err, unix.EINTR)) {
			return err == nil
		}
	}
	return false
}
