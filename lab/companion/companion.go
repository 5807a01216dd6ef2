// Package companion is what the processes that a raise leaves behind have in
// common: they are started in a session of their own, say on their standard
// output when they are ready, answer at a UNIX socket, and are ended by whoever
// comes to clean up, known or not.
//
// It knows nothing of what they do. lab/world and lab/volatile stand on it.
package companion

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Process is one process, told from a later one with the same number by the time
// at which it started. The zero value is no process.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after boot: proc_pid_stat(5), field 22
}

// Alive tells whether that very process runs; one that has ended and was not
// waited for does not.
func (p Process) Alive() bool {
	if p.PID <= 0 {
		return false
	}
	start, state, err := stat(p.PID)
	return err == nil && start == p.Start && state != 'Z' && state != 'X'
}

// ProcessOf identifies the process that has a number now.
func ProcessOf(pid int) (Process, error) {
	start, _, err := stat(pid)
	return Process{PID: pid, Start: start}, err
}

// Find lists the processes whose arguments, behind the program's name, are
// exactly args.
func Find(args ...string) ([]Process, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	var found []Process
	for _, file := range files {
		line, err := os.ReadFile(file)
		words := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		if err != nil || !slices.Equal(words[1:], args) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, fmt.Errorf("read %s: %v", file, err)
		}
		if p, err := ProcessOf(pid); err == nil {
			found = append(found, p)
		}
	}
	return found, nil
}

// stat reads a process's start time and state: proc_pid_stat(5).
func stat(pid int) (start uint64, state byte, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("look at process %d: %v", pid, err)
	}
	return parseStat(string(text))
}

// parseStat reads fields 3 and 22. Field 2 may hold anything, parentheses and
// spaces among it.
func parseStat(text string) (start uint64, state byte, err error) {
	after := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(after) < 20 || len(after[0]) != 1 {
		return 0, 0, errors.New("look at process: stat has too few fields")
	}
	start, err = strconv.ParseUint(after[19], 10, 64)
	return start, after[0][0], err
}
