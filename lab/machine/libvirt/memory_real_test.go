package libvirt_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"mesh/lab/machine"
	"mesh/lab/machine/bootsector"
	"mesh/lab/machine/libvirt"
	"mesh/lab/machine/machinetest"
)

// counting makes a machine that counts, of so much memory, and waits until it has
// begun to.
func counting(t *testing.T, k machinetest.Kit, name string, memory int64) machine.Spec {
	t.Helper()
	s := k.Spec(t, name, bootsector.Count())
	s.MemoryBytes = memory
	if err := errors.Join(k.Hypervisor.Create(t.Context(), s), k.Hypervisor.Resume(t.Context(), s.Name)); err != nil {
		t.Fatal(err)
	}
	awaitCount(t, s, 0)
	return s
}

func awaitCount(t *testing.T, s machine.Spec, beyond int) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(30 * time.Second); readCount(t, s) <= beyond; {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s has not counted beyond %d", s.Name, beyond)
		}
	}
}

// A state that is whole and makes no sense is QEMU's to refuse.
func TestAStateThatQEMUCannotLoadIsForeign(t *testing.T) {
	t.Parallel()
	k := real(t)
	s, memory := counting(t, k, "odd", 16<<20), filepath.Join(k.Dir, "odd.memory")
	if err := k.Hypervisor.Save(t.Context(), s.Name, memory); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(memory, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, state, err := libvirt.ReadSaveImage(f)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("what is this"), state); err != nil {
		t.Fatal(err)
	}
	if err := k.Hypervisor.Restore(t.Context(), s, memory); !errors.Is(err, machine.ErrForeign) {
		t.Errorf("%v, want ErrForeign", err)
	}
	if _, err := k.Hypervisor.State(t.Context(), s.Name); !errors.Is(err, machine.ErrAbsent) {
		t.Errorf("its state: %v, want ErrAbsent", err)
	}
}

func TestASaveThatIsGivenUpLeavesTheMachine(t *testing.T) {
	t.Parallel()
	k := real(t)
	s, memory := counting(t, k, "spared", 3<<30), filepath.Join(k.Dir, "spared.memory")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // gives up once the save has begun
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			if _, err := os.Stat(memory + ".part"); err == nil {
				cancel()
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	if err := k.Hypervisor.Save(ctx, s.Name, memory); !errors.Is(err, context.Canceled) {
		t.Errorf("save: %v, want context.Canceled", err)
	}
	if state, err := k.Hypervisor.State(t.Context(), s.Name); err != nil || state != machine.Running {
		t.Fatalf("it is %q, %v; want running", state, err)
	}
	awaitCount(t, s, readCount(t, s))
	if _, err := os.Stat(memory); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is an image: %v", err)
	}
}

func TestARestoreThatIsGivenUpLeavesNothing(t *testing.T) {
	t.Parallel()
	k := real(t)
	s, memory := counting(t, k, "early", 16<<20), filepath.Join(k.Dir, "early.memory")
	if err := k.Hypervisor.Save(t.Context(), s.Name, memory); err != nil {
		t.Fatal(err)
	}
	for _, after := range []time.Duration{time.Millisecond, 30 * time.Millisecond, 80 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		err := k.Hypervisor.Restore(ctx, s, memory)
		cancel()
		if err == nil { // it was quicker
			err = k.Hypervisor.Destroy(t.Context(), s.Name)
		} else if errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
		if err != nil {
			t.Errorf("after %v: %v", after, err)
		}
		if _, err := k.Hypervisor.State(t.Context(), s.Name); !errors.Is(err, machine.ErrAbsent) {
			t.Errorf("after %v: its state: %v, want ErrAbsent", after, err)
		}
	}
	if err := k.Hypervisor.Restore(t.Context(), s, memory); err != nil {
		t.Errorf("in the end: %v", err)
	}
}
