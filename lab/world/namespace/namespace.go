// Package namespace makes, enters, looks into and removes named network
// namespaces, laid out as `ip netns` does, so that an operator's tools see them.
//
// It refuses to leave a thread behind in a namespace: what Do runs ends on a
// thread that is back where it was, or that is thrown away.
//
// Only lab packages import it. Every function needs root.
package namespace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// directory holds one bind mount for each namespace, as in ip-netns(8).
const directory = "/run/netns"

// Path is where the namespace is mounted, there or not.
func Path(name string) string { return filepath.Join(directory, name) }

// Exists tells whether a namespace of that name stands. A file that is left
// where none is mounted counts as nothing.
func Exists(name string) (bool, error) {
	var at unix.Statfs_t
	switch err := unix.Statfs(Path(name), &at); {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look at namespace %s: %v", name, err)
	}
	return at.Type == unix.NSFS_MAGIC, nil
}

// Create makes the namespace if it does not stand, and tells whether it did.
// The new one's loopback link is down.
func Create(name string) (created bool, err error) {
	exists, err := Exists(name)
	if err != nil || exists {
		return false, err
	}
	if err := os.Remove(Path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("create namespace %s: remove what is left of an earlier one: %v", name, err)
	}
	err = apart(func() error {
		ns, err := netns.NewNamed(name)
		if err != nil {
			return err
		}
		return ns.Close()
	})
	if err != nil {
		err = fmt.Errorf("create namespace %s: %w", name, err)
		if errors.Is(err, fs.ErrExist) {
			return false, err // somebody else's, made meanwhile
		}
		return false, errors.Join(err, Remove(name))
	}
	return true, nil
}

// Remove takes the name away; the namespace ends with its last process and
// socket. Nothing there is success.
func Remove(name string) error {
	path := Path(name)
	for {
		err := unix.Unmount(path, unix.MNT_DETACH)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			break // not mounted, not there
		}
		if err != nil {
			return fmt.Errorf("remove namespace %s: unmount %s: %v", name, path, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove namespace %s: %v", name, err)
	}
	return nil
}

// Do runs f on a thread that is in the namespace. Sockets that f opens and
// processes that it starts stay in it; goroutines that it starts do not. The
// error wraps f's own, and fs.ErrNotExist if there is no such namespace.
func Do(name string, f func() error) error {
	err := apart(func() error {
		ns, err := netns.GetFromName(name)
		if err != nil {
			return err
		}
		defer ns.Close()
		if err := netns.Set(ns); err != nil {
			return err
		}
		return f()
	})
	if err != nil {
		return fmt.Errorf("in namespace %s: %w", name, err)
	}
	return nil
}

// apart runs f on a locked thread that f may move to another namespace. The
// thread is never the process's first: that one's namespace is what
// /proc/PID/ns/net shows, and others judge the process by it.
func apart(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			err := apart(f) // cannot land here again while this thread is held
			runtime.UnlockOSThread()
			done <- err
			return
		}
		home, err := netns.Get()
		if err != nil {
			done <- err
			return
		}
		defer home.Close()
		err = f()
		if netns.Set(home) == nil {
			runtime.UnlockOSThread() // otherwise the thread ends with the goroutine
		}
		done <- err
	}()
	return <-done
}

// Processes lists the processes that live in the namespace; none if it does
// not stand.
func Processes(name string) ([]int, error) {
	exists, err := Exists(name)
	if err != nil || !exists {
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes in namespace %s: %v", name, err)
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if Holds(name, pid) {
			found = append(found, pid)
		}
	}
	return found, nil
}

// Holds tells whether a process lives in the namespace. A process that has
// ended does not.
func Holds(name string, pid int) bool {
	ns, err := os.Stat(Path(name))
	if err != nil {
		return false
	}
	own, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return false
	}
	a, b := ns.Sys().(*syscall.Stat_t), own.Sys().(*syscall.Stat_t)
	return a.Dev == b.Dev && a.Ino == b.Ino
}
