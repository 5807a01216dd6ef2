package system

import (
	"fmt"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// remedies say what to do about errors of the kernel that do not say it themselves.
// https://man7.org/linux/man-pages/man3/errno.3.html
var remedies = map[syscall.Errno]string{
	unix.ENOSPC: "make room there; `df -h` and `df -i` say what is full",
	unix.EDQUOT: "make room there, or raise the quota",
	unix.EROFS:  "mount it writable; if it was, its disk has failed, and `dmesg` says how",
	unix.EIO:    "the disk failed to do it; `dmesg` says more",
}

// pathError names what was done where, and keeps err to be matched.
func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	if errno, is := err.(syscall.Errno); is {
		if remedy, known := remedies[errno]; known {
			err = fmt.Errorf("%w: %s", err, remedy)
		}
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// denied is pathError for an act on a name, or on the directory itself where that is
// empty. What the superuser is denied an attribute forbids.
func (d *linuxDir) denied(op, name string, err error) error {
	path := d.path
	if name != "" {
		path = d.at(name)
	}
	if err == unix.EPERM {
		if who, attribute := d.attribute(name); attribute != "" {
			err = fmt.Errorf("%w: %s has the attribute %s: take it away with `chattr -%[3]s %[2]s`, or declare another path", err, who, attribute)
		}
	}
	return pathError(op, path, err)
}

// attribute finds which of a name and its directory may not be changed, and by what
// letter of chattr(1); empty for neither.
func (d *linuxDir) attribute(name string) (path, letter string) {
	for _, look := range []struct{ name, path string }{{name, d.at(name)}, {"", d.path}} {
		var st unix.Statx_t
		err := unix.Statx(d.fd, look.name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE, &st)
		switch {
		case err != nil:
		case st.Attributes&unix.STATX_ATTR_IMMUTABLE != 0:
			return look.path, "i"
		case st.Attributes&unix.STATX_ATTR_APPEND != 0:
			return look.path, "a"
		}
	}
	return "", ""
}
