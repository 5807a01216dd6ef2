package system

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"golang.org/x/sys/unix"
)

// MakeDirectory makes the directory at p durably; its parent must be there. It
// gets its name with owner and mode set already.
func (f *Files) MakeDirectory(p string, a Access) error {
	parent, err := f.disk.OpenDir(path.Dir(p))
	if err != nil {
		return missing(p, err)
	}
	defer parent.Close()
	name := path.Base(p)
	if err := clear(parent, name); err != nil {
		return err
	}
	temp := Temporary(name)
	if err := parent.Mkdir(temp); err != nil {
		return err
	}
	if err := f.SetDirectory(path.Join(path.Dir(p), temp), a); err != nil {
		return errors.Join(err, clear(parent, name), parent.Sync())
	}
	if err := parent.Rename(temp, name); err != nil {
		return errors.Join(err, clear(parent, name), parent.Sync())
	}
	return parent.Sync()
}

// SetDirectory gives the directory at p its owner and mode, durably.
func (f *Files) SetDirectory(p string, a Access) error {
	dir, err := f.disk.OpenDir(p)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Chown(a.UID, a.GID); err != nil {
		return err
	}
	if err := dir.Chmod(a.Mode); err != nil {
		return err
	}
	return dir.Sync()
}

// RemoveDirectory removes the directory at p durably if it is empty; never what
// is in it. Errors match ErrNotEmpty, ErrMount, and ErrChanged when something
// else is there. One that is gone already is no error.
func (f *Files) RemoveDirectory(p string) error {
	parent, err := f.disk.OpenDir(path.Dir(p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer parent.Close()
	err = parent.Rmdir(path.Base(p))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return parent.Sync()
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		return fmt.Errorf("remove directory %s: %w", p, ErrNotEmpty)
	case errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("remove directory %s: %w", p, ErrChanged)
	case err != nil:
		return mounted("remove directory", p, err)
	}
	return parent.Sync()
}

// Settle makes what is at p now durable, and removes what a crash left beside it.
func (f *Files) Settle(p string) error {
	parent, err := f.disk.OpenDir(path.Dir(p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer parent.Close()
	name := path.Base(p)
	if err := clear(parent, name); err != nil {
		return err
	}
	if st, err := parent.Stat(name); err == nil && st.Type == TypeDirectory {
		dir, err := f.disk.OpenDir(p)
		if err != nil {
			return err
		}
		defer dir.Close()
		if err := dir.Sync(); err != nil {
			return err
		}
	}
	return parent.Sync()
}
