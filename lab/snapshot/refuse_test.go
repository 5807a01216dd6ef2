package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"mesh/lab/fault"
	"mesh/lab/images"
	"mesh/lab/lifecycle"
	"mesh/lab/machine"
	"mesh/lab/snapshot"
)

// What cannot be restored is refused with one clear error before anything is
// touched, and what runs runs on.
func TestRefused(t *testing.T) {
	first := snapshot.RestoreOptions{Scenario: "a", Snapshot: "first"}
	tests := map[string]struct {
		spoil   func(t *testing.T, b *bed, m snapshot.Manifest)
		options snapshot.RestoreOptions
		code    int
		says    []string
	}{
		"a layer is gone": {
			spoil: func(t *testing.T, b *bed, m snapshot.Manifest) {
				must(t, os.Remove(b.Layer(m.Plan.Machines[0].Layers[0])))
			},
			code: 1, says: []string{"is gone (sha256 "},
		},
		"a layer is cut short": {
			spoil: func(t *testing.T, b *bed, m snapshot.Manifest) {
				must(t, os.Truncate(b.Layer(m.Plan.Machines[1].Layers[0]), 3))
			},
			code: 1, says: []string{"has 3 bytes, not "},
		},
		"memory is cut short": {
			spoil: func(t *testing.T, b *bed, m snapshot.Manifest) {
				must(t, os.Truncate(filepath.Join(b.Snapshots.Store().Path("a", "first"), "memory", "two"), 7))
			},
			code: 1, says: []string{"memory/two has 7 bytes"},
		},
		"two things are wrong": {
			spoil: func(t *testing.T, b *bed, m snapshot.Manifest) {
				for _, one := range []string{"one", "two"} {
					must(t, os.Remove(filepath.Join(b.Snapshots.Store().Path("a", "first"), "memory", one)))
				}
			},
			code: 1, says: []string{"memory/one is gone", "memory/two is gone"},
		},
		"the image is gone": {
			spoil: func(t *testing.T, b *bed, m snapshot.Manifest) {
				b.config.Images = func() ([]images.Image, error) { return nil, nil }
			},
			code: 4, says: []string{"debian-13", strings.Repeat("d", 64)},
		},
		"the image was built anew": {
			spoil: func(t *testing.T, b *bed, m snapshot.Manifest) {
				rebuilt := b.images()
				rebuilt[0].Content = strings.Repeat("b", 64)
				b.config.Images = func() ([]images.Image, error) { return rebuilt, nil }
			},
			code: 4, says: []string{"debian-13", "is not in the store", "another build"},
		},
		"another emulator": {
			spoil: func(t *testing.T, b *bed, m snapshot.Manifest) { b.Emulator = "fake 2.0.0" },
			code:  4, says: []string{"another platform", "fake 1.0.0", "fake 2.0.0"},
		},
		"a newer format": {
			spoil: func(t *testing.T, b *bed, m snapshot.Manifest) { edit(t, b, `"format": 2`, `"format": 3`) },
			code:  1, says: []string{"format 3", "newer lab"},
		},
		"an unknown member": {
			spoil: func(t *testing.T, b *bed, m snapshot.Manifest) {
				edit(t, b, `"format": 2,`, `"format": 2, "colour": 1,`)
			},
			code: 1, says: []string{"colour"},
		},
		"a path": {
			spoil: func(t *testing.T, b *bed, m snapshot.Manifest) {
				edit(t, b, `"console_log": ""`, `"console_log": "/etc/passwd"`)
			},
			code: 1, says: []string{"names paths"},
		},
		"a way out": {
			spoil: func(t *testing.T, b *bed, m snapshot.Manifest) {
				edit(t, b, `"path": "memory/one"`, `"path": "../../../etc/passwd"`)
			},
			code: 1, says: []string{"is no path below the snapshot"},
		},
		"somebody is at it": {
			spoil: func(t *testing.T, b *bed, m snapshot.Manifest) {
				h, err := b.Hold("a")
				must(t, err)
				t.Cleanup(h.Release)
			},
			code: 2, says: []string{"scenario a is busy"},
		},
		"no memory for a second": {
			spoil:   func(t *testing.T, b *bed, m snapshot.Manifest) { b.MemoryBytes = 100 << 20 },
			options: snapshot.RestoreOptions{Scenario: "a", Snapshot: "first", As: "b"},
			code:    4, says: []string{"not enough memory", "it needs "},
		},
		"no disk space": {
			spoil: func(t *testing.T, b *bed, m snapshot.Manifest) { b.SpaceBytes = 1 << 20 },
			code:  4, says: []string{"not enough disk space"},
		},
		"no disk space for the memory that is copied": {
			spoil: func(t *testing.T, b *bed, m snapshot.Manifest) {
				b.SpaceBytes = 2*64<<20 - 1
				for _, f := range m.Files {
					if strings.HasPrefix(f.Path, "memory/") {
						b.SpaceBytes += f.Bytes
					}
				}
			},
			code: 4, says: []string{"not enough disk space"},
		},
		"no such snapshot": {
			options: snapshot.RestoreOptions{Scenario: "a", Snapshot: "frist"}, code: 2, says: []string{"no snapshot frist", "first"},
		},
		"no name": {
			options: snapshot.RestoreOptions{Scenario: "a", Snapshot: "First"}, code: 2, says: []string{`"First"`},
		},
		"no name for the other": {
			options: snapshot.RestoreOptions{Scenario: "a", Snapshot: "first", As: "Ä"}, code: 2, says: []string{"Ä"},
		},
		"no such machine": {
			options: snapshot.RestoreOptions{Scenario: "a", Snapshot: "first", Machine: "three"}, code: 2, says: []string{"three", "one, two"},
		},
		"one machine, and no world": {
			spoil:   func(t *testing.T, b *bed, m snapshot.Manifest) { b.KillWorlds() },
			options: snapshot.RestoreOptions{Scenario: "a", Snapshot: "first", Machine: "two"}, code: 1, says: []string{"the world's process is gone"},
		},
		"beside itself": {
			options: snapshot.RestoreOptions{Scenario: "a", Snapshot: "first", As: "a"}, code: 2, says: []string{"beside itself"},
		},
		"not root": {
			spoil: func(t *testing.T, b *bed, m snapshot.Manifest) { b.NotRoot = true },
			code:  4, says: []string{"root"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, t.TempDir())
			b.raise(t, "a")
			b.live(t, "a", "then")
			m := b.take(t, "a", "first")
			b.live(t, "a", "later")
			if tt.spoil != nil {
				tt.spoil(t, b, m)
			}
			if tt.options.Scenario == "" {
				tt.options = first
			}
			before := b.Fake.String()
			b.Hook = func(op string, _ bool) error {
				if op != "end daemon" { // it does not while a machine needs it
					t.Errorf("did: %s", op)
				}
				return nil
			}
			_, err := snapshot.New(b.config).Restore(t.Context(), tt.options)
			if code := exitCode(err); code != tt.code {
				t.Errorf("exit code %d, want %d: %v", code, tt.code, err)
			}
			for _, part := range tt.says {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("does not say %q:\n%v", part, err)
				}
			}
			if diff := cmp.Diff(before, b.Fake.String()); diff != "" {
				t.Errorf("the lab machine was changed (-before +after):\n%s", diff)
			}
			b.wantLives(t, "a", "later")
		})
	}
}

