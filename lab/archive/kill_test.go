package archive_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// moveIn and moveKilled tell a child where the lab machines are, and before or
// after what it is killed.
const (
	moveIn     = "ARCHIVE_TEST_MOVE_IN"
	moveKilled = "ARCHIVE_TEST_MOVE_KILLED"
)

// TestMoveKilled kills a move between the things that it asks of the target. Until
// it has asked for all of them the scenario runs on here, and the next move leaves
// nothing of the first, whatever that had come to there.
func TestMoveKilled(t *testing.T) {
	if dir := os.Getenv(moveIn); dir != "" {
		moveAndDie(t, dir, os.Getenv(moveKilled))
		return
	}
	for _, moment := range []string{"before import", "after import", "after restore", "after answering", "after forget"} {
		t.Run(moment, func(t *testing.T) {
			dir := t.TempDir()
			from, to := moveBeds(t, dir, 1000)
			from.raised(t, "a", "s1")
			cmd := exec.Command(os.Args[0], "-test.run", "^TestMoveKilled$")
			cmd.Env = append(os.Environ(), moveIn+"="+dir, moveKilled+"="+moment)
			if out, err := cmd.CombinedOutput(); !strings.Contains(err.Error(), "killed") {
				t.Fatalf("%v\n%s", err, out)
			}
			if raised, err := from.lab.Names(); err != nil || !slices.Contains(raised, "a") {
				t.Fatalf("here is raised %q, %v", raised, err)
			}
			_, err := from.archive.Move(t.Context(), "a", to)
			must(t, err)
			if diff := cmp.Diff([]string{"a@s1"}, from.stands(t)); diff != "" {
				t.Errorf("here:\n%s", diff)
			}
			if diff := cmp.Diff([]string{"a"}, to.stands(t)); diff != "" {
				t.Errorf("there:\n%s", diff)
			}
		})
	}
}

// moveBeds are a lab machine and one to move to, whose serial numbers begin there:
// no two processes may make the same names.
func moveBeds(t *testing.T, dir string, serial int64) (*bed, *beside) {
	from, to := newBedIn(t, filepath.Join(dir, "from"), "a disk"), &beside{bed: newBedIn(t, filepath.Join(dir, "to"), "a disk")}
	from.serial.Store(serial)
	to.serial.Store(serial)
	return from, to
}

// moveAndDie is the child.
func moveAndDie(t *testing.T, dir, killed string) {
	from, to := moveBeds(t, dir, 2000)
	to.killed = killed
	_, err := from.archive.Move(t.Context(), "a", to)
	t.Fatal(errors.Join(errors.New("it ended by itself"), err))
}

// The target's own run of that name is left alone, though a move to there was
// killed before it had come so far.
func TestMoveKilledLeavesOthersAlone(t *testing.T) {
	from, to := newBed(t, "a disk"), &beside{bed: newBed(t, "a disk")}
	from.raised(t, "a", "s1")
	_, err := from.snapshots.Take(t.Context(), "a", "move-00000000", "taken to move the scenario to beside")
	must(t, err)
	to.raised(t, "a", "theirs")
	_, err = from.archive.Move(t.Context(), "a", to)
	wantRefused(t, err, 2, "one of that name is raised there")
	if diff := cmp.Diff([]string{"a", "a@theirs"}, to.stands(t)); diff != "" {
		t.Errorf("there:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a", "a@s1"}, from.stands(t)); diff != "" {
		t.Errorf("here:\n%s", diff)
	}
}
