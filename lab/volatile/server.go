package volatile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Server serves the disks of one directory. Make it with NewServer.
type Server struct {
	config Config
	log    *slog.Logger
	ready  chan struct{}

	mu    sync.Mutex
	disks map[uint64]*disk // open, by inode

	faulty sync.RWMutex
	faults map[string]Fault // by name
}

// NewServer makes a server; nil log discards. Work begins in Run.
func NewServer(c Config, log *slog.Logger) *Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Server{
		config: c, log: log, ready: make(chan struct{}),
		disks: map[uint64]*disk{}, faults: map[string]Fault{},
	}
}

// Ready is closed once the disks are there and the control socket answers.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// stat looks at a disk file behind the mount; fs.ErrNotExist for all that is none.
func (s *Server) stat(name string) (*syscall.Stat_t, error) {
	if filepath.Base(name) != name || !strings.HasSuffix(name, Suffix) {
		return nil, unix.ENOENT
	}
	var info syscall.Stat_t
	if err := syscall.Lstat(filepath.Join(s.config.Directory, name), &info); err != nil {
		return nil, err
	}
	if info.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return nil, unix.ENOENT
	}
	return &info, nil
}

// statInode looks at a file by its inode, if it is open, or by its name.
func (s *Server) statInode(name string, ino uint64) (*syscall.Stat_t, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.disks[ino]; d != nil {
		var info syscall.Stat_t
		return &info, syscall.Fstat(int(d.file.Fd()), &info)
	}
	info, err := s.stat(name)
	if err == nil && info.Ino != ino {
		err = unix.ESTALE
	}
	return info, err
}

// attributes are a file's as its writer sees them.
func (s *Server) attributes(info *syscall.Stat_t, out *fuse.Attr) {
	out.FromStat(info)
	if d := s.disk(info.Ino); d != nil {
		out.Size = uint64(d.size())
	}
}

// open opens a disk. holder is a descriptor of its writer's process, and the
// handle's from now on; -1 for none. On an error it stays the caller's.
func (s *Server) open(name string, ino uint64, writer bool, holder int) (*handle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.disks[ino]
	if d == nil {
		var err error
		if d, err = s.load(name, ino); err != nil {
			return nil, err
		}
	}
	h, err := d.open(writer, holder)
	if err != nil {
		return nil, err
	}
	s.disks[ino] = d
	return h, nil
}

// load opens the file of a disk that is not open.
func (s *Server) load(name string, ino uint64) (*disk, error) {
	file, err := os.OpenFile(filepath.Join(s.config.Directory, name), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && info.Sys().(*syscall.Stat_t).Ino != ino {
		err = unix.ESTALE // another file has the name now
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return newDisk(s, name, file, info.Size()), nil
}

func (s *Server) close(h *handle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := h.disk
	unflushed := d.status().UnflushedBytes
	last, err := d.close(h)
	if unflushed > 0 && h.writer {
		s.log.Info("disk was closed with writes unflushed", "disk", d.name, "bytes", unflushed)
	}
	if err != nil {
		s.log.Error("what was to survive a power cut did not", "disk", d.name, "err", err)
	}
	if !last {
		return
	}
	for ino, one := range s.disks {
		if one == d {
			delete(s.disks, ino)
		}
	}
	if err := d.file.Close(); err != nil {
		s.log.Error("disk cannot be closed", "disk", d.name, "err", err)
	}
}

// resize sets a disk's size: durably where nobody writes to it.
func (s *Server) resize(ctx context.Context, d *disk, size int64) error {
	err := d.truncate(ctx, size)
	if err == nil && !d.status().Open {
		err = d.flush(ctx)
	}
	return err
}

// disk is the one with an inode that is open; nil for none.
func (s *Server) disk(ino uint64) *disk {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.disks[ino]
}

// faultOf is a disk's fault as it is now.
func (s *Server) faultOf(name string) Fault {
	s.faulty.RLock()
	defer s.faulty.RUnlock()
	return s.faults[name]
}

// SetFault replaces the fault of a disk; the zero Fault ends it.
func (s *Server) SetFault(name string, f Fault) error {
	if err := f.Check(); err != nil {
		return err
	}
	if _, err := s.stat(name); err != nil {
		return s.noDisk(name)
	}
	s.faulty.Lock()
	defer s.faulty.Unlock()
	if f == (Fault{}) {
		delete(s.faults, name)
	} else {
		s.faults[name] = f
	}
	s.log.Info("fault of disk set", "disk", name, "fault", f)
	return nil
}

// Cut takes the power of a disk's writer away: whoever has the disk open to write
// is killed, and what they did not flush is forgotten, but for what loss lets
// survive. It returns when they are gone, with the number of bytes that were not
// flushed. A disk that nobody writes to has nothing to lose.
func (s *Server) Cut(ctx context.Context, name string, loss Loss) (int64, error) {
	if err := loss.Check(); err != nil {
		return 0, err
	}
	info, err := s.stat(name)
	if err != nil {
		return 0, s.noDisk(name)
	}
	d := s.disk(info.Ino)
	if d == nil {
		return 0, nil
	}
	lost, err := d.cut(ctx, loss)
	s.log.Info("power cut", "disk", name, "bytes", lost, "err", err)
	return lost, err
}

func (s *Server) noDisk(name string) error {
	return fmt.Errorf("there is no disk %q in %s: %w", name, s.config.Directory, os.ErrNotExist)
}

// Status tells how the disks are.
func (s *Server) Status() Status {
	status := Status{PID: os.Getpid(), Disks: []DiskStatus{}}
	s.faulty.RLock()
	faults := maps.Clone(s.faults)
	s.faulty.RUnlock()
	s.mu.Lock()
	open := slices.Collect(maps.Values(s.disks))
	s.mu.Unlock()
	for _, d := range open {
		one := d.status()
		if f, ok := faults[d.name]; ok {
			one.Fault = &f
			delete(faults, d.name)
		}
		status.Disks = append(status.Disks, one)
	}
	for name, f := range faults {
		status.Disks = append(status.Disks, DiskStatus{Name: name, Fault: &f})
	}
	slices.SortFunc(status.Disks, func(a, b DiskStatus) int { return cmp.Compare(a.Name, b.Name) })
	return status
}
