package system

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// quiet keeps every tool from asking, paging, translating, and restarting
// services behind the host's back.
var quiet = []string{"DEBIAN_FRONTEND=noninteractive", "APT_LISTCHANGES_FRONTEND=none", "NEEDRESTART_SUSPEND=1", "LC_ALL=C.UTF-8"}

// maxOutput bounds what is kept of a command's output: its end.
const maxOutput = 256 << 10

// direct runs commands as children of the host.
type direct struct{}

func (direct) Run(ctx context.Context, argv ...string) (string, error) {
	cmd := command(ctx, argv)
	out := &tail{}
	cmd.Stdout, cmd.Stderr = out, out
	err := ended(cmd.Run())
	return out.String(), err
}

// outlived is how long a command's output is waited for once it has ended: what it
// began may live on, and hold it open.
const outlived = 5 * time.Second

func command(ctx context.Context, argv []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.WaitDelay = append(os.Environ(), quiet...), outlived
	return cmd
}

// ended is how a command ended, whoever holds its output open.
func ended(err error) error {
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil
	}
	return err
}

// asking is how long a command may take that only looks.
const asking = 2 * time.Minute

// bounded ends a command that does not come to its end, so that it does not keep
// everything else waiting.
type bounded struct {
	Runner
	limit time.Duration
}

func (b bounded) Run(ctx context.Context, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, b.limit, fmt.Errorf("it did not end within %s", b.limit))
	defer cancel()
	out, err := b.Runner.Run(ctx, argv...)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return out, err
}

// tail keeps the end of what is written to it.
type tail struct{ bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	p = p[max(0, n-maxOutput):]
	if over := t.Len() + len(p) - maxOutput; over > 0 {
		t.Next(over)
	}
	_, err := t.Buffer.Write(p)
	return n, err
}

// tryLimit bounds how long a program may look at a file.
const tryLimit = time.Minute

// programs runs programs of this machine.
type programs struct{}

// Try runs a program that only looks. The error says what it said last.
func (programs) Try(ctx context.Context, argv []string) error {
	out, err := bounded{direct{}, tryLimit}.Run(ctx, argv...)
	return failure(argv[0], out, err)
}

// ErrGoesOn is matched when a command was not waited for any longer, and goes on.
var ErrGoesOn = errors.New("it has not come to its end, and goes on")

// transient runs commands in a unit of their own, outside the host's control
// group: when the host is stopped or upgraded, they go on. Their output goes to
// a file, because a pipe whose reader is gone would end them. Where systemd does not
// run, they run to their end as children of the host.
type transient struct {
	runtime string        // directory for the output
	unit    string        // two of one name never run at once
	limit   time.Duration // how long one is waited for; its error matches ErrGoesOn then; 0: as long as it takes
}

// changing is how long a change of packages is waited for. One that takes longer,
// or never comes to its end, holds the package lock for everybody to see.
const changing = 30 * time.Minute

// packagesUnit is one name for all changes of packages.
const packagesUnit = "mesh-host-packages.service"

func (t transient) Run(ctx context.Context, argv ...string) (string, error) {
	if !systemdRuns() {
		return direct{}.Run(ctx, argv...)
	}
	if err := os.MkdirAll(t.runtime, 0o755); err != nil {
		return "", err
	}
	log := filepath.Join(t.runtime, strings.TrimSuffix(t.unit, ".service")+".log")
	run := []string{"systemd-run", "--quiet", "--wait", "--collect", "--service-type=exec", "--unit=" + t.unit,
		"--description=" + filepath.Base(argv[0]) + " for mesh-host", "--property=StandardOutput=truncate:" + log}
	for _, setting := range quiet {
		run = append(run, "--setenv="+setting)
	}
	run = append(append(run, "--"), argv...)
	if t.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, t.limit, fmt.Errorf("after %s %w: look at `systemctl status %s`", t.limit, ErrGoesOn, t.unit))
		defer cancel()
	}
	said, err := direct{}.Run(ctx, run...)
	if err != nil && errors.Is(context.Cause(ctx), ErrGoesOn) {
		err = context.Cause(ctx)
	}
	out, readErr := os.ReadFile(log)
	if readErr != nil && !errors.Is(readErr, os.ErrNotExist) {
		err = errors.Join(err, readErr)
	}
	return string(out[max(0, len(out)-maxOutput):]) + said, err
}

// systemdRuns says whether systemd is the service manager of this machine.
// https://www.freedesktop.org/software/systemd/man/sd_booted.html
func systemdRuns() bool {
	st, err := os.Lstat("/run/systemd/system")
	return err == nil && st.IsDir()
}

// packageLocks are what apt and dpkg take, in the order they take them.
var packageLocks = []string{"/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock"}

// lockHolder names the process that holds one of the package locks.
func lockHolder() string {
	for _, path := range packageLocks {
		if holder := heldBy(path); holder != "" {
			return holder
		}
	}
	return ""
}

// heldBy asks the kernel who has a record lock on path.
func heldBy(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return "" // nobody locks what is not there
	}
	defer file.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(file.Fd(), unix.F_GETLK, &lock); err != nil || lock.Type == unix.F_UNLCK {
		return ""
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", lock.Pid))
	if err != nil {
		return fmt.Sprintf("process %d", lock.Pid)
	}
	return fmt.Sprintf("%s (process %d)", strings.TrimSpace(string(name)), lock.Pid)
}

// dpkgInterrupted says whether dpkg left updates of its database unmerged; apt
// refuses to work until they are. Their names are numbers.
func dpkgInterrupted() bool {
	entries, err := os.ReadDir("/var/lib/dpkg/updates")
	if err != nil {
		return false
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			return true
		}
	}
	return false
}
