package system_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"mesh/host/system"
)

// attribute gives a file or directory one of ioctl_iflags(2) for the time of a test.
func attribute(t *testing.T, p string, flag int) {
	t.Helper()
	turn := func(change func(flags int) int) error {
		file, err := os.Open(p)
		if err != nil {
			return err
		}
		defer file.Close()
		flags, err := unix.IoctlGetInt(int(file.Fd()), unix.FS_IOC_GETFLAGS)
		if err != nil {
			return err
		}
		return unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, change(flags))
	}
	if err := turn(func(flags int) int { return flags | flag }); err != nil {
		t.Skipf("%s can have no attribute: %v", p, err)
	}
	t.Cleanup(func() {
		if err := turn(func(flags int) int { return flags &^ flag }); err != nil {
			t.Error(err)
		}
	})
}

// mounts mounts a file system in memory for the time of a test.
func mounts(t *testing.T, at, data string, flags uintptr) {
	t.Helper()
	if err := unix.Mount("none", at, "tmpfs", flags, data); err != nil {
		t.Skipf("a mount cannot be made here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
}

// TestTroubleSaysWhatToDo: what the kernel refuses an operator, who knows only what
// the host says, can do something about.
func TestTroubleSaysWhatToDo(t *testing.T) {
	const immutable, appendOnly = 0x10, 0x20 // FS_IMMUTABLE_FL, FS_APPEND_FL of linux/fs.h
	for name, c := range map[string]struct {
		hinder func(t *testing.T, dir, file string)
		is     error
		says   string // $DIR and $FILE stand for where it is
	}{
		"the file is immutable":  {func(t *testing.T, _, file string) { attribute(t, file, immutable) }, unix.EPERM, "$FILE has the attribute i: take it away with `chattr -i $FILE`"},
		"the file only grows":    {func(t *testing.T, _, file string) { attribute(t, file, appendOnly) }, unix.EPERM, "$FILE has the attribute a: take it away with `chattr -a $FILE`"},
		"its directory is":       {func(t *testing.T, dir, _ string) { attribute(t, dir, immutable) }, unix.EPERM, "$DIR has the attribute i: take it away with `chattr -i $DIR`"},
		"the disk is full":       {func(t *testing.T, dir, _ string) { mounts(t, dir, "size=4k,nr_inodes=8", 0) }, unix.ENOSPC, "make room there"},
		"the disk is read-only":  {func(t *testing.T, dir, _ string) { mounts(t, dir, "", unix.MS_RDONLY) }, unix.EROFS, "mount it writable"},
		"the file is mounted on": {bind, system.ErrMount, "unmount that first"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := base(t)
			file := filepath.Join(dir, "file")
			if err := os.WriteFile(file, []byte("theirs"), 0o644); err != nil {
				t.Fatal(err)
			}
			c.hinder(t, dir, file)
			err := system.NewFiles(&system.Linux{}, 1).Replace([]system.Write{{Path: file, Content: make([]byte, 64<<10), Access: system.Access{Mode: 0o644}}})[0]
			says := strings.NewReplacer("$DIR", dir, "$FILE", file).Replace(c.says)
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), says) {
				t.Errorf("%v\nis not %v, and does not say %q", err, c.is, says)
			}
			left, _ := filepath.Glob(filepath.Join(dir, system.TemporaryPrefix+"*"))
			if len(left) > 0 {
				t.Errorf("it left %q", left)
			}
		})
	}
}

func bind(t *testing.T, dir, file string) {
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(other, file, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("a mount cannot be made here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(file, unix.MNT_DETACH) })
}
