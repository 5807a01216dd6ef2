package apply_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"mesh/host/apply/applytest"
	"mesh/host/system/systemtest"
)

// rig is a machine whose disk is one or two ext4 file systems in files, which
// are cut off while it works.
type rig struct {
	dir      string
	below    []string // where each file system is mounted, seen from the machine
	pristine [][]byte // the images before the first pass
	beside   string
	mounts   []*systemtest.Ext4
}

// newRig makes the machine of s once; every point begins with a copy.
func newRig(t *testing.T, s applytest.Scenario, below ...string) *rig {
	t.Helper()
	r := &rig{dir: quickDir(t), below: below}
	r.beside = filepath.Join(r.dir, "beside")
	if err := os.Mkdir(r.root(), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range below {
		if err := systemtest.MakeExt4(r.image(i), systemtest.SmallExt4); err != nil {
			t.Skipf("no ext4 can be made here: %v", err)
		}
	}
	if err := r.mount(); err != nil {
		t.Skipf("no loop device can be mounted here (as root, with /dev/loop-control?): %v", err)
	}
	t.Cleanup(func() { _ = r.unmount() })
	if err := realMachine(t, s, r.root()).Save(r.beside); err != nil {
		t.Fatal(err)
	}
	if err := r.unmount(); err != nil {
		t.Fatal(err)
	}
	for i := range below {
		b, err := os.ReadFile(r.image(i))
		if err != nil {
			t.Fatal(err)
		}
		r.pristine = append(r.pristine, b)
	}
	return r
}

// quickDir is a directory in memory where there is one: what a loop device calls
// durable, or a process that is killed, need not reach a disk.
func quickDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "mesh-proof-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (r *rig) root() string       { return filepath.Join(r.dir, "root") }
func (r *rig) image(i int) string { return filepath.Join(r.dir, fmt.Sprintf("image%d", i)) }

func (r *rig) mount() error {
	for i, below := range r.below {
		at := filepath.Join(r.root(), below)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		mount, err := systemtest.MountExt4(r.image(i), at)
		if err != nil {
			return errors.Join(err, r.unmount())
		}
		r.mounts = append(r.mounts, mount)
		if err := unix.Chmod(at, 0o755); err != nil && !errors.Is(err, unix.EROFS) {
			return err
		}
	}
	return nil
}

func (r *rig) unmount() error {
	var errs []error
	for len(r.mounts) > 0 {
		last := len(r.mounts) - 1
		errs = append(errs, r.mounts[last].Unmount())
		r.mounts = r.mounts[:last]
	}
	return errors.Join(errs...)
}

// images are the files as they are.
func (r *rig) images() ([][]byte, error) {
	var all [][]byte
	for i := range r.below {
		b, err := os.ReadFile(r.image(i))
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

// put makes files of images, new ones: a loop device that somebody else still
// holds must not write into them.
func (r *rig) put(images [][]byte) error {
	for i, b := range images {
		if err := errors.Join(os.Remove(r.image(i)), os.WriteFile(r.image(i), b, 0o600)); err != nil {
			return err
		}
	}
	return nil
}

// cut brings a new machine to its kth change, cuts its disk off there, and says
// in which pass that was; every file system is as the cut left it, and not mounted.
func (r *rig) cut(p *proof, k int, flag systemtest.ShutdownFlag) (m *systemtest.Machine, pass int, err error) {
	if err := errors.Join(r.put(r.pristine), r.mount()); err != nil {
		return nil, 0, err
	}
	m, err = systemtest.Load(systemtest.NewTree(r.root()), r.beside)
	if err != nil {
		return nil, 0, err
	}
	var down error
	cutAt := systemtest.CutAt(k)
	m.Hook(func(op systemtest.Op) error {
		err := cutAt(op)
		if errors.Is(err, systemtest.ErrCut) {
			for _, mount := range r.mounts {
				down = errors.Join(down, mount.Shutdown(flag))
			}
		}
		return err
	})
	pass = p.goOn(m, 0)
	return m, pass, errors.Join(down, r.unmount())
}

// boot mounts what a cut left and starts the machine again, looks, and ends it.
func (r *rig) boot(images [][]byte, m *systemtest.Machine, look func(*systemtest.Machine) error) error {
	if err := errors.Join(r.put(images), r.mount()); err != nil {
		return err
	}
	return errors.Join(look(m.Rebooted(systemtest.NewTree(r.root()))), r.unmount())
}

// point is one cut: the machine that comes up is checked, goes on, and is given
// up instead.
func (r *rig) point(p *proof, k int, flag systemtest.ShutdownFlag) (over bool, err error) {
	m, pass, err := r.cut(p, k, flag)
	if err != nil || pass == len(p.scenario.Passes) {
		return true, err
	}
	images, err := r.images()
	if err != nil {
		return true, err
	}
	err = r.boot(images, m, func(m *systemtest.Machine) error {
		return errors.Join(p.check.Cut(m, pass), p.check.Recovered(m, pass))
	})
	if err == nil && k%4 == 0 {
		err = r.boot(images, m, func(m *systemtest.Machine) error { return p.check.Abandoned(m, pass) })
	}
	if err != nil {
		return true, fmt.Errorf("cut before change %d, in pass %d: %w", k, pass+1, err)
	}
	return false, nil
}

// TestL2Cut cuts an ext4 off its disk before every change, with the store and
// what it is about on one and on two file systems.
func TestL2Cut(t *testing.T) {
	needsRoot(t)
	for name, below := range map[string][]string{
		"one file system":  {"/"},
		"two file systems": {"/", applytest.StatePath},
	} {
		for _, flag := range []systemtest.ShutdownFlag{systemtest.ShutdownNoLogFlush, systemtest.ShutdownLogFlush, systemtest.ShutdownDefault} {
			t.Run(name+", "+flag.String(), func(t *testing.T) {
				t.Parallel()
				tally := &row{Level: "L2", What: "ext4 shut down: " + name + ", " + flag.String()}
				defer tried(t, tally)()
				p := newProof(t, nil)
				r := newRig(t, p.scenario, below...)
				for k := 1; ; k += sparse() {
					over, err := r.point(p, k, flag)
					if err != nil {
						t.Fatal(err)
					}
					if over {
						break
					}
					tally.Points++
				}
				if tally.Points < 180/sparse() {
					t.Errorf("%d points: the scenario has become too small to show anything", tally.Points)
				}
			})
		}
	}
}
