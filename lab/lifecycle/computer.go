package lifecycle

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"mesh/lab/world"
)

// Linux is the Computer that the program runs on.
type Linux struct{}

// Root reports whether the effective user is root.
func (Linux) Root() bool { return os.Geteuid() == 0 }

// Cores counts the processors that this process may use.
func (Linux) Cores() int { return runtime.NumCPU() }

// FreeMemory is what the kernel takes for available.
func (Linux) FreeMemory() (int64, error) { return meminfo("MemAvailable:") }

// Memory is what the kernel has.
func (Linux) Memory() (int64, error) { return meminfo("MemTotal:") }

// meminfo reads a line of proc_meminfo(5), in bytes.
func meminfo(name string) (int64, error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), name)
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read /proc/meminfo: %v", err)
		}
		return kib << 10, nil
	}
	return 0, errors.New("/proc/meminfo has no " + name)
}

// FreeSpace asks the file system: statfs(2), f_bavail.
func (Linux) FreeSpace(dir string) (int64, error) {
	for {
		var s unix.Statfs_t
		err := unix.Statfs(dir, &s)
		if err == nil {
			return int64(s.Bavail) * s.Bsize, nil
		}
		if parent := filepath.Dir(dir); errors.Is(err, fs.ErrNotExist) && parent != dir {
			dir = parent
			continue
		}
		return 0, fmt.Errorf("ask the file system of %s: %w", dir, err)
	}
}

// Self is this process.
func (Linux) Self() (world.Process, error) { return world.ProcessOf(os.Getpid()) }

// Alive tells whether that very process still runs.
func (Linux) Alive(p world.Process) bool { return p.Alive() }
