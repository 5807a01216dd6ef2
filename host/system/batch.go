package system

import (
	"errors"
	"path"
	"sync"
)

// batch is work on many files whose directories are opened once and synced once.
type batch struct {
	errs    []error
	parents []string
	dirs    map[string]Dir
}

func (f *Files) batch(n int, at func(int) string) *batch {
	b := &batch{errs: make([]error, n), parents: make([]string, n), dirs: map[string]Dir{}}
	failed := map[string]error{}
	for i := range n {
		parent := path.Dir(at(i))
		b.parents[i] = parent
		if b.dirs[parent] == nil && failed[parent] == nil {
			dir, err := f.disk.OpenDir(parent)
			if err != nil {
				failed[parent] = err
			} else {
				b.dirs[parent] = dir
			}
		}
		if err := failed[parent]; err != nil {
			b.errs[i] = missing(at(i), err)
		}
	}
	return b
}

// each runs do for everything that has not failed, in order.
func (b *batch) each(do func(i int, dir Dir) error) { b.among(0, len(b.errs), do) }

// among is each for those from..to-1.
func (b *batch) among(from, to int, do func(i int, dir Dir) error) {
	for i := from; i < to; i++ {
		if b.errs[i] == nil {
			b.errs[i] = do(i, b.dirs[b.parents[i]])
		}
	}
}

// parallel is among, in any order.
func (b *batch) parallel(from, to, workers int, do func(i int, dir Dir) error) {
	if workers <= 1 {
		b.among(from, to, do)
		return
	}
	var wg sync.WaitGroup
	work := make(chan int)
	for range min(workers, to-from) {
		wg.Go(func() {
			for i := range work {
				b.errs[i] = do(i, b.dirs[b.parents[i]])
			}
		})
	}
	for i, err := range b.errs[from:to] {
		if err == nil {
			work <- from + i
		}
	}
	close(work)
	wg.Wait()
}

// sync makes durable what was done in each directory. After an error nothing
// in that directory counts as done.
func (b *batch) sync() {
	synced := map[string]error{}
	for i, parent := range b.parents {
		dir := b.dirs[parent]
		if dir == nil {
			continue
		}
		err, done := synced[parent]
		if !done {
			err = dir.Sync()
			synced[parent] = err
		}
		if err != nil {
			b.errs[i] = errors.Join(b.errs[i], err)
		}
	}
}

func (b *batch) close() {
	for _, dir := range b.dirs {
		_ = dir.Close()
	}
}
