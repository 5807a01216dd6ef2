package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"mesh/cmd/internal/cli"
)

// writeFile writes a file that write makes, whole or not at all, in the place of
// one that is there. What is there and no file, a device or a pipe, stays and is
// written to. Where that cannot begin the error has the exit code of usage.
func writeFile(path string, mode fs.FileMode, write func(w io.Writer) error) (err error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return cli.WithCode(cli.Usage, fmt.Errorf("write: %w", err))
		}
		return errors.Join(write(f), f.Close())
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real // a link stays one
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return cli.WithCode(cli.Usage, fmt.Errorf("write %s: %w", path, err))
	}
	defer os.Remove(f.Name())
	err = write(f)
	if err == nil {
		err = errors.Join(f.Chmod(mode), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// counted counts what is written to w.
type counted struct {
	w io.Writer
	n int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
