package volatile_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"mesh/lab/volatile"
)

const page = volatile.PageSize

// TestCasePowerCut: what is flushed is there after a power cut; what was written
// after the flush is not; whoever wrote is dead, and the disk can be used again.
func TestCasePowerCut(t *testing.T) {
	c, _ := served(t, strings.Repeat("flushed..", 1000))
	h := holder(t, disk(c), "unflushed")
	if got := content(t, disk(c))[:9]; got != "unflushed" {
		t.Errorf("before the cut it reads %q", got)
	}
	lost, err := volatile.NewClient(c.Control).Cut(t.Context(), disk(c), volatile.Loss{})
	if lost != page || err != nil {
		t.Errorf("the cut lost %d bytes, %v; want one page", lost, err)
	}
	if err := h.Wait(); err == nil || h.ProcessState.Sys().(interface{ Signal() unix.Signal }).Signal() != unix.SIGKILL {
		t.Errorf("whoever held it: %v, want killed", err)
	}
	for _, path := range []string{behind(c), disk(c)} {
		if got := content(t, path)[:9]; got != "flushed.." {
			t.Errorf("after the cut %s reads %q", path, got)
		}
	}
	f := open(t, disk(c))
	if _, err := f.WriteAt([]byte("new"), 0); err != nil {
		t.Error("write after the cut: ", err)
	}
	if err := f.Sync(); err != nil {
		t.Error("flush after the cut: ", err)
	}
	if got := content(t, behind(c))[:9]; got != "newshed.." {
		t.Errorf("a new writer's flush left %q", got)
	}
}

// TestCutNobody: a disk that nobody writes to loses nothing; one that is not there
// is an error.
func TestCutNobody(t *testing.T) {
	c, _ := served(t, "x")
	client := volatile.NewClient(c.Control)
	if lost, err := client.Cut(t.Context(), "a.qcow2", volatile.Loss{}); lost != 0 || err != nil {
		t.Errorf("%d, %v", lost, err)
	}
	if _, err := client.Cut(t.Context(), "b.qcow2", volatile.Loss{}); err == nil || !strings.Contains(err.Error(), `no disk "b.qcow2"`) {
		t.Errorf("a disk that is not there: %v", err)
	}
	if _, err := client.Cut(t.Context(), "a.qcow2", volatile.Loss{Survive: 2}); err == nil || !strings.Contains(err.Error(), "survive: 2") {
		t.Errorf("what is no probability: %v", err)
	}
}

// TestSurvivors: the same seed lets the same pages survive, and never all or none
// of many.
func TestSurvivors(t *testing.T) {
	after := func() string {
		c, _ := served(t, strings.Repeat("-", 31*page))
		h := holder(t, disk(c), strings.Repeat("+", 31*page)) // an argument has less than 128 KiB
		if _, err := volatile.NewClient(c.Control).Cut(t.Context(), disk(c), volatile.Loss{Survive: 0.5, Seed: 7}); err != nil {
			t.Fatal(err)
		}
		_ = h.Wait()
		return content(t, behind(c))
	}
	one, two := after(), after()
	if one != two {
		t.Error("one seed, two outcomes")
	}
	survived := strings.Count(one, "+")
	if survived%page != 0 || survived < 6*page || survived > 26*page {
		t.Errorf("%d bytes of %d survived", survived, 31*page)
	}
}

// TestClose: closing without a flush is losing power, but only for the last writer.
func TestClose(t *testing.T) {
	c, _ := served(t, "old")
	one, two := open(t, disk(c)), open(t, disk(c))
	if _, err := one.WriteAt([]byte("new"), 0); err != nil {
		t.Fatal(err)
	}
	one.Close()
	if got := content(t, disk(c)); got != "new" {
		t.Errorf("with a writer left it reads %q", got)
	}
	reader, err := os.Open(disk(c))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	two.Close()
	unflushed(t, c, 0)
	if got := content(t, disk(c)); got != "old" {
		t.Errorf("with no writer left it reads %q", got)
	}
}

