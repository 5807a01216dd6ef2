package systemtest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"mesh/host/system"
)

// OpenDir implements system.Disk.
func (d *Disk) OpenDir(p string) (system.Dir, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.call("open directory", p, false); err != nil {
		return nil, err
	}
	n, at, err := d.walk(p)
	if err != nil {
		return nil, err
	}
	return &dir{d: d, n: n, path: at}, nil
}

type dir struct {
	d    *Disk
	n    *inode
	path string
}

// enter locks the disk, counts the call, and finds name in the directory.
func (x *dir) enter(op, name string, changes bool) (*inode, func(), error) {
	x.d.mu.Lock()
	if strings.Contains(name, "/") || name == "" || name == ".." {
		panic(fmt.Sprintf("systemtest: %s: %q is not a name", op, name))
	}
	if err := x.d.call(op, path.Join(x.path, name), changes); err != nil {
		x.d.mu.Unlock()
		return nil, nil, err
	}
	n := x.n.now.entries[name]
	if name == "." {
		n = x.n
	}
	return n, x.d.mu.Unlock, nil
}

func (x *dir) fail(op, name string, errno error) error {
	return &fs.PathError{Op: op, Path: path.Join(x.path, name), Err: errno}
}

func (x *dir) Stat(name string) (system.Stat, error) {
	n, leave, err := x.enter("stat", name, false)
	if err != nil {
		return system.Stat{}, err
	}
	defer leave()
	if n == nil {
		return system.Stat{}, x.fail("stat", name, unix.ENOENT)
	}
	return system.Stat{
		Type: n.typ, UID: n.now.uid, GID: n.now.gid, Mode: n.now.mode, Size: int64(len(n.now.data)), Mount: n.mount,
	}, nil
}

func (x *dir) Names() ([]string, error) {
	_, leave, err := x.enter("list", ".", false)
	if err != nil {
		return nil, err
	}
	defer leave()
	return slices.Collect(maps.Keys(x.n.now.entries)), nil
}

func (x *dir) Open(name string) (system.File, error) { return x.existing("open", name, false) }
func (x *dir) Append(name string) (system.File, error) {
	return x.existing("open to append", name, true)
}

func (x *dir) existing(op, name string, writes bool) (system.File, error) {
	n, leave, err := x.enter(op, name, false)
	if err != nil {
		return nil, err
	}
	defer leave()
	switch {
	case n == nil:
		return nil, x.fail(op, name, unix.ENOENT)
	case n.typ != system.TypeFile:
		p := path.Join(x.path, name)
		return nil, &system.InWayError{Path: p, Component: p, Type: n.typ}
	}
	return &handle{d: x.d, n: n, path: path.Join(x.path, name), writes: writes}, nil
}

func (x *dir) Create(name string) (system.File, error) {
	n, leave, err := x.enter("create", name, true)
	if err != nil {
		return nil, err
	}
	defer leave()
	if n != nil {
		return nil, x.fail("create", name, unix.EEXIST)
	}
	n = newInode(system.TypeFile, 0o600)
	x.link(name, n)
	return &handle{d: x.d, n: n, path: path.Join(x.path, name), writes: true}, nil
}

func (x *dir) link(name string, n *inode) {
	x.d.alter(x.n, nil, func(im *image, _ []byte) { im.entries[name] = n })
}

func (x *dir) Lock(name string) (io.Closer, error) {
	n, leave, err := x.enter("lock", name, true)
	if err != nil {
		return nil, err
	}
	defer leave()
	if n == nil {
		n = newInode(system.TypeFile, 0o600)
		x.link(name, n)
	}
	if x.d.locks[n] {
		return nil, x.fail("lock", name, unix.EWOULDBLOCK)
	}
	x.d.locks[n] = true
	return unlocker{x.d, n}, nil
}

type unlocker struct {
	d *Disk
	n *inode
}

func (u unlocker) Close() error {
	u.d.mu.Lock()
	defer u.d.mu.Unlock()
	delete(u.d.locks, u.n)
	return nil
}

func (x *dir) Mkdir(name string) error {
	n, leave, err := x.enter("mkdir", name, true)
	if err != nil {
		return err
	}
	defer leave()
	if n != nil {
		return x.fail("mkdir", name, unix.EEXIST)
	}
	x.link(name, newInode(system.TypeDirectory, 0o700))
	return nil
}

func (x *dir) Rename(from, to string) error {
	n, leave, err := x.enter("rename", from, true)
	if err != nil {
		return err
	}
	defer leave()
	there := x.n.now.entries[to]
	switch {
	case n == nil:
		return x.fail("rename", from, unix.ENOENT)
	case there == nil:
	case there.mount:
		return x.fail("rename", to, unix.EBUSY)
	case n.typ == system.TypeDirectory && there.typ != system.TypeDirectory:
		return x.fail("rename", to, unix.ENOTDIR)
	case n.typ != system.TypeDirectory && there.typ == system.TypeDirectory:
		return x.fail("rename", to, unix.EISDIR)
	case there.typ == system.TypeDirectory && len(there.now.entries) > 0:
		return x.fail("rename", to, unix.ENOTEMPTY)
	}
	x.d.alter(x.n, nil, func(im *image, _ []byte) {
		if im.entries[from] == n {
			delete(im.entries, from)
		}
		im.entries[to] = n
	})
	return nil
}

