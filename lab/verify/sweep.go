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

// sweep removes what verifications left that were killed: machines, if the
// hypervisor answers, and what is in the temporary directory.
func (v *virt) sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	var machines []string
	var problems []error
	if v.answered {
		var err error
		machines, err = v.hypervisor.List(ctx, "")
		problems = append(problems, err)
	}
	for _, name := range machines {
		if abandoned(name) {
			problems = append(problems, v.end(ctx, name))
		}
	}
	entries, err := os.ReadDir(os.TempDir())
	problems = append(problems, err)
	for _, e := range entries {
		if abandoned(e.Name()) {
			problems = append(problems, sweepDirectory(filepath.Join(os.TempDir(), e.Name())))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("remove what a verification left that was killed: %w", err)
	}
	return nil
}

// sweepDirectory removes an abandoned directory, and first the mounts in it. One
// that is somebody else's is left alone: anybody can make one of that name.
func sweepDirectory(dir string) error {
	info, err := os.Lstat(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil // by another verification
	}
	if err != nil {
		return err
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; !info.IsDir() || int(owner) != os.Geteuid() {
		return nil
	}
	mount := filepath.Join(dir, diskMount)
	err = unix.Unmount(mount, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", mount, err)
	}
	return os.RemoveAll(dir)
}
