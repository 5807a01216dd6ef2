package system_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/host/system"
)

// TestContents keeps, reads, makes a package of, and prunes on a real disk.
func TestContents(t *testing.T) {
	dir := base(t)
	if os.Getuid() != 0 {
		t.Skip("what is kept belongs to root: run it as root")
	}
	c := system.NewContents(system.NewFiles(&system.Linux{}, 1), filepath.Join(dir, "content"))
	if c.HasContent("none") || c.PruneContents(func(string) bool { return false }) != nil || c.DropContent("none") != nil {
		t.Error("where nothing is kept yet")
	}
	one, err := c.KeepContent([]byte("one"))
	two, err2 := c.KeepContent([]byte("two"))
	again, err3 := c.KeepContent([]byte("one"))
	if err := errors.Join(err, err2, err3); err != nil || one != again {
		t.Fatal(err)
	}
	if data, err := c.ReadContent(one); string(data) != "one" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	file, err := c.PackageFile(two)
	if b, readErr := os.ReadFile(file); err != nil || readErr != nil || string(b) != "two" || filepath.Ext(file) != ".deb" {
		t.Errorf("%s: %q, %v, %v", file, b, err, readErr)
	}
	if st, err := os.Stat(c.ContentPath(one)); err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if err := os.WriteFile(c.ContentPath(one), []byte("rot"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ReadContent(one); !errors.Is(err, system.ErrChanged) || c.HasContent(one) {
		t.Errorf("damaged: %v", err)
	}
	if err := c.PruneContents(func(digest string) bool { return digest == two }); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(filepath.Join(dir, "content"))
	if err != nil || len(left) != 1 || left[0].Name() != two {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := c.RoomFor(1); err != nil {
		t.Error(err)
	}
	if err := c.RoomFor(1 << 60); err == nil || !strings.Contains(err.Error(), "make room there") {
		t.Error(err)
	}
}

// TestDissolve takes known files away and never what is not known.
func TestDissolve(t *testing.T) {
	dir := filepath.Join(base(t), "state")
	s := system.NewStateDirectory(system.NewFiles(&system.Linux{}, 1), dir)
	known := func(name string) bool { return name == "known" || name == "link" }
	if left, err := s.Dissolve(known); err != nil || left != nil {
		t.Errorf("%v, %v", left, err)
	}
	theirs := filepath.Join(base(t), "theirs")
	err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "known"), nil, 0o600), os.WriteFile(filepath.Join(dir, "other"), nil, 0o600),
		os.WriteFile(theirs, nil, 0o600), os.Symlink(theirs, filepath.Join(dir, "link")))
	if err != nil {
		t.Fatal(err)
	}
	left, err := s.Dissolve(known)
	if d := cmp.Diff([]string{filepath.Join(dir, "other")}, left); err != nil || d != "" {
		t.Error(err, d)
	}
	if err := os.Remove(filepath.Join(dir, "other")); err != nil {
		t.Fatal(err)
	}
	if left, err := s.Dissolve(known); err != nil || left != nil {
		t.Errorf("%v, %v", left, err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the empty directory is there")
	}
	if _, err := os.Lstat(theirs); err != nil {
		t.Error("something went through a link")
	}
}

// TestTry runs a program that looks at a file, and says what it said last.
func TestTry(t *testing.T) {
	s := system.New(system.Config{})
	if err := s.Try(t.Context(), []string{"/bin/sh", "-c", "exit 0"}); err != nil {
		t.Error(err)
	}
	err := s.Try(t.Context(), []string{"/bin/sh", "-c", "echo first; echo line 3 is wrong >&2; exit 2"})
	if err == nil || err.Error() != "/bin/sh: exit status 2: line 3 is wrong" {
		t.Error(err)
	}
	if err := s.Try(t.Context(), []string{"/no/such/program"}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
}

// keeping keeps one content in a directory of its own.
func keeping(t *testing.T, data string) (c *system.Contents, dir, digest string) {
	t.Helper()
	dir = filepath.Join(base(t), "content")
	c = system.NewContents(system.NewFiles(&system.Linux{}, 1), dir)
	digest, err := c.KeepContent([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	return c, dir, digest
}

// TestKeepContentThatWasDamaged: what is kept already is what it is called, or is kept
// again.
func TestKeepContentThatWasDamaged(t *testing.T) {
	const theirs = "what somebody wrote"
	c, dir, digest := keeping(t, theirs)
	if err := os.WriteFile(filepath.Join(dir, digest), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.KeepContent([]byte(theirs)); err != nil {
		t.Fatal(err)
	}
	if data, err := c.ReadContent(digest); err != nil || string(data) != theirs {
		t.Errorf("%q, %v", data, err)
	}
}

// TestPruneContentsLeavesWhatIsNone: only what is called like a content goes, and what
// is in its way does not keep the rest.
func TestPruneContentsLeavesWhatIsNone(t *testing.T) {
	c, dir, digest := keeping(t, "stale")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "aaa"), 0o700), os.Mkdir(filepath.Join(dir, strings.Repeat("0", 64)), 0o700),
		os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := c.PruneContents(func(string) bool { return false }); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 3 || c.HasContent(digest) {
		t.Errorf("%v, %v", left, err)
	}
}

// TestContentThatGrew: what cannot be what it is called is dropped, so that it is
// fetched again.
func TestContentThatGrew(t *testing.T) {
	c, dir, digest := keeping(t, "x")
	if err := os.Truncate(filepath.Join(dir, digest), system.MaxContent+1); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ReadContent(digest); !errors.Is(err, system.ErrChanged) || c.HasContent(digest) {
		t.Errorf("%v; it is there: %t", err, c.HasContent(digest))
	}
}
