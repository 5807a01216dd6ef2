package lifecycle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// errLocked means that another process changes the scenario.
var errLocked = errors.New("locked")

// lock is a lock on a file, held as long as this process lives at most. The
// file is removed on release, so that nothing of a scenario stays.
type lock struct {
	file *os.File
	path string
}

// tryLock takes the lock of path, or says errLocked.
func tryLock(path string) (*lock, error) {
	for {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, fmt.Errorf("make lock directory: %w", err)
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the last holder of another lock removed the directory
		}
		if err != nil {
			return nil, fmt.Errorf("open lock: %w", err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, errLocked
			}
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		// A holder may have removed the file between open and flock; then this
		// lock guards nothing.
		if same(f, path) {
			return &lock{f, path}, nil
		}
		f.Close()
	}
}

// locked tells whether somebody holds the lock of path, or it cannot be known.
func locked(path string) bool {
	f, err := os.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
}

// sweepLocks removes the files of locks that nobody holds, as whoever was killed
// leaves them.
func (l *Lab) sweepLocks() {
	all, _ := os.ReadDir(filepath.Dir(l.lockPath("any"))) // none, or none that can be removed
	for _, e := range all {
		if held, err := tryLock(l.lockPath(e.Name())); err == nil {
			held.release()
		}
	}
}

func same(f *os.File, path string) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(held, named)
}

func (l *lock) release() {
	_ = os.Remove(l.path)
	_ = os.Remove(filepath.Dir(l.path)) // fails, as it should, while there are other locks
	_ = l.file.Close()
}
