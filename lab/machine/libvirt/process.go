package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockHolder is the process that holds the lock on a daemon's pid file: the
// very one that was started with that file, since its number cannot be another's
// while the kernel keeps the lock for it. 0: nobody.
func lockHolder(pidFile string) (int, error) {
	f, err := os.Open(pidFile)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	// Libvirt's daemons hold a POSIX write lock on it, fcntl_locking(2).
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &l); err != nil {
		return 0, fmt.Errorf("look who locks %s: %w", pidFile, err)
	}
	if l.Type == unix.F_UNLCK {
		return 0, nil
	}
	return int(l.Pid), nil
}

// terminate ends the process that holds pidFile, if there is one, and waits for
// its end. It returns the process's number, 0 for none.
func terminate(ctx context.Context, pidFile string, limit time.Duration) (int, error) {
	pid, err := lockHolder(pidFile)
	if err != nil || pid == 0 {
		return 0, err
	}
	process, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(process)
	// Looked at again: the descriptor is of whoever has the number now.
	if again, err := lockHolder(pidFile); err != nil || again != pid {
		return 0, err
	}
	if err := unix.PidfdSendSignal(process, unix.SIGTERM, nil, 0); err != nil {
		return 0, fmt.Errorf("end process %d: %w", pid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for ctx.Err() == nil {
		// Readable when the process has ended, pidfd_open(2).
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, 100)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return 0, fmt.Errorf("wait for process %d: %w", pid, err)
		}
		if n > 0 {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("process %d still runs %v after it was asked to end: %w", pid, limit, context.Cause(ctx))
}

// shareLock takes a shared lock that ends with the returned file or the process.
func shareLock(path string) (*os.File, error) {
	return lockFile(path, unix.LOCK_SH|unix.LOCK_NB)
}

// tryLock takes an exclusive lock; nil without an error means that somebody
// else holds it.
func tryLock(path string) (*os.File, error) {
	f, err := lockFile(path, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return f, err
}

func lockFile(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// writeFile replaces a file whole, its directory made if need be.
func writeFile(file string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // gone already when all went well
	_, err = tmp.Write(content)
	if err := errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}
