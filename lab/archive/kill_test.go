package archive_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"mesh/lab/archive"
)

// What a child of the test is told to do.
const (
	importInto = "ARCHIVE_TEST_IMPORT_INTO" // directory of the bed
	killAt     = "ARCHIVE_TEST_KILL_AT"     // bytes of the file that are read before
)

// deadly ends the process, by force, when so many bytes have been read.
type deadly struct {
	r    io.Reader
	left int
}

func (d *deadly) Read(p []byte) (int, error) {
	if d.left <= 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	n, err := d.r.Read(p[:min(len(p), d.left)])
	d.left -= n
	return n, err
}

// TestImportKilled kills an import at many places. What it leaves is no snapshot;
// sweeping removes all of it, the next import of the same is whole, and no lock
// is left.
func TestImportKilled(t *testing.T) {
	if dir := os.Getenv(importInto); dir != "" {
		importAndDie(t, dir)
		return
	}
	from := newBed(t, "a disk")
	from.raised(t, "a", "s1")
	file := from.export(t, archive.ExportOptions{Scenario: "a", Snapshot: "s1"})
	// The file is compressed as one piece, unless it is as long as a real one.
	z := squeeze(t, nil)
	for _, e := range unpack(t, file) {
		z = append(z, squeeze(t, tarOf(t, e))...)
	}
	z = append(z, squeeze(t, make([]byte, 1024))...)
	const kills = 24
	dir := t.TempDir()
	to := newBedIn(t, dir, "")
	write(t, filepath.Join(dir, "file"), string(z))
	for n := range kills {
		at := len(z) * n / kills
		cmd := exec.Command(os.Args[0], "-test.run", "^TestImportKilled$")
		cmd.Env = append(os.Environ(), importInto+"="+dir, killAt+"="+strconv.Itoa(at))
		out, err := cmd.CombinedOutput()
		if !strings.Contains(err.Error(), "killed") {
			t.Fatalf("killed after %d bytes: %v\n%s", at, err, out)
		}
		if stands := to.stands(t); len(stands) != 0 {
			t.Fatalf("killed after %d bytes: there is %q", at, stands)
		}
		must(t, to.snapshots.Sweep())
		for path := range to.tree(t) {
			t.Errorf("killed after %d bytes: %s was left", at, path)
		}
	}
	_, err := to.archive.Import(t.Context(), bytes.NewReader(z), archive.ImportOptions{})
	must(t, err)
	must(t, to.snapshots.Verify(t.Context(), "a", "s1"))
}

// importAndDie is the child.
func importAndDie(t *testing.T, dir string) {
	at, err := strconv.Atoi(os.Getenv(killAt))
	must(t, err)
	f, err := os.Open(filepath.Join(dir, "file"))
	must(t, err)
	_, err = newBedIn(t, dir, "").archive.Import(t.Context(), &deadly{f, at}, archive.ImportOptions{})
	t.Fatal(errors.Join(errors.New("it ended by itself"), err))
}