// TestBehind: files that appear, go and change behind the mount do so at once in
// it; other files are not shown, and nothing is made or removed through it.
func TestBehind(t *testing.T) {
	c, _ := served(t, "a")
	read := func(name string) string {
		b, err := os.ReadFile(c.Disk(name))
		if err != nil {
			return err.(*os.PathError).Err.Error()
		}
		return string(b)
	}
	for _, step := range []struct {
		name string
		do   func() error
		want string
	}{
		{"b.qcow2", func() error { return nil }, "no such file or directory"},
		{"b.qcow2", func() error { return os.WriteFile(c.Directory+"/b.qcow2", []byte("one"), 0o644) }, "one"},
		{"b.qcow2", func() error { return os.WriteFile(c.Directory+"/b.qcow2", []byte("longer"), 0o644) }, "longer"},
		{"b.qcow2", func() error { return os.Rename(c.Directory+"/a.qcow2", c.Directory+"/b.qcow2") }, "a"},
		{"a.qcow2", func() error { return nil }, "no such file or directory"},
		{"b.qcow2", func() error { return os.Remove(c.Directory + "/b.qcow2") }, "no such file or directory"},
		{"record.json", func() error { return os.WriteFile(c.Directory+"/record.json", []byte("{}"), 0o644) }, "no such file or directory"},
		{"link.qcow2", func() error { return os.Symlink("record.json", c.Directory+"/link.qcow2") }, "no such file or directory"},
		{"c.qcow2", func() error { return os.WriteFile(c.Directory+"/c.qcow2", []byte("c"), 0o644) }, "c"},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if got := read(step.name); got != step.want {
			t.Errorf("%s reads %q, want %q", step.name, got, step.want)
		}
	}
	entries, err := os.ReadDir(c.Mount)
	if err != nil || len(entries) != 1 || entries[0].Name() != "c.qcow2" {
		t.Errorf("the mount lists %v, %v; want c.qcow2 alone", entries, err)
	}
	for what, err := range map[string]error{
		"make":   os.WriteFile(c.Disk("new.qcow2"), nil, 0o644),
		"remove": os.Remove(c.Disk("c.qcow2")),
		"rename": os.Rename(c.Disk("c.qcow2"), c.Disk("d.qcow2")),
		"link":   os.Link(c.Disk("c.qcow2"), c.Disk("d.qcow2")),
		"dir":    os.Mkdir(c.Mount+"/dir", 0o755),
	} {
		if err == nil {
			t.Errorf("%s through the mount is done", what)
		}
	}
}

