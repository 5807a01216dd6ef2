package verify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"mesh/lab/companion"
	"mesh/lab/machine"
)

const (
	namePrefix = "mesh-verify-"
	// diskMount is the mount in a directory of inTemp, where there is one.
	diskMount = "disks"
)

// prefix begins the name of every directory and machine that this process makes
// for a check, so that another one can tell when nobody will remove them.
func prefix() (string, error) {
	p, err := companion.ProcessOf(os.Getpid())
	return prefixOf(p), err
}

func prefixOf(p companion.Process) string {
	return fmt.Sprintf("%s%d-%d-", namePrefix, p.PID, p.Start)
}

// abandoned tells whether a name begins with the prefix of a process that is gone.
func abandoned(name string) bool {
	var p companion.Process
	rest, ours := strings.CutPrefix(name, namePrefix)
	if !ours {
		return false
	}
	_, err := fmt.Sscanf(rest, "%d-%d-", &p.PID, &p.Start)
	return err == nil && !p.Alive()
}

// Daemon starts and ends the hypervisor's.
type Daemon interface {
	Ensure(ctx context.Context) error
	Release(ctx context.Context) error
}

// Sweep removes what verifications left that were killed, and lists by name what
// it has removed: directories and, if the hypervisor answers, machines. Each of
// those had a directory, so that nothing is asked where there is none.
func Sweep(ctx context.Context, d Daemon, h machine.Hypervisor) (swept []string, err error) {
	left, err := abandonedDirectories()
	if err != nil || len(left) == 0 {
		return nil, err
	}
	if d.Ensure(ctx) != nil {
		h = nil
	}
	swept, err = sweep(ctx, h)
	return swept, errors.Join(err, d.Release(ctx))
}

// sweep is Sweep on a hypervisor that answers; nil: none does.
func sweep(ctx context.Context, h machine.Hypervisor) (swept []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	var problems []error
	try := func(name string, err error) {
		if problems = append(problems, err); err == nil {
			swept = append(swept, name)
		}
	}
	if h != nil {
		machines, err := h.List(ctx, "")
		problems = append(problems, err)
		for _, name := range machines {
			if abandoned(name) {
				try("machine "+name, end(ctx, h, name))
			}
		}
	}
	directories, err := abandonedDirectories()
	problems = append(problems, err)
	for _, dir := range directories {
		try("directory "+dir, sweepDirectory(dir))
	}
	if err := errors.Join(problems...); err != nil {
		return swept, fmt.Errorf("remove what a verification left that was killed: %w", err)
	}
	return swept, nil
}

// sweep is Sweep after a verification, which has met the hypervisor or has not.
func (v *virt) sweep(ctx context.Context) error {
	var h machine.Hypervisor
	if v.answered {
		h = v.hypervisor
	}
	_, err := sweep(ctx, h)
	return err
}

// abandonedDirectories lists those in the temporary directory whose process is
// gone. One that is somebody else's is none: anybody can make one of that name.
func abandonedDirectories() (all []string, err error) {
	entries, err := os.ReadDir(os.TempDir())
	for _, e := range entries {
		if !abandoned(e.Name()) || !e.IsDir() {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue // another command swept it
		}
		if err != nil {
			return nil, err
		}
		if int(info.Sys().(*syscall.Stat_t).Uid) == os.Geteuid() {
			all = append(all, filepath.Join(os.TempDir(), e.Name()))
		}
	}
	return all, err
}

// sweepDirectory removes an abandoned directory, and first the mount in it.
func sweepDirectory(dir string) error {
	mount := filepath.Join(dir, diskMount)
	err := unix.Unmount(mount, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", mount, err)
	}
	return os.RemoveAll(dir)
}
