package system

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"path"
	"runtime"
	"sync"
)

// Looked is what looking at one path gave.
type Looked struct {
	Entry
	Err error // Entry means nothing; a path that leads through something else than directories is a *InWayError
}

// Look says what is at p. A path that leads through something else than
// directories is a *InWayError.
func (f *Files) Look(p string) (Entry, error) {
	all := f.look([]string{p}, nil)
	return all[0].Entry, all[0].Err
}

// LookAll looks at every path, and is quickest where those of one directory
// stand together. Of a file that is known to be as it was when it was read
// before, the content is not read again; see Memory.
func (f *Files) LookAll(paths []string) []Looked { return f.look(paths, f.memory) }

// atOnce bounds how many files of one directory are looked at by one worker.
const atOnce = 64

// look looks at runs of neighbours, as many at once as is of use.
func (f *Files) look(paths []string, memory *Memory) []Looked {
	all := make([]Looked, len(paths))
	runs := neighbours(paths)
	work := make(chan [2]int, len(runs))
	for _, run := range runs {
		work <- run
	}
	close(work)
	var workers sync.WaitGroup
	for range min(f.workers, runtime.GOMAXPROCS(0), len(runs)) {
		workers.Go(func() {
			r := reader{memory: memory, hash: sha256.New()}
			for run := range work {
				r.run(f.disk, paths[run[0]:run[1]], all[run[0]:run[1]])
			}
		})
	}
	workers.Wait()
	return all
}

// neighbours splits paths where the directory changes, or there are many: each
// run is from the first to before the second number.
func neighbours(paths []string) (runs [][2]int) {
	for begin, at := 0, 0; at < len(paths); at++ {
		if end := at + 1; end == len(paths) || end-begin == atOnce || path.Dir(paths[end]) != path.Dir(paths[begin]) {
			runs = append(runs, [2]int{begin, end})
			begin = end
		}
	}
	return runs
}

// reader looks at one file after another, with what that needs.
type reader struct {
	memory *Memory // nil: everything is read
	hash   hash.Hash
	buffer []byte
}

// run looks at paths of one directory.
func (r *reader) run(disk Disk, paths []string, all []Looked) {
	dir, err := disk.OpenDir(path.Dir(paths[0]))
	if err != nil {
		for i := range all {
			if !errors.Is(err, fs.ErrNotExist) {
				all[i].Err = err
			}
			r.memory.forget(paths[i])
		}
		return
	}
	defer dir.Close()
	for i, p := range paths {
		all[i].Entry, all[i].Err = r.look(dir, p)
	}
}

// look reads what is at name in dir.
func look(dir Dir, name string) (Entry, error) {
	r := reader{hash: sha256.New()}
	return r.look(dir, name)
}

func (r *reader) look(dir Dir, p string) (Entry, error) {
	name := path.Base(p)
	st, err := dir.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		r.memory.forget(p)
		return Entry{}, nil
	}
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Type: st.Type, UID: st.UID, GID: st.GID, Mode: st.Mode}
	if st.Type != TypeFile || st.Size > MaxDigest {
		return e, nil
	}
	if digest, known := r.memory.recall(p, st.Mark); known {
		e.Digest = digest
		return e, nil
	}
	e.Digest, err = r.digest(dir, name, st.Size)
	if err == nil {
		r.memory.remember(p, st.Mark, e.Digest)
	}
	return e, err
}

// maxBuffer bounds what is read at once.
const maxBuffer = 64 << 10

func (r *reader) digest(dir Dir, name string, size int64) (string, error) {
	file, err := dir.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	r.hash.Reset()
	if need := int(min(size+1, maxBuffer)); len(r.buffer) < need { // one more, so that most files end with the first read
		r.buffer = make([]byte, max(need, 8<<10))
	}
	if _, err := io.CopyBuffer(r.hash, struct{ io.Reader }{io.LimitReader(file, MaxDigest+1)}, r.buffer); err != nil {
		return "", err
	}
	return hex.EncodeToString(r.hash.Sum(nil)), nil
}
