package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"mesh/cmd/internal/cli"
)

func says(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

// A file is replaced as a whole or not at all, and a link to it stays one.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(writeFile(path, 0o640, says("one")), os.Symlink("file", link), writeFile(link, 0o600, says("two"))); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if err := writeFile(path, 0o600, func(w io.Writer) error { return errors.Join(says("thr")(w), broken) }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	info, err := os.Lstat(path)
	if text, _ := os.ReadFile(path); err != nil || string(text) != "two" || info.Mode() != 0o600 {
		t.Errorf("%q, %v, %v", text, info.Mode(), err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link is a %v, %v", info.Mode(), err)
	}
	for _, bad := range []string{dir, filepath.Join(dir, "no", "where"), filepath.Join(path, "below")} {
		if err := writeFile(bad, 0o600, says("x")); cli.Code(err) != cli.Usage {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("there is %v, %v", left, err)
	}
}

// What is no file is written to, and never replaced: a name like /dev/stdout
// belongs to the whole machine.
func TestWriteFileToAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(pipe, os.O_RDWR, 0) // both ends, so that nobody waits
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := writeFile(pipe, 0o600, says("one")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 3)
	if _, err := io.ReadFull(f, got); err != nil || string(got) != "one" {
		t.Errorf("%q, %v", got, err)
	}
	if info, err := os.Lstat(pipe); err != nil || info.Mode().Type() != os.ModeNamedPipe {
		t.Errorf("the pipe is a %v, %v", info.Mode(), err)
	}
}
