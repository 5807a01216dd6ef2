package system

import (
	"errors"
	"io"
	"os"
	"path"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Linux is the file system of this machine.
type Linux struct {
	old atomic.Bool // the kernel, or a filter, has no openat2
}

// OpenDir implements Disk.
func (l *Linux) OpenDir(p string) (Dir, error) {
	if !l.old.Load() {
		// https://man7.org/linux/man-pages/man2/openat2.2.html
		fd, err := retry(func() (int, error) {
			return unix.Openat2(unix.AT_FDCWD, p, &unix.OpenHow{
				Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
				Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
			})
		})
		switch err {
		case nil:
			return &linuxDir{fd: fd, path: p}, nil
		case unix.ENOENT:
			return nil, pathError("open directory", p, err)
		case unix.ENOSYS, unix.EPERM:
			l.old.Store(true)
		}
		// Anything else is named by walking: which component was it?
	}
	return walk(p)
}

// walk opens p component by component.
func walk(p string) (Dir, error) {
	fd, err := retry(func() (int, error) {
		return unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, pathError("open directory", "/", err)
	}
	d := &linuxDir{fd: fd, path: "/"}
	for name := range strings.SplitSeq(strings.Trim(p, "/"), "/") {
		if name == "" {
			break // p is "/"
		}
		fd, err := d.openat(name, unix.O_RDONLY|unix.O_DIRECTORY)
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			err = d.inWay(p, name, err)
		}
		_ = d.Close()
		if err != nil {
			return nil, err
		}
		d = &linuxDir{fd: fd, path: path.Join(d.path, name)}
	}
	return d, nil
}

// inWay names what stands at name on the way to p.
func (d *linuxDir) inWay(p, name string, err error) error {
	st, statErr := d.Stat(name)
	if statErr != nil {
		return err
	}
	return &InWayError{Path: p, Component: path.Join(d.path, name), Type: st.Type}
}

type linuxDir struct {
	fd   int
	path string // for messages
}

func (d *linuxDir) at(name string) string { return path.Join(d.path, name) }

func (d *linuxDir) openat(name string, flags int) (int, error) {
	fd, err := retry(func() (int, error) {
		return unix.Openat(d.fd, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	})
	return fd, d.denied("open", name, err)
}

func (d *linuxDir) Stat(name string) (Stat, error) {
	if name == "." {
		name = ""
	}
	var st unix.Statx_t
	err := again(func() error {
		return unix.Statx(d.fd, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH|unix.AT_NO_AUTOMOUNT,
			unix.STATX_BASIC_STATS, &st)
	})
	if err != nil {
		return Stat{}, pathError("stat", d.at(name), err)
	}
	return Stat{
		Type: typeOf(uint32(st.Mode)), UID: st.Uid, GID: st.Gid, Mode: uint32(st.Mode) & 0o7777, Size: int64(st.Size),
		Mount: st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0,
		Mark: Mark{
			Device: unix.Mkdev(st.Dev_major, st.Dev_minor), Inode: st.Ino, Size: int64(st.Size),
			Modified: st.Mtime.Sec*1e9 + int64(st.Mtime.Nsec), Changed: st.Ctime.Sec*1e9 + int64(st.Ctime.Nsec),
		},
	}, nil
}

func (d *linuxDir) Names() ([]string, error) {
	fd, err := d.openat(".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	again := os.NewFile(uintptr(fd), d.path)
	defer again.Close()
	return again.Readdirnames(-1)
}

func typeOf(mode uint32) Type {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return TypeFile
	case unix.S_IFDIR:
		return TypeDirectory
	case unix.S_IFLNK:
		return TypeLink
	case unix.S_IFIFO:
		return TypeFIFO
	case unix.S_IFSOCK:
		return TypeSocket
	}
	return TypeDevice
}

func (d *linuxDir) Open(name string) (File, error) { return d.regular(name, unix.O_RDONLY) }
func (d *linuxDir) Append(name string) (File, error) {
	return d.regular(name, unix.O_WRONLY|unix.O_APPEND)
}

// regular opens an existing file, without waiting if it turns out to be a fifo.
func (d *linuxDir) regular(name string, flags int) (File, error) {
	fd, err := d.openat(name, flags|unix.O_NONBLOCK)
	if errors.Is(err, unix.ELOOP) {
		return nil, d.inWay(d.at(name), name, err)
	}
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return nil, pathError("stat", d.at(name), err)
	}
	if t := typeOf(st.Mode); t != TypeFile {
		_ = unix.Close(fd)
		return nil, &InWayError{Path: d.at(name), Component: d.at(name), Type: t}
	}
	return &linuxFile{fd, d.at(name)}, nil
}

func (d *linuxDir) Create(name string) (File, error) {
	fd, err := d.openat(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return nil, err
	}
	return &linuxFile{fd, d.at(name)}, nil
}

// Lock locks the file that has the name: who held it before may have taken it away.
func (d *linuxDir) Lock(name string) (io.Closer, error) {
	for {
		fd, err := d.openat(name, unix.O_RDWR|unix.O_CREAT)
		if err != nil {
			return nil, err
		}
		err = again(func() error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
		var locked, named unix.Stat_t
		if err == nil {
			err = unix.Fstat(fd, &locked)
		}
		if err != nil {
			_ = unix.Close(fd)
			return nil, pathError("lock", d.at(name), err)
		}
		err = again(func() error { return unix.Fstatat(d.fd, name, &named, unix.AT_SYMLINK_NOFOLLOW) })
		if err == nil && named.Ino == locked.Ino && named.Dev == locked.Dev {
			return os.NewFile(uintptr(fd), d.at(name)), nil
		}
		_ = unix.Close(fd)
		if err != nil && err != unix.ENOENT {
			return nil, pathError("lock", d.at(name), err)
		}
	}
}

func (d *linuxDir) Mkdir(name string) error {
	return d.denied("make directory", name, again(func() error { return unix.Mkdirat(d.fd, name, 0o700) }))
}

func (d *linuxDir) Rename(from, to string) error {
	return d.denied("rename to", to, again(func() error { return unix.Renameat(d.fd, from, d.fd, to) }))
}

func (d *linuxDir) Unlink(name string) error {
	return d.denied("remove", name, again(func() error { return unix.Unlinkat(d.fd, name, 0) }))
}

func (d *linuxDir) Rmdir(name string) error {
	return d.denied("remove directory", name, again(func() error { return unix.Unlinkat(d.fd, name, unix.AT_REMOVEDIR) }))
}

func (d *linuxDir) Chown(uid, gid uint32) error {
	return d.denied("change owner of", "", again(func() error { return unix.Fchown(d.fd, int(uid), int(gid)) }))
}

func (d *linuxDir) Chmod(mode uint32) error {
	return d.denied("change mode of", "", again(func() error { return unix.Fchmod(d.fd, mode) }))
}

// Sync is not repeated when a signal ends it: the kernel may have dropped what
// it could not write, and a second call would not say so.
func (d *linuxDir) Sync() error  { return pathError("sync", d.path, unix.Fsync(d.fd)) }
func (d *linuxDir) Close() error { return pathError("close", d.path, unix.Close(d.fd)) }

// linuxFile is a descriptor without what os.File adds for those that can wait.
// One goroutine uses it.
type linuxFile struct {
	fd   int
	path string // for messages
}

// Read implements io.Reader.
func (f *linuxFile) Read(p []byte) (int, error) {
	n, err := retry(func() (int, error) { return unix.Read(f.fd, p) })
	switch {
	case err != nil:
		return 0, pathError("read", f.path, err)
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write implements io.Writer.
func (f *linuxFile) Write(p []byte) (written int, err error) {
	for written < len(p) {
		n, err := retry(func() (int, error) { return unix.Write(f.fd, p[written:]) })
		if err != nil {
			return written, pathError("write", f.path, err)
		}
		written += n
	}
	return written, nil
}

func (f *linuxFile) Chown(uid, gid uint32) error {
	return pathError("change owner of", f.path, again(func() error { return unix.Fchown(f.fd, int(uid), int(gid)) }))
}

func (f *linuxFile) Chmod(mode uint32) error {
	return pathError("change mode of", f.path, again(func() error { return unix.Fchmod(f.fd, mode) }))
}

// start implements starter. Whether it works is told by Sync.
func (f *linuxFile) start() { _ = unix.SyncFileRange(f.fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE) }

// Sync is not repeated, as that of a directory is not.
func (f *linuxFile) Sync() error  { return pathError("sync", f.path, unix.Fsync(f.fd)) }
func (f *linuxFile) Close() error { return pathError("close", f.path, unix.Close(f.fd)) }

// retry and again repeat a call that a signal interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != unix.EINTR {
			return n, err
		}
	}
}

func again(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
