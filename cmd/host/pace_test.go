package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// slacks lists what the threads of this program have.
func slacks(t *testing.T) map[string]bool {
	t.Helper()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, thread := range threads {
		text, err := os.ReadFile(filepath.Join("/proc", thread.Name(), "timerslack_ns"))
		if os.IsPermission(err) {
			t.Skip(err)
		}
		if err == nil { // else it has ended
			all[strings.TrimSpace(string(text))] = true
		}
	}
	return all
}

// TestPace: what an idle program gives up it has again when there is work, be it on a
// thread that was made meanwhile.
func TestPace(t *testing.T) {
	runtime.SetDefaultGOMAXPROCS() // whatever the test was told
	processors, p := runtime.GOMAXPROCS(0), newPace()
	p.idle()
	defer p.work()
	if n, all := runtime.GOMAXPROCS(0), slacks(t); n != 1 || len(all) != 1 || !all["500000"] {
		t.Errorf("idle: %d processors; %v", n, all)
	}
	for range 4 {
		made, end := make(chan bool), make(chan bool)
		defer close(end)
		go func() {
			runtime.LockOSThread() // and so makes another one
			close(made)
			<-end
		}()
		<-made
	}
	p.work()
	if n, all := runtime.GOMAXPROCS(0), slacks(t); n != processors || len(all) != 1 || !all[p.slack] || p.slack == "500000" {
		t.Errorf("at work: %d processors, of %d; %v, of %q", n, processors, all, p.slack)
	}
}
