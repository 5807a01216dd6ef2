package companion

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Keep starts a program that goes into the background by itself, writes a line to
// out when it has, and is from then on to the program, and to all that it starts
// and leaves, what init would be: it reaps each when it ends. Whoever waits for
// one to be gone, as libvirt does for QEMU, would otherwise wait for an init that
// is slow to reap, as those of containers are.
//
// It returns when nothing is left to reap, or ctx is done: what is left is init's
// then. What the program writes goes to log. Call it in a process of its own.
func Keep(ctx context.Context, out io.Writer, log *os.File, program string, args ...string) error {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	defer signal.Stop(ended)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("keep %s: become what reaps: %w", program, err)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("keep %s: start it: %w", program, err)
	}
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return fmt.Errorf("keep %s: %w", program, err)
	}
	for {
		left, err := reap()
		if err != nil {
			return fmt.Errorf("keep %s: %w", program, err)
		}
		if !left {
			return nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return nil
		}
	}
}

// reap takes away all children that have ended, and tells whether any lives.
func reap() (left bool, err error) {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.ECHILD):
			return false, nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return false, fmt.Errorf("reap: %w", err)
		case err == nil && pid == 0:
			return true, nil
		}
	}
}
