package system

import (
	"fmt"
	"io"
)

// Disk is a file system at the grain of the system call. It is the seam at
// which tests count, cut and lose operations; Linux is the real one. Every
// byte the host writes, its own record included, goes through it.
type Disk interface {
	// OpenDir opens the directory at an absolute, clean path. No component may
	// be a link. The error matches fs.ErrNotExist when a component is absent,
	// and is a *InWayError when one is not a directory.
	OpenDir(path string) (Dir, error)
}

// Dir is an open directory. What it does happens in this very directory, even
// if its path leads elsewhere by now. Names have no slash; a name that is a link
// is never followed. Errors match fs.ErrNotExist, fs.ErrExist and the errno.
type Dir interface {
	Stat(name string) (Stat, error)      // "." is the directory itself
	Names() ([]string, error)            // all, in no order
	Open(name string) (File, error)      // regular file, for reading
	Create(name string) (File, error)    // new file, for writing, mode 0600
	Append(name string) (File, error)    // existing regular file, for appending
	Lock(name string) (io.Closer, error) // flock on a file made if absent; matches unix.EWOULDBLOCK
	Mkdir(name string) error             // mode 0700
	Rename(from, to string) error
	Unlink(name string) error // anything but a directory
	Rmdir(name string) error  // an empty directory
	Chown(uid, gid uint32) error
	Chmod(mode uint32) error
	Sync() error
	Close() error
}

// File is an open file.
type File interface {
	io.ReadWriteCloser
	Chown(uid, gid uint32) error
	Chmod(mode uint32) error
	Sync() error
}

// Type says what is at a path. The zero value means nothing is.
type Type string

// Every type of thing there can be.
const (
	TypeFile      Type = "file"
	TypeDirectory Type = "directory"
	TypeLink      Type = "symbolic link"
	TypeFIFO      Type = "fifo"
	TypeSocket    Type = "socket"
	TypeDevice    Type = "device"
)

// Stat is what is known of one name.
type Stat struct {
	Type  Type
	UID   uint32
	GID   uint32
	Mode  uint32 // permission, set-id and sticky bits
	Size  int64
	Mount bool // a file system is mounted here
	Mark  Mark // zero where the disk has none
}

// InWayError says that a path leads through, or to, something it must not.
type InWayError struct {
	Path      string // where it was to lead
	Component string // the part of it that is in the way
	Type      Type
}

func (e *InWayError) Error() string {
	return fmt.Sprintf("%s: %s is a %s, which is not followed or replaced: move it away, or declare another path", e.Path, e.Component, e.Type)
}
