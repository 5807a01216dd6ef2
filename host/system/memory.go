package system

import (
	"sync"
	"time"
)

// Mark tells one state of a file from every other: it changes with the content,
// owner and mode, and is another for another file. Nobody can set it but by
// setting the clock of the machine. The zero value means that there is none.
type Mark struct {
	Device, Inode     uint64
	Size              int64
	Modified, Changed int64 // nanoseconds since 1970: mtime and ctime of inode(7)
}

const (
	// settled is how old a change has to be before a mark stands for it. Times of
	// files are as coarse as the kernel's tick; and who has mapped a file changes it
	// without a new time until its pages were written out, which takes 35 s at most
	// as kernels are set (vm.dirty_expire_centisecs, vm.dirty_writeback_centisecs).
	settled = 40 * time.Second
	// believed is how long a digest is taken from memory. A disk may lose what was
	// written without anybody having changed it.
	believed = time.Hour
	// maxRemembered bounds the memory, in files.
	maxRemembered = 100_000
)

// Memory is what files were when they were read last: who looks again and again
// reads only those that changed. It forgets whatever it is not sure of. A nil
// Memory remembers nothing. Safe for concurrent use.
type Memory struct {
	now func() time.Time

	mu    sync.Mutex
	files map[string]remembered
}

type remembered struct {
	mark   Mark
	digest string
	read   time.Time
}

// NewMemory is a memory that holds nothing. now is the clock by which files get
// their times.
func NewMemory(now func() time.Time) *Memory {
	return &Memory{now: now, files: map[string]remembered{}}
}

// recall is the digest of a file, if it is still the one that was read.
func (m *Memory) recall(path string, mark Mark) (digest string, known bool) {
	if m == nil {
		return "", false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r, known := m.files[path]
	age := m.now().Sub(r.read)
	return r.digest, known && r.mark == mark && age >= 0 && age < believed
}

// remember keeps what a file was that had the mark before it was read.
func (m *Memory) remember(path string, mark Mark, digest string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if mark == (Mark{}) || now.Sub(time.Unix(0, mark.Changed)) < settled {
		delete(m.files, path)
		return
	}
	if len(m.files) >= maxRemembered {
		m.files = map[string]remembered{}
	}
	m.files[path] = remembered{mark, digest, now}
}

func (m *Memory) forget(path string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.files, path)
}
