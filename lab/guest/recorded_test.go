package guest_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"mesh/lab/guest"
)

// more is everything that can be read now.
func more(t *testing.T, r io.Reader) string {
	t.Helper()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// TestRecorded: a console is read whole and followed, however virtlogd renames
// its parts.
func TestRecorded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "one.console")
	write(t, path+".1", "a")
	write(t, path+".0", "b")
	write(t, path, "c")
	r, err := guest.Recorded(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	look := func(want string) {
		t.Helper()
		if got := more(t, r); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	look("abc")
	write(t, path, "d")
	look("d")
	write(t, path, "e")
	rename(t, path+".0", path+".1")
	rename(t, path, path+".0")
	look("e") // while there is no new one
	write(t, path, "f")
	look("f")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	look("")
	write(t, path, "g")
	look("g")
}

// TestRecordedRenamed: only old parts are there.
func TestRecordedRenamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "one.console")
	write(t, path+".0", "old")
	r, err := guest.Recorded(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got := more(t, r); got != "old" {
		t.Errorf("got %q", got)
	}
	write(t, path, "new")
	if got := more(t, r); got != "new" {
		t.Errorf("got %q", got)
	}
}

func TestRecordedNothing(t *testing.T) {
	if _, err := guest.Recorded(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
}