// edit changes the manifest of the first snapshot by hand.
func edit(t *testing.T, b *bed, old, new string) {
	t.Helper()
	path := filepath.Join(b.Snapshots.Store().Path("a", "first"), "manifest.json")
	data, err := os.ReadFile(path)
	must(t, err)
	if !strings.Contains(string(data), old) {
		t.Fatalf("no %s in:\n%s", old, data)
	}
	must(t, os.WriteFile(path, []byte(strings.Replace(string(data), old, new, 1)), 0o644))
}

// Too little disk for the memory: refused before anything is paused; nothing is
// listed; the scenario runs on.
func TestCaseL15NoSpaceForMemory(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	b.live(t, "a", "now")
	b.SpaceBytes = 512 << 20
	b.Hook = func(op string, _ bool) error { t.Errorf("did: %s", op); return nil }
	_, err := b.Snapshots.Take(t.Context(), "a", "first", "")
	if exitCode(err) != 4 || !strings.Contains(err.Error(), "not enough disk space for the memory") {
		t.Errorf("exit code %d: %v", exitCode(err), err)
	}
	b.Hook = nil
	b.wantLives(t, "a", "now")
	b.wantNothingHalf(t)
}

func TestTakeRefused(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	b.take(t, "a", "first")
	for name, want := range map[string]string{
		"first": "a snapshot first already", "First": `"First"`, "a-name-of-more-than-thirty-two-bytes": "32 are allowed", "é": "not allowed",
	} {
		_, err := b.Snapshots.Take(t.Context(), "a", name, "")
		if exitCode(err) != 2 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: exit code %d, does not say %q: %v", name, exitCode(err), want, err)
		}
	}
	if _, err := b.Snapshots.Take(t.Context(), "nobody", "", ""); !errors.Is(err, lifecycle.ErrAbsent) {
		t.Errorf("of what is not raised: %v", err)
	}
	if m := b.take(t, "a", ""); m.Name != "s1" {
		t.Errorf("the first without a name is called %q", m.Name)
	}
	if m := b.take(t, "a", ""); m.Name != "s2" {
		t.Errorf("the second without a name is called %q", m.Name)
	}
}