// TestOwner: giving a disk away gives the file behind away, and the kernel holds
// others to its mode.
func TestOwner(t *testing.T) {
	c, _ := served(t, "x")
	if err := errors.Join(os.Chown(disk(c), 12, 34), os.Chmod(disk(c), 0o640)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{disk(c), behind(c)} {
		var info unix.Stat_t
		if err := unix.Stat(path, &info); err != nil {
			t.Fatal(err)
		}
		if info.Uid != 12 || info.Gid != 34 || info.Mode&0o7777 != 0o640 {
			t.Errorf("%s is of %d:%d, mode %o", path, info.Uid, info.Gid, info.Mode)
		}
	}
}

// TestSizes: sizes and holes wait like writes.
func TestSizes(t *testing.T) {
	c, _ := served(t, "0123456789")
	f := open(t, disk(c))
	size := func() (seen, flushed int64) {
		one, err1 := os.Stat(disk(c))
		two, err2 := os.Stat(behind(c))
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		return one.Size(), two.Size()
	}
	fd := int(f.Fd())
	for _, step := range []struct {
		what          string
		do            func() error
		seen, flushed int64
		content       string
	}{
		{"truncate", func() error { return f.Truncate(4) }, 4, 10, "0123"},
		{"grow", func() error { return unix.Fallocate(fd, 0, 0, 6) }, 6, 10, "0123\x00\x00"},
		{"punch", func() error { return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 1, 100) }, 6, 10, "0\x00\x00\x00\x00\x00"},
		{"reserve", func() error { return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, 1<<20) }, 6, 10, "0\x00\x00\x00\x00\x00"},
		{"zero", func() error { return unix.Fallocate(fd, unix.FALLOC_FL_ZERO_RANGE, 5, 3) }, 8, 10, "0\x00\x00\x00\x00\x00\x00\x00"},
		{"flush", func() error { return unix.Fdatasync(fd) }, 8, 8, "0\x00\x00\x00\x00\x00\x00\x00"},
		{"append", func() error { _, err := f.WriteAt([]byte("x"), 9); return err }, 10, 8, "0\x00\x00\x00\x00\x00\x00\x00\x00x"},
	} {
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.what, err)
		}
		if seen, flushed := size(); seen != step.seen || flushed != step.flushed {
			t.Errorf("%s: %d bytes are seen and %d flushed, want %d and %d", step.what, seen, flushed, step.seen, step.flushed)
		}
		if diff := cmp.Diff(step.content, content(t, disk(c))); diff != "" {
			t.Errorf("%s (-want +got): %s", step.what, diff)
		}
	}
	end, err := unix.Seek(fd, 0, unix.SEEK_HOLE)
	if data, dataErr := unix.Seek(fd, 3, unix.SEEK_DATA); end != 10 || data != 3 || errors.Join(err, dataErr) != nil {
		t.Errorf("hole at %d, data at %d, %v", end, data, errors.Join(err, dataErr))
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	unflushed(t, c, 0)
	if err := os.Truncate(disk(c), 3); err != nil {
		t.Fatal(err)
	}
	if seen, flushed := size(); seen != 3 || flushed != 3 {
		t.Errorf("a disk that nobody has open was cut to %d bytes, %d flushed; want 3", seen, flushed)
	}
}

// TestLocks: QEMU's locks on a disk exclude another QEMU.
func TestLocks(t *testing.T) {
	c, _ := served(t, "x")
	lock := func(f *os.File) error {
		return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: 100, Len: 1})
	}
	one, two := open(t, disk(c)), open(t, disk(c))
	if err := lock(one); err != nil {
		t.Fatal(err)
	}
	if wrong := is(lock(two), unix.EAGAIN); wrong != "" {
		t.Error("a second lock: ", wrong)
	}
	one.Close()
	if err := lock(two); err != nil {
		t.Error("after the first is gone: ", err)
	}
}

// TestBound: more than the limit does not wait.
func TestBound(t *testing.T) {
	c, _ := served(t, "")
	remove(t, c)
	c.LimitBytes = 1 << 20
	serve(t, c)
	f := open(t, disk(c))
	block := slices.Repeat([]byte("x"), 64<<10)
	for i := range int64(64) {
		if _, err := f.WriteAt(block, i*int64(len(block))); err != nil {
			t.Fatal(err)
		}
	}
	s, err := volatile.NewClient(c.Control).Status(t.Context())
	if err != nil || len(s.Disks) != 1 || s.Disks[0].UnflushedBytes > 1<<20 || s.Disks[0].UnflushedBytes < 1<<19 {
		t.Errorf("%+v, %v; want about 1 MiB unflushed", s, err)
	}
}