func (x *dir) Unlink(name string) error {
	n, leave, err := x.enter("unlink", name, true)
	if err != nil {
		return err
	}
	defer leave()
	switch {
	case n == nil:
		return x.fail("unlink", name, unix.ENOENT)
	case n.typ == system.TypeDirectory:
		return x.fail("unlink", name, unix.EISDIR)
	case n.mount:
		return x.fail("unlink", name, unix.EBUSY)
	}
	x.unlink(name, n)
	return nil
}

func (x *dir) unlink(name string, n *inode) {
	x.d.alter(x.n, nil, func(im *image, _ []byte) {
		if im.entries[name] == n {
			delete(im.entries, name)
		}
	})
}

func (x *dir) Rmdir(name string) error {
	n, leave, err := x.enter("rmdir", name, true)
	if err != nil {
		return err
	}
	defer leave()
	switch {
	case n == nil:
		return x.fail("rmdir", name, unix.ENOENT)
	case n.typ != system.TypeDirectory:
		return x.fail("rmdir", name, unix.ENOTDIR)
	case n.mount:
		return x.fail("rmdir", name, unix.EBUSY)
	case len(n.now.entries) > 0:
		return x.fail("rmdir", name, unix.ENOTEMPTY)
	}
	x.unlink(name, n)
	return nil
}

func (x *dir) Chown(uid, gid uint32) error {
	_, leave, err := x.enter("chown", ".", true)
	if err != nil {
		return err
	}
	defer leave()
	x.d.chown(x.n, uid, gid)
	return nil
}

func (d *Disk) chown(n *inode, uid, gid uint32) {
	d.alter(n, nil, func(im *image, _ []byte) { im.uid, im.gid, im.mode = uid, gid, im.mode&^0o6000 })
}

func (d *Disk) chmod(n *inode, mode uint32) {
	d.alter(n, nil, func(im *image, _ []byte) { im.mode = mode })
}

func (x *dir) Chmod(mode uint32) error {
	_, leave, err := x.enter("chmod", ".", true)
	if err != nil {
		return err
	}
	defer leave()
	x.d.chmod(x.n, mode)
	return nil
}

func (x *dir) Sync() error {
	_, leave, err := x.enter("sync directory", ".", true)
	if err != nil {
		if errors.Is(err, errDeleted) {
			return nil
		}
		return err
	}
	defer leave()
	x.d.sync(x.n)
	return nil
}

func (x *dir) Close() error { return nil }

type handle struct {
	d      *Disk
	n      *inode
	path   string
	writes bool
	at     int // where the next read begins
}

func (h *handle) Read(p []byte) (int, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if err := h.d.call("read", h.path, false); err != nil {
		return 0, err
	}
	if h.at >= len(h.n.now.data) {
		return 0, io.EOF
	}
	n := copy(p, h.n.now.data[h.at:])
	h.at += n
	return n, nil
}

// Write appends. One that is refused for want of space has written a part.
func (h *handle) Write(p []byte) (int, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if !h.writes {
		return 0, &fs.PathError{Op: "write", Path: h.path, Err: unix.EBADF}
	}
	err := h.d.call("write", h.path, true)
	switch {
	case errors.Is(err, unix.ENOSPC):
		h.write(p[:len(p)/2])
		return len(p) / 2, err
	case err != nil:
		return 0, err
	}
	h.write(p)
	return len(p), nil
}

func (h *handle) write(p []byte) {
	offset := len(h.n.now.data)
	h.d.alter(h.n, slices.Clone(p), func(im *image, data []byte) {
		if end := offset + len(data); len(im.data) < end { // a lost write before this one leaves zeros
			im.data = append(im.data, make([]byte, end-len(im.data))...)
		}
		copy(im.data[offset:], data)
	})
}

func (h *handle) Chown(uid, gid uint32) error {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if err := h.d.call("chown", h.path, true); err != nil {
		return err
	}
	h.d.chown(h.n, uid, gid)
	return nil
}

func (h *handle) Chmod(mode uint32) error {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if err := h.d.call("chmod", h.path, true); err != nil {
		return err
	}
	h.d.chmod(h.n, mode)
	return nil
}

func (h *handle) Sync() error {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if err := h.d.call("sync", h.path, true); err != nil {
		switch {
		case errors.Is(err, errDeleted):
			return nil
		case !errors.Is(err, ErrCut):
			h.d.lose(h.n)
		}
		return err
	}
	h.d.sync(h.n)
	return nil
}

func (h *handle) Close() error { return nil }
