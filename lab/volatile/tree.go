package volatile

import (
	"context"
	"errors"
	"hash/fnv"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// directory is the root of the mount.
type directory struct {
	fs.Inode
	server *Server
}

var (
	_ fs.NodeLookuper  = (*directory)(nil)
	_ fs.NodeReaddirer = (*directory)(nil)
	_ fs.NodeOpener    = (*entry)(nil)
	_ fs.NodeGetattrer = (*entry)(nil)
	_ fs.NodeSetattrer = (*entry)(nil)
	_ fs.NodeStatfser  = (*directory)(nil)
	_ fs.NodeUnlinker  = (*directory)(nil)
	_ fs.FileReader    = (*handle)(nil)
	_ fs.FileWriter    = (*handle)(nil)
	_ fs.FileFsyncer   = (*handle)(nil)
	_ fs.FileAllocater = (*handle)(nil)
	_ fs.FileFlusher   = (*handle)(nil)
	_ fs.FileReleaser  = (*handle)(nil)
)

// Lookup finds a disk file by its name.
func (d *directory) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	info, err := d.server.stat(name)
	if err != nil {
		return nil, errno(err)
	}
	d.server.attributes(info, &out.Attr)
	return d.NewInode(ctx, &entry{server: d.server, name: name}, fs.StableAttr{Mode: fuse.S_IFREG, Ino: info.Ino, Gen: number(name)}), 0
}

// number is a name's own generation of an inode number, which is another file's
// once the first is removed: the kernel would be shown the first for it.
func number(name string) uint64 {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(name)) // never fails
	return sum.Sum64()
}

// Readdir lists the disk files.
func (d *directory) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	names, err := os.ReadDir(d.server.config.Directory)
	if err != nil {
		return nil, errno(err)
	}
	var list []fuse.DirEntry
	for _, n := range names {
		if info, err := d.server.stat(n.Name()); err == nil {
			list = append(list, fuse.DirEntry{Name: n.Name(), Ino: info.Ino, Mode: fuse.S_IFREG})
		}
	}
	return fs.NewListDirStream(list), 0
}

// Statfs is that of the directory behind.
func (d *directory) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	var s syscall.Statfs_t
	if err := syscall.Statfs(d.server.config.Directory, &s); err != nil {
		return errno(err)
	}
	out.FromStatfsT(&s)
	return 0
}

// Unlink refuses, which is not what happens where it is missing.
func (*directory) Unlink(context.Context, string) syscall.Errno { return unix.EPERM }

// entry is a disk file by its name.
type entry struct {
	fs.Inode
	server *Server
	name   string
}

// Open opens a disk file. Nothing of it is cached by the kernel, which would show
// what is forgotten already.
func (e *entry) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	writer, holder := flags&syscall.O_ACCMODE != syscall.O_RDONLY, -1
	if writer {
		holder = callerOf(ctx)
	}
	h, err := e.server.open(e.name, e.StableAttr().Ino, writer, holder)
	if err != nil {
		if holder >= 0 {
			_ = unix.Close(holder)
		}
		return nil, 0, errno(err)
	}
	return h, fuse.FOPEN_DIRECT_IO, 0
}

// callerOf gives a descriptor of the process that asks, -1 where it is not seen
// from here.
func callerOf(ctx context.Context) int {
	caller, ok := fuse.FromContext(ctx)
	if !ok {
		return -1
	}
	// The kernel names the thread, which waits for the answer and stays so long.
	status, err := os.ReadFile("/proc/" + strconv.Itoa(int(caller.Pid)) + "/status")
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(status)) {
		if group, ok := strings.CutPrefix(line, "Tgid:"); ok {
			pid, err := strconv.Atoi(strings.TrimSpace(group))
			if err != nil {
				return -1
			}
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				return -1
			}
			return fd
		}
	}
	return -1
}

// Getattr is that of the file behind, with the size that its writer sees.
func (e *entry) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	info, err := e.server.statInode(e.name, e.StableAttr().Ino)
	if err != nil {
		return errno(err)
	}
	e.server.attributes(info, &out.Attr)
	return 0
}

// Setattr changes size, owner and mode. Times are not kept.
func (e *entry) Setattr(ctx context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	h, err := e.server.open(e.name, e.StableAttr().Ino, false, -1)
	if err != nil {
		return errno(err)
	}
	defer h.Release(ctx)
	d := h.disk
	if size, ok := in.GetSize(); ok {
		err = errors.Join(err, e.server.resize(ctx, d, int64(size)))
	}
	if mode, ok := in.GetMode(); ok {
		err = errors.Join(err, unix.Fchmod(int(d.file.Fd()), mode&07777))
	}
	uid, gid := -1, -1
	if id, ok := in.GetUID(); ok {
		uid = int(id)
	}
	if id, ok := in.GetGID(); ok {
		gid = int(id)
	}
	if uid >= 0 || gid >= 0 {
		err = errors.Join(err, unix.Fchown(int(d.file.Fd()), uid, gid))
	}
	if err != nil {
		return errno(err)
	}
	return e.Getattr(ctx, nil, out)
}

// Read reads.
func (h *handle) Read(ctx context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	n, err := h.disk.read(ctx, dest, off)
	if err != nil {
		return nil, errno(err)
	}
	return fuse.ReadResultData(dest[:n]), 0
}

// Write keeps data in memory.
func (h *handle) Write(ctx context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	if err := h.disk.write(ctx, data, off); err != nil {
		return 0, errno(err)
	}
	return uint32(len(data)), 0
}

// Fsync flushes, and so does fdatasync.
func (h *handle) Fsync(ctx context.Context, _ uint32) syscall.Errno {
	return errno(h.disk.flush(ctx))
}

// Flush is what close(2) asks; it flushes nothing.
func (h *handle) Flush(context.Context) syscall.Errno { return 0 }

// maxZero bounds how much of a disk becomes zeros at once: they are pages that
// wait. Who is refused writes them itself, or asks for less.
const maxZero = 64 << 20

// Allocate is fallocate(2): discards and zeros that wait like writes, and growth.
func (h *handle) Allocate(ctx context.Context, off, size uint64, mode uint32) syscall.Errno {
	const most = 1 << 62
	if off > most || size > most {
		return unix.EFBIG
	}
	at, n := int64(off), int64(size)
	keep := mode&unix.FALLOC_FL_KEEP_SIZE != 0
	switch mode &^ unix.FALLOC_FL_KEEP_SIZE {
	case 0:
		if keep {
			return 0 // room is not promised
		}
		return errno(h.disk.extend(ctx, at+n))
	case unix.FALLOC_FL_PUNCH_HOLE, unix.FALLOC_FL_ZERO_RANGE:
		if n > maxZero {
			return unix.EOPNOTSUPP
		}
		return errno(h.disk.zero(ctx, at, n, !keep))
	}
	return unix.EOPNOTSUPP
}

// Release closes.
func (h *handle) Release(context.Context) syscall.Errno {
	h.disk.server.close(h)
	return 0
}

// errno is the system's error within err; EIO where there is none.
func errno(err error) syscall.Errno {
	var number syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &number):
		return number
	}
	return unix.EIO
}
