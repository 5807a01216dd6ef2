package machinetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"mesh/lab/machine"
)

var _ machine.Memory = (*Hypervisor)(nil)

// What a guest holds in memory.
const (
	heldCount   = "count"   // what the guest of bootsector.Count has come to
	heldCmdline = "cmdline" // what its kernel was booted with
)

// overlayText is what an overlay that a fake can use begins with.
const overlayText = "overlay of "

// Overlay makes a disk over base, as Snapshot wants it.
func Overlay(base, path string) error {
	return os.WriteFile(path, []byte(overlayText+base), 0o644)
}

// Count is what the guest has counted to; a running one counts on. It panics
// where there is no such machine.
func (h *Hypervisor) Count(name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.machines[name]
	if m == nil {
		panic("machinetest: Count of " + name + ", which is absent")
	}
	n, _ := strconv.Atoi(m.held[heldCount])
	if m.state == machine.Running {
		n++
		m.held[heldCount] = strconv.Itoa(n)
	}
	return n
}

// Platform is machine.Memory's.
func (h *Hypervisor) Platform(ctx context.Context, a machine.Accelerator) (machine.Platform, error) {
	if err := h.enter(ctx, "platform", string(a)); err != nil {
		return machine.Platform{}, err
	}
	return FakePlatform(a), nil
}

// Pause is machine.Memory's.
func (h *Hypervisor) Pause(ctx context.Context, name string) error {
	return h.on(ctx, "pause", name, func(m *vm) error {
		m.state = machine.Paused
		return nil
	})
}

// PauseAll is machine.Memory's.
func (h *Hypervisor) PauseAll(ctx context.Context, names []string) (time.Duration, error) {
	var problems []error
	for _, name := range names {
		problems = append(problems, h.Pause(ctx, name))
	}
	return time.Millisecond, errors.Join(problems...)
}

// Save is machine.Memory's.
func (h *Hypervisor) Save(ctx context.Context, name, memory string) error {
	return h.on(ctx, "save", name, func(m *vm) error {
		if err := m.write(memory); err != nil {
			return err
		}
		h.endLocked(name, machine.Death{Cause: machine.Saved})
		return nil
	})
}

// Snapshot is machine.Memory's. The disk must be one of Overlay's.
func (h *Hypervisor) Snapshot(ctx context.Context, name, memory, disk string) error {
	return h.on(ctx, "snapshot", name, func(m *vm) error {
		if m.state != machine.Paused {
			return fmt.Errorf("it is %s; pause it first", m.state)
		}
		text, err := os.ReadFile(disk)
		if err != nil {
			return err
		}
		if base, is := strings.CutPrefix(string(text), overlayText); !is || base != m.spec.Disk {
			return fmt.Errorf("disk %s does not stand on %s", disk, m.spec.Disk)
		}
		if err := m.write(memory); err != nil {
			return err
		}
		m.spec.Disk = disk
		return nil
	})
}

// Disk is machine.Memory's.
func (h *Hypervisor) Disk(ctx context.Context, name string) (disk string, err error) {
	err = h.on(ctx, "ask the disk of", name, func(m *vm) error {
		disk = m.spec.Disk
		return nil
	})
	return disk, err
}

// write makes the file of the machine's memory.
func (m *vm) write(memory string) error {
	if m.detached {
		return errors.New("its disk is detached; attach it first")
	}
	i := Image{Platform: FakePlatform(m.spec.Accelerator), Machine: m.spec, Held: m.held}
	for _, mac := range slices.Sorted(maps.Keys(m.pulled)) {
		if m.pulled[mac] {
			i.Pulled = append(i.Pulled, mac)
		}
	}
	return i.Write(memory)
}

// Restore is machine.Memory's.
func (h *Hypervisor) Restore(ctx context.Context, spec machine.Spec, memory string) error {
	if err := h.enter(ctx, "restore", spec.Name); err != nil {
		return err
	}
	image, err := OpenImage(memory)
	if err == nil {
		err = spec.Check()
	}
	if err == nil {
		err = image.Fits(FakePlatform(spec.Accelerator), spec)
	}
	if err == nil {
		err = h.place(spec, image.Held, image.Pulled...)
	}
	if err != nil {
		return fmt.Errorf("restore %s: %w", spec.Name, err)
	}
	return nil
}

// place makes a machine, paused, whose guest holds that, and whose NICs have a
// cable but for those pulled.
func (h *Hypervisor) place(spec machine.Spec, held map[string]string, pulled ...string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.machines {
		if err := clash(spec, m.spec); err != nil {
			return err
		}
	}
	spec.NICs = slices.Clone(spec.NICs)
	m := &vm{
		spec: spec, state: machine.Paused, held: maps.Clone(held),
		pulled: map[string]bool{}, ended: make(chan struct{}),
	}
	for _, mac := range pulled {
		m.pulled[mac] = true
	}
	h.machines[spec.Name] = m
	delete(h.dead, spec.Name)
	return nil
}

// Plug is machine.Memory's.
func (h *Hypervisor) Plug(ctx context.Context, name string, nic machine.NIC) error {
	return h.on(ctx, "plug", name, func(m *vm) error {
		more := m.spec
		more.NICs = append(slices.Clone(more.NICs), nic)
		if err := more.Check(); err != nil {
			return err
		}
		for other, o := range h.machines {
			for _, n := range o.spec.NICs {
				if n.Tap == nic.Tap {
					return fmt.Errorf("tap %s is machine %s's", nic.Tap, other)
				}
			}
		}
		m.spec = more
		return nil
	})
}

// on does something to one machine that exists.
func (h *Hypervisor) on(ctx context.Context, method, name string, do func(m *vm) error) error {
	if err := h.enter(ctx, method, name); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.machines[name]
	err := machine.ErrAbsent
	if m != nil {
		err = do(m)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, name, err)
	}
	return nil
}
