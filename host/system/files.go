package system

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"golang.org/x/sys/unix"
)

// MaxDigest is the size in bytes up to which a file's content is read; it is the
// most a file of a declaration can have, so a larger one is never the host's.
const MaxDigest = MaxContent

// TemporaryPrefix begins the name of every temporary file and directory. The
// rest of the name follows from the name it will get, so what a crash left is
// found again.
const TemporaryPrefix = ".mesh-host-"

// Reasons not to remove; errors of the removals match them.
var (
	ErrChanged  = errors.New("it is not what was written")
	ErrNotEmpty = errors.New("it is not empty")
	ErrMount    = errors.New("a file system is mounted on it")
)

// Entry is what is at a path. The zero value means nothing is.
type Entry struct {
	Type   Type
	Digest string // file of at most MaxDigest bytes: SHA-256, hex
	UID    uint32
	GID    uint32
	Mode   uint32
}

// Access is who may do what with a file or directory.
type Access struct {
	UID, GID uint32
	Mode     uint32 // permission, set-id and sticky bits
}

// Write is one file to be put in place.
type Write struct {
	Path    string
	Content []byte
	Access
	// Check is given the path of the new file, with owner and mode, before it
	// replaces anything; its error refuses the file. nil accepts it.
	Check func(candidate string) error
}

// Removal is one file to be taken away, if it still has this content.
type Removal struct {
	Path   string
	Digest string
}

// Files is everything the host does to files. Safe for concurrent use on
// different paths.
type Files struct {
	disk    Disk
	workers int
	memory  *Memory
}

// NewFiles works on disk, preparing as many files at once as there are workers;
// with one, operations come in the same order every time. It remembers nothing.
func NewFiles(disk Disk, workers int) *Files {
	return &Files{disk: disk, workers: workers}
}

// Remember makes LookAll use a memory from now on.
func (f *Files) Remember(m *Memory) { f.memory = m }

// Replace puts every file in place durably: owner and mode are set and the
// content is on disk before the file gets its name, and the name is on disk
// when Replace returns. Error i says what became of write i; after an error the
// path holds the old or the new file, never a part of one.
//
// This is the only way the host writes a file that has to last. The files of
// one call share the syncs of their directories.
func (f *Files) Replace(writes []Write) []error {
	b := f.batch(len(writes), func(i int) string { return writes[i].Path })
	defer b.close()
	candidates := make([]File, len(writes))
	for from := 0; from < len(writes); from += maxOpen {
		to := min(from+maxOpen, len(writes))
		b.parallel(from, to, f.workers, func(i int, dir Dir) (err error) {
			candidates[i], err = prepare(dir, writes[i])
			return err
		})
		b.parallel(from, to, f.workers, func(i int, dir Dir) error { return finish(dir, candidates[i], path.Base(writes[i].Path)) })
	}
	b.each(func(i int, dir Dir) error {
		name := path.Base(writes[i].Path)
		err := writes[i].check(Temporary(name))
		if err == nil {
			err = mounted("replace", writes[i].Path, dir.Rename(Temporary(name), name))
		}
		if err != nil {
			err = errors.Join(err, clear(dir, name))
		}
		return err
	})
	b.sync()
	return b.errs
}

func (w Write) check(temporary string) error {
	if w.Check == nil {
		return nil
	}
	return w.Check(path.Join(path.Dir(w.Path), temporary))
}

// maxOpen bounds how many files are open at once.
const maxOpen = 256

// prepare writes the file under its temporary name. Many are written before the
// first of them is synced, so that one commit of the file system's journal stands
// for all of them.
func prepare(dir Dir, w Write) (File, error) {
	name := path.Base(w.Path)
	if st, err := dir.Stat(name); err == nil && st.Type != TypeFile {
		return nil, &InWayError{Path: w.Path, Component: w.Path, Type: st.Type}
	}
	if err := clear(dir, name); err != nil {
		return nil, err
	}
	file, err := dir.Create(Temporary(name))
	if err != nil {
		return nil, err
	}
	if err := fill(file, w); err != nil {
		return nil, errors.Join(err, file.Close(), clear(dir, name))
	}
	return file, nil
}

// finish makes what was prepared durable.
func finish(dir Dir, file File, name string) error {
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return errors.Join(err, clear(dir, name))
	}
	return nil
}

func fill(file File, w Write) error {
	if _, err := file.Write(w.Content); err != nil {
		return err
	}
	if err := file.Chown(w.UID, w.GID); err != nil {
		return err
	}
	if err := file.Chmod(w.Mode); err != nil { // after the owner: chown clears set-id bits
		return err
	}
	if early, ok := file.(starter); ok {
		early.start()
	}
	return nil
}

// starter is a file that can begin to go to its disk before it is synced.
type starter interface{ start() }

// Remove takes every file away durably that still has its content. Errors match
// ErrChanged for those that have not; a file that is gone already is no error.
func (f *Files) Remove(removals []Removal) []error {
	b := f.batch(len(removals), func(i int) string { return removals[i].Path })
	defer b.close()
	b.each(func(i int, dir Dir) error {
		name := path.Base(removals[i].Path)
		found, err := look(dir, name) // once more, and not from memory
		switch {
		case err != nil:
			return err
		case found.Type == "":
			return nil
		case found.Type != TypeFile || found.Digest != removals[i].Digest:
			return fmt.Errorf("remove %s: %w", removals[i].Path, ErrChanged)
		}
		return mounted("remove", removals[i].Path, dir.Unlink(name))
	})
	b.sync()
	return b.errs
}

// mounted names the one reason for EBUSY that matters here.
func mounted(op, p string, err error) error {
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%s %s: %w: unmount that first", op, p, ErrMount)
	}
	return err
}

// Temporary is the name under which the content of name is prepared.
func Temporary(name string) string {
	sum := sha256.Sum256([]byte(name))
	return TemporaryPrefix + hex.EncodeToString(sum[:8])
}

// clear removes the temporary of name, if there is one.
func clear(dir Dir, name string) error {
	temp := Temporary(name)
	err := dir.Unlink(temp)
	if errors.Is(err, unix.EISDIR) {
		err = dir.Rmdir(temp)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func missing(p string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: the directory it lies in is not there: declare it before this: %w", p, fs.ErrNotExist)
	}
	return err
}
