package system

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"mesh/host/store"
)

// StateDirectory is a directory for the host's own record, readable by root alone. It
// implements store.Directory with the same durable replace as everything else.
type StateDirectory struct {
	files *Files
	path  string
}

// NewStateDirectory is the state directory at p; nothing is made before Lock.
func NewStateDirectory(files *Files, p string) *StateDirectory {
	return &StateDirectory{files: files, path: p}
}

// Read implements store.Directory.
func (s *StateDirectory) Read(name string) ([]byte, error) {
	dir, err := s.files.disk.OpenDir(s.path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	st, err := dir.Stat(name)
	if err != nil {
		return nil, err
	}
	file, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data := bytes.NewBuffer(make([]byte, 0, st.Size+bytes.MinRead)) // it may have grown
	_, err = data.ReadFrom(file)
	return data.Bytes(), err
}

// Mark implements store.Marker.
func (s *StateDirectory) Mark(name string) (string, error) {
	dir, err := s.files.disk.OpenDir(s.path)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	st, err := dir.Stat(name)
	if err != nil || st.Mark == (Mark{}) {
		return "", err
	}
	return fmt.Sprint(st.Mark), nil
}

// Replace implements store.Directory.
func (s *StateDirectory) Replace(name string, data []byte) error {
	write := Write{Path: path.Join(s.path, name), Content: data, Access: Access{Mode: 0o600}}
	return s.files.Replace([]Write{write})[0]
}

// Append implements store.Directory.
func (s *StateDirectory) Append(name string) (store.Appender, error) {
	dir, err := s.files.disk.OpenDir(s.path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Append(name)
}

// Rename implements store.Directory.
func (s *StateDirectory) Rename(from, to string) error {
	dir, err := s.files.disk.OpenDir(s.path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Rename(from, to); err != nil {
		return err
	}
	return dir.Sync()
}

// Lock implements store.Directory. It also removes what a crash left of a
// replace that was going on, and makes the names there are last: a crash may have
// been right behind the rename of one that is written to from here on.
func (s *StateDirectory) Lock(name string) (io.Closer, error) {
	dir, err := s.files.disk.OpenDir(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.files.MakeDirectory(s.path, Access{Mode: 0o700}); err != nil {
			return nil, err
		}
		dir, err = s.files.disk.OpenDir(s.path)
	} else if err == nil {
		if err = s.rooted(dir, name); err != nil {
			_ = dir.Close()
		}
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	lock, err := dir.Lock(name)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("%s: %w", path.Join(s.path, name), store.ErrLocked)
	}
	if err != nil {
		return nil, err
	}
	if err = sweep(dir); err == nil {
		err = dir.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// rooted makes the directory's own name durable before the first file is made in
// it: a crash may have been right behind the rename that gave it the name, and one
// that still had its temporary name after the next, with a file in it, could not
// be cleared away. It clears away what has the temporary name now: a directory that
// was begun before it, and gone, comes back if only that it went is lost.
func (s *StateDirectory) rooted(dir Dir, first string) error {
	if _, err := dir.Stat(first); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent, err := s.files.disk.OpenDir(path.Dir(s.path))
	if err != nil {
		return err
	}
	defer parent.Close()
	if err := clear(parent, path.Base(s.path)); err != nil {
		return err
	}
	return parent.Sync()
}

// Dissolve takes away the files in it that known names, and then the directory if
// nothing else is in it; what is stays, and is returned. One that is not there is
// no error.
func (s *StateDirectory) Dissolve(known func(name string) bool) (left []string, err error) {
	dir, err := s.files.disk.OpenDir(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := sweep(dir); err != nil {
		return nil, err
	}
	names, err := dir.Names()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !known(name) {
			left = append(left, path.Join(s.path, name))
			continue
		}
		if err := dir.Unlink(name); err != nil {
			return nil, err
		}
	}
	if err := dir.Sync(); err != nil || len(left) > 0 {
		return left, err
	}
	return nil, s.files.RemoveDirectory(s.path)
}

// sweep removes every temporary in dir.
func sweep(dir Dir) error {
	names, err := dir.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, TemporaryPrefix) {
			continue
		}
		err := dir.Unlink(name)
		if errors.Is(err, unix.EISDIR) {
			err = dir.Rmdir(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
