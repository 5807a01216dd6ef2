package system_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"mesh/host/system"
	"mesh/host/system/systemtest"
)

// place puts a thing on the real disk by the standard library.
func place(t *testing.T, p string, thing systemtest.Thing) {
	t.Helper()
	if err := os.RemoveAll(p); err != nil {
		t.Fatal(err)
	}
	var err error
	switch thing.Type {
	case "":
	case system.TypeLink:
		err = os.Symlink(thing.Content, p)
	case system.TypeFIFO:
		err = unix.Mkfifo(p, thing.Mode)
	case system.TypeDirectory:
		err = os.Mkdir(p, fs.FileMode(thing.Mode))
	case system.TypeFile:
		err = os.WriteFile(p, []byte(thing.Content), fs.FileMode(thing.Mode))
	default:
		t.Fatalf("no way to place a %s", thing.Type)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// base is an empty directory whose path has no link in it.
func base(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestConformanceOfLinux(t *testing.T) {
	systemtest.Conformance(t, func(t *testing.T) systemtest.Ground {
		return systemtest.Ground{
			Disk: &system.Linux{}, Base: base(t), Place: place, UID: uint32(os.Getuid()), GID: uint32(os.Getgid()),
		}
	})
}

// TestConformanceOfLinuxWithoutOpenat2 is what an older kernel, or one behind a
// filter, gives.
func TestConformanceOfLinuxWithoutOpenat2(t *testing.T) {
	systemtest.Conformance(t, func(t *testing.T) systemtest.Ground {
		return systemtest.Ground{
			Disk: system.OldLinux(), Base: base(t), Place: place, UID: uint32(os.Getuid()), GID: uint32(os.Getgid()),
		}
	})
}

// TestCaseH5Links: relative, absolute, dangling and magic links, in the middle
// and at the end of a path.
func TestCaseH5Links(t *testing.T) {
	dir := base(t)
	if err := os.Mkdir(filepath.Join(dir, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	links := map[string]string{
		"relative": "real", "absolute": filepath.Join(dir, "real"), "dangling": "nowhere", "magic": "/proc/self/cwd", "itself": "itself",
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, disk := range []system.Disk{&system.Linux{}, system.OldLinux()} {
		files := system.NewFiles(disk, 1)
		for name := range links {
			for _, p := range []string{filepath.Join(dir, name), filepath.Join(dir, name, "file")} {
				var inWay *system.InWayError
				err := files.Replace([]system.Write{{Path: p, Content: []byte("x")}})[0]
				if !errors.As(err, &inWay) || inWay.Component != filepath.Join(dir, name) || inWay.Type != system.TypeLink {
					t.Errorf("%T: %s: %v", disk, p, err)
				}
			}
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, "real")); err != nil || len(left) != 0 {
		t.Errorf("something was written through a link: %v %v", left, err)
	}
}

// TestNeverAcrossAMount needs root for the mount it makes in its own directory.
func TestNeverAcrossAMount(t *testing.T) {
	dir := base(t)
	for _, name := range []string{"d", "other"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d := filepath.Join(dir, "d")
	if err := unix.Mount(filepath.Join(dir, "other"), d, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("a mount cannot be made here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(d, unix.MNT_DETACH) })
	files := system.NewFiles(&system.Linux{}, 1)
	if err := files.RemoveDirectory(d); !errors.Is(err, system.ErrMount) {
		t.Errorf("removed a directory on which something is mounted: %v", err)
	}
}

// TestLockIsOneWhoeverTakesItsFileAway: a lock whose file goes with it is held by
// one at a time still.
func TestLockIsOneWhoeverTakesItsFileAway(t *testing.T) {
	dir, err := new(system.Linux).OpenDir(base(t))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	var holders, locked atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				lock, err := dir.Lock("lock")
				if errors.Is(err, unix.EWOULDBLOCK) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				locked.Add(1)
				if holders.Add(1) > 1 {
					t.Error("two have the lock")
				}
				holders.Add(-1) // from the unlink on another may have one
				if err := dir.Unlink("lock"); err != nil {
					t.Error(err)
				}
				lock.Close()
			}
		})
	}
	wg.Wait()
	if locked.Load() == 0 {
		t.Error("nobody had it")
	}
}
