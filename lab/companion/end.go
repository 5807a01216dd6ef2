package companion

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a process has to end by itself.
const patience = 3 * time.Second

// End ends a process and waits for its end: SIGTERM, and SIGKILL after a while.
// same tells, of the process that has the number now, whether it is still the
// one that is meant; one that is not is left alone, and so is nobody's number.
func End(ctx context.Context, pid int, same func() bool) error {
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
