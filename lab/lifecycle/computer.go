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
)

// Linux is the Computer that the program runs on.
type Linux struct{}

// Root reports whether the effective user is root.
func (Linux) Root() bool { return os.Geteuid() == 0 }

// Cores counts the processors that this process may use.
func (Linux) Cores() int { return runtime.NumCPU() }

// FreeMemory reads MemAvailable: proc_meminfo(5).
func (Linux) FreeMemory() (int64, error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), "MemAvailable:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read /proc/meminfo: %v", err)
		}
		return kib << 10, nil
	}
	return 0, errors.New("/proc/meminfo has no MemAvailable")
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
func (Linux) Self() Process {
	start, _ := startTime(os.Getpid()) // zero: then nobody takes it for alive
	return Process{PID: os.Getpid(), Start: start}
}

// Alive compares the start time, and takes a zombie for dead.
func (Linux) Alive(p Process) bool {
	if p.PID <= 0 {
		return false
	}
	start, running := startTime(p.PID)
	return running && start == p.Start
}

// ProcessOf identifies a running process by its number.
func ProcessOf(pid int) (Process, error) {
	start, running := startTime(pid)
	if !running {
		return Process{}, fmt.Errorf("process %d does not run", pid)
	}
	return Process{PID: pid, Start: start}, nil
}

// startTime reads fields 3 and 22 of proc_pid_stat(5). The second field is the
// command's name in parentheses, which may hold anything.
func startTime(pid int) (start uint64, running bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return 0, false
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return start, err == nil
}
