package main

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// patience is how much later than it asks for a thread of an idle host may be woken
// up. The runtime has one that looks every few microseconds for as long as anything
// else runs, which costs more than what the host does with a word of the plane.
const patience = 500 * time.Microsecond

// pace is how this program goes about its work. It is idle nearly all the time, on a
// machine that is there for something else.
type pace struct {
	slack string // that threads have when they work, in nanoseconds; empty: not known
}

// newPace is of a program that works.
func newPace() pace {
	text, _ := os.ReadFile("/proc/self/timerslack_ns")
	return pace{strings.TrimSpace(string(text))}
}

// idle takes little: no thread looks for work in vain where there is one processor,
// none is woken up for nothing, and no memory is kept that nothing is in.
func (p pace) idle() {
	runtime.GOMAXPROCS(1)
	p.set(strconv.FormatInt(patience.Nanoseconds(), 10))
	debug.FreeOSMemory()
}

// work takes idle back.
func (p pace) work() {
	runtime.SetDefaultGOMAXPROCS()
	p.set(p.slack)
}

// set sets the slack of all threads, which those that they make have from them, until
// there is none that was made before its maker had it. What cannot be set stays as it
// is.
// https://man7.org/linux/man-pages/man5/proc_pid_timerslack_ns.5.html
func (p pace) set(slack string) {
	if p.slack == "" {
		return
	}
	seen := map[string]bool{}
	for before := -1; before < len(seen); {
		before = len(seen)
		threads, _ := os.ReadDir("/proc/self/task")
		for _, thread := range threads {
			if !seen[thread.Name()] {
				seen[thread.Name()] = true
				_ = os.WriteFile(filepath.Join("/proc", thread.Name(), "timerslack_ns"), []byte(slack), 0)
			}
		}
	}
}