// A machine whose disk was taken away is refused before any machine is paused, and
// the fault holds on; where its power is off there is nothing to be taken away.
func TestTakeWithoutDisk(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	_, err := b.AddFault(t.Context(), "a", fault.Fault{Name: "gone", Kind: fault.DiskDetached, On: []fault.Target{{Kind: fault.Machine, Name: "two"}}})
	must(t, err)
	before := b.Conditions()
	b.Hook = func(op string, _ bool) error { return fmt.Errorf("%s was done", op) }
	_, err = b.Snapshots.Take(t.Context(), "a", "", "")
	b.Hook = nil
	if exitCode(err) != 1 || !strings.Contains(err.Error(), "`lab fault remove a gone` first") {
		t.Errorf("exit code %d, %v", exitCode(err), err)
	}
	if diff := cmp.Diff(before, b.Conditions()); diff != "" {
		t.Errorf("(-before +after)\n%s", diff)
	}
	must(t, b.Cut(t.Context(), "a", "two"))
	b.take(t, "a", "")
}

// hanging is a hypervisor one of whose machines does not stop.
type hanging struct{ machine.Memory }

func (h hanging) PauseAll(ctx context.Context, names []string) (time.Duration, error) {
	for _, name := range names {
		if strings.HasSuffix(name, ".two") {
			<-ctx.Done()
			return 0, fmt.Errorf("pause machine %s: %w", name, context.Cause(ctx))
		}
		if err := h.Pause(ctx, name); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// A machine that hangs at the barrier is named within bounded time, and all run on.
func TestMachineHangsAtBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, t.TempDir())
		b.raise(t, "a")
		b.live(t, "a", "now")
		b.config.Ports.Memory = hanging{b.config.Ports.Memory}
		_, err := snapshot.New(b.config).Take(t.Context(), "a", "first", "")
		if exitCode(err) != 1 || !strings.Contains(err.Error(), "pause machine mesh-a.two: it does not stop within") {
			t.Errorf("exit code %d: %v", exitCode(err), err)
		}
		b.wantLives(t, "a", "now")
		b.wantNothingHalf(t)
	})
}

// wantNothingHalf: no snapshot, nothing of one, no layer that nobody uses, no lock.
func (b *bed) wantNothingHalf(t testing.TB) {
	t.Helper()
	if left, err := filepath.Glob(filepath.Join(b.store, "snapshots", "*")); err != nil || len(left) > 0 {
		t.Errorf("left of snapshots: %v, %v", left, err)
	}
	if diff := cmp.Diff(b.usedLayers(t), b.layerFiles(t)); diff != "" {
		t.Errorf("layers (-used +there):\n%s", diff)
	}
	b.wantNoLocks(t)
}

// Whoever uses a snapshot waits for who has it alone for a while.
func TestUseWaits(t *testing.T) {
	b := begin(t, t.TempDir())
	f, err := os.Open(filepath.Join(b.Snapshots.Store().Path("a", "first"), "manifest.json"))
	must(t, err)
	defer f.Close()
	must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := b.Snapshots.Store().Use(ctx, "a", "first"); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "in use") {
		t.Errorf("it does not wait: %v", err)
	}
	used := make(chan error)
	go func() {
		_, done, err := b.Snapshots.Store().Use(t.Context(), "a", "first")
		if err == nil {
			done()
		}
		used <- err
	}()
	must(t, f.Close())
	must(t, <-used)
}
