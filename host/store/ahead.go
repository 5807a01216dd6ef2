package store

import (
	"sync"
	"time"
)

// Ahead is a store that is being read before it is opened, beside what has to be
// done first. Safe for concurrent use.
type Ahead struct {
	stamp string

	mu     sync.Mutex // held while it is read
	loaded *loaded    // nil: it is of no use, or was used
}

// ReadAhead begins to read the store in dir for the next Open, see Config.Ahead. It
// takes no lock and changes nothing. What it reads counts only if the store is
// whole, and the same when it is opened; else Open reads it then.
func ReadAhead(dir Directory) *Ahead {
	a := &Ahead{stamp: Stamp(dir)}
	if a.stamp == "" {
		return a
	}
	a.mu.Lock()
	go func() {
		defer a.mu.Unlock()
		l, err := load(dir, time.Time{}, nil)
		if err == nil && l.clean() {
			a.loaded = l
		}
	}()
	return a
}

// take gives what was read, once, while the lock of dir is held; nil where it has
// to be read.
func (a *Ahead) take(dir Directory) *loaded {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.loaded
	a.loaded = nil
	if l == nil || Stamp(dir) != a.stamp {
		return nil
	}
	return l
}
