// Package stamp follows the files that consoles are recorded in and keeps beside
// each a copy whose lines begin with the time at which they came.
//
// It never writes to what it follows. It sleeps until a file grows. Only
// lab/world, lab/evidence and cmd/lab import it.
package stamp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Suffix is what the name of a stamped copy has after that of its console.
const Suffix = ".stamped"

// pattern finds the consoles of a directory. One that grew too long was renamed
// to NAME.console.0 and is followed no more.
const pattern = "*.console"

// MaxCopy is how long a stamped copy may become, in bytes; the one before it is
// kept as NAME.console.stamped.0.
const MaxCopy = 8 << 20

// Follow stamps every console of dir, and those that come, until ctx is done,
// which is no error. A console that was stamped before is followed from its end
// on. One that fails is logged, once, and the others go on.
func Follow(ctx context.Context, dir string, now func() time.Time, log *slog.Logger) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("follow consoles: %v", err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer events.Close()
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_MOVED_TO); err != nil {
		return fmt.Errorf("follow consoles in %s: %v", dir, err)
	}
	defer context.AfterFunc(ctx, func() { _ = events.SetReadDeadline(time.Unix(1, 0)) })()
	f := follower{dir: dir, inotify: fd, now: now, log: log, consoles: map[string]*console{}}
	defer f.close()
	buf := make([]byte, 4<<10)
	for {
		f.look()
		// What has happened is of no interest, only that something has.
		if _, err := events.Read(buf); errors.Is(err, os.ErrDeadlineExceeded) {
			f.look()
			return nil
		} else if err != nil {
			return fmt.Errorf("follow consoles in %s: %v", dir, err)
		}
	}
}

type follower struct {
	dir      string
	inotify  int
	now      func() time.Time
	log      *slog.Logger
	consoles map[string]*console // by path
}

// console is one that is followed.
type console struct {
	source, copy *os.File
	watch        int
	lines        Lines
	failed       bool
}

// look stamps everything that has come.
func (f *follower) look() {
	paths, err := filepath.Glob(filepath.Join(f.dir, pattern))
	if err != nil { // the directory's own name is no pattern
		f.log.Error("consoles are not followed", "err", err)
	}
	for _, path := range paths {
		if f.consoles[path] == nil {
			f.consoles[path] = &console{}
		}
	}
	for path, c := range f.consoles {
		if c.failed {
			continue
		}
		if err := f.stamp(path, c); err != nil {
			c.failed = true
			f.log.Warn("console is not stamped any more", "path", path, "err", err)
		}
	}
}

// stamp reads a console to its end, and goes on with the one that took its place.
func (f *follower) stamp(path string, c *console) error {
	for {
		if c.source == nil {
			if err := f.open(path, c); errors.Is(err, fs.ErrNotExist) {
				return nil
			} else if err != nil {
				return err
			}
		}
		replaced := !same(c.source, path) // asked first: what is written until then is read
		if err := f.drain(path, c); err != nil {
			return err
		}
		if !replaced {
			return nil
		}
		_, _ = unix.InotifyRmWatch(f.inotify, uint32(c.watch)) // gone already if the file is
		c.source.Close()
		c.source = nil
	}
}

// open begins with a console: at its end if it was stamped before this process.
func (f *follower) open(path string, c *console) error {
	source, err := os.Open(path)
	if err != nil {
		return err
	}
	if c.copy == nil {
		c.copy, err = os.OpenFile(path+Suffix, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		var size int64
		if err == nil {
			size, err = c.copy.Seek(0, io.SeekEnd)
		}
		if err == nil && size > 0 {
			_, err = source.Seek(0, io.SeekEnd)
		}
	}
	if err == nil {
		c.watch, err = unix.InotifyAddWatch(f.inotify, path, unix.IN_MODIFY)
	}
	if err != nil {
		source.Close()
		return err
	}
	c.source = source
	return nil
}

// drain stamps what is there, from the beginning again if the file was cut.
func (f *follower) drain(path string, c *console) error {
	at, err := c.source.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	if info, err := c.source.Stat(); err != nil || info.Size() < at {
		if _, err := c.source.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := c.source.Read(buf)
		if err := c.lines.Write(c.copy, f.now(), buf[:n]); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return f.turn(path, c)
		}
		if err != nil {
			return err
		}
	}
}

// turn begins a new copy when the old one is long enough.
func (f *follower) turn(path string, c *console) error {
	size, err := c.copy.Seek(0, io.SeekEnd)
	if err != nil || size < MaxCopy {
		return err
	}
	if err := os.Rename(path+Suffix, path+Suffix+".0"); err != nil {
		return err
	}
	next, err := os.OpenFile(path+Suffix, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	c.copy.Close()
	c.copy = next
	return nil
}

// close writes the lines that were never completed.
func (f *follower) close() {
	for _, c := range f.consoles {
		if c.copy != nil {
			_ = c.lines.Flush(c.copy, false)
			c.copy.Close()
		}
		if c.source != nil {
			c.source.Close()
		}
	}
}

func same(f *os.File, path string) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist) || err == nil && os.SameFile(held, named)
}