// TestFaults: each fault is had while it is set, and by nobody else.
func TestFaults(t *testing.T) {
	c, _ := served(t, "x")
	write(t, c.Directory+"/b.qcow2", "y")
	client := volatile.NewClient(c.Control)
	f, other := open(t, disk(c)), open(t, c.Disk("b.qcow2"))
	ops := func(f *os.File) [3]error {
		_, read := f.ReadAt(make([]byte, 1), 0)
		_, write := f.WriteAt([]byte("z"), 0)
		return [3]error{read, write, f.Sync()}
	}
	for _, step := range []struct {
		fault volatile.Fault
		want  [3]error
	}{
		{volatile.Fault{Read: volatile.EIO}, [3]error{unix.EIO, nil, nil}},
		{volatile.Fault{Write: volatile.ENOSPC}, [3]error{nil, unix.ENOSPC, nil}},
		{volatile.Fault{Read: volatile.EIO, Write: volatile.EIO, Flush: volatile.EIO}, [3]error{unix.EIO, unix.EIO, unix.EIO}},
		{volatile.Fault{}, [3]error{}},
	} {
		if err := client.SetFault(t.Context(), disk(c), step.fault); err != nil {
			t.Fatal(err)
		}
		for i, err := range ops(f) {
			if wrong := is(err, step.want[i]); wrong != "" {
				t.Errorf("%+v, operation %d: %s", step.fault, i, wrong)
			}
		}
		if err := ops(other); err != [3]error{} {
			t.Errorf("%+v, another disk: %v", step.fault, err)
		}
	}
	if err := client.SetFault(t.Context(), disk(c), volatile.Fault{DelayMilliseconds: 100}); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := ops(f); err != [3]error{} || time.Since(begun) < 300*time.Millisecond {
		t.Errorf("three slow operations: %v after %v", err, time.Since(begun))
	}
	s, err := client.Status(t.Context())
	if err != nil || len(s.Disks) != 2 || s.Disks[0].Fault == nil || s.Disks[0].Fault.DelayMilliseconds != 100 || s.Disks[1].Fault != nil {
		t.Errorf("status %+v, %v", s, err)
	}
	for _, bad := range []volatile.Fault{{Read: "EPERM"}, {DelayMilliseconds: -1}, {DelayMilliseconds: 1 << 40}} {
		if err := client.SetFault(t.Context(), disk(c), bad); err == nil || !strings.Contains(err.Error(), "400") {
			t.Errorf("%+v: %v, want a refusal", bad, err)
		}
	}
	if err := client.SetFault(t.Context(), "none.qcow2", volatile.Fault{}); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("a disk that is not there: %v", err)
	}
}

// TestKilled: a killed server leaves errors to whoever has a disk open, and
// nothing else once it is removed, as often as that is asked.
func TestKilled(t *testing.T) {
	c, p := served(t, "flushed")
	f := open(t, disk(c))
	if _, err := f.WriteAt([]byte("unflushed"), 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(p.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); p.Alive() && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
	}
	if _, err := f.ReadAt(make([]byte, 1), 0); err == nil {
		t.Error("a disk without its server is read")
	}
	if _, err := volatile.NewClient(c.Control).Status(t.Context()); is(err, volatile.ErrAbsent) != "" {
		t.Errorf("status of a killed server: %v", err)
	}
	for range 2 {
		remove(t, c)
		gone(t, c)
	}
	if got := content(t, behind(c)); got != "flushed" {
		t.Errorf("behind is %q", got)
	}
	serve(t, c)
	if got := content(t, disk(c)); got != "flushed" {
		t.Errorf("a new server shows %q", got)
	}
}

// TestRemoveBusy removes a server whose disks are open.
func TestRemoveBusy(t *testing.T) {
	c, p := served(t, "x")
	f := open(t, disk(c))
	remove(t, c)
	gone(t, c)
	if p.Alive() {
		t.Error("the server runs on")
	}
	if _, err := f.ReadAt(make([]byte, 1), 0); err == nil {
		t.Error("a disk without its server is read")
	}
}

// TestStartFails leaves nothing.
func TestStartFails(t *testing.T) {
	c, _ := served(t, "x")
	remove(t, c)
	c.Mount = filepath.Join(behind(c), "not a directory")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := volatile.Start(t.Context(), exe, configPath(c), c); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("%v, want that it is not a directory", err)
	}
	if _, err := os.Lstat(c.Control); err == nil {
		t.Error("the control socket is left")
	}
	c.Control = "relative"
	if _, err := volatile.Start(t.Context(), exe, configPath(c), c); err == nil || !strings.Contains(err.Error(), `control: "relative"`) {
		t.Errorf("%v, want that a path is not absolute", err)
	}
}

func gone(t *testing.T, c volatile.Config) {
	t.Helper()
	for _, path := range []string{c.Mount, c.Control} {
		if _, err := os.Lstat(path); is(err, os.ErrNotExist) != "" {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	if strings.Contains(content(t, "/proc/self/mountinfo"), c.Mount) {
		t.Error("the mount is left")
	}
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
