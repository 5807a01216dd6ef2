package machinetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"slices"

	"mesh/lab/machine"
)

var _ machine.Abuse = (*Hypervisor)(nil)

// Reset is machine.Abuse's. The guest forgets what it held, and its agent.
func (h *Hypervisor) Reset(ctx context.Context, name string) error {
	return h.on(ctx, "reset", name, func(m *vm) error {
		m.held = map[string]string{heldCmdline: m.spec.Cmdline}
		m.agent = nil
		h.wakeLocked(m)
		return nil
	})
}

// Link is machine.Abuse's.
func (h *Hypervisor) Link(ctx context.Context, name, mac string, up bool) error {
	return h.on(ctx, "link", name, func(m *vm) error {
		if !slices.ContainsFunc(m.spec.NICs, func(n machine.NIC) bool { return n.MAC == mac }) {
			return fmt.Errorf("it has no NIC %s", mac)
		}
		m.pulled[mac] = !up
		return nil
	})
}

// Throttle is machine.Abuse's.
func (h *Hypervisor) Throttle(ctx context.Context, name string, t machine.Throttle) error {
	return h.on(ctx, "throttle", name, func(m *vm) error {
		if err := t.Check(); err != nil {
			return err
		}
		m.throttle = t
		return nil
	})
}

// Detach is machine.Abuse's. The guest lets go at once, if it runs at all.
func (h *Hypervisor) Detach(ctx context.Context, name string) error {
	return h.on(ctx, "detach", name, func(m *vm) error {
		if m.state != machine.Running {
			return errors.New("its guest does not run, so it cannot let go")
		}
		m.detached = true
		return nil
	})
}

// Attach is machine.Abuse's.
func (h *Hypervisor) Attach(ctx context.Context, name string) error {
	return h.on(ctx, "attach", name, func(m *vm) error {
		m.detached = false
		return nil
	})
}

// Screenshot is machine.Abuse's: a single dark point.
func (h *Hypervisor) Screenshot(ctx context.Context, name string) (shot []byte, err error) {
	err = h.on(ctx, "screenshot", name, func(m *vm) error {
		if !m.spec.Display {
			return errors.New("it has no display")
		}
		var b bytes.Buffer
		err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 1, 1)))
		shot = b.Bytes()
		return err
	})
	return shot, err
}

// Load is machine.Abuse's. Machines of this world use their whole memory and
// nothing else.
func (h *Hypervisor) Load(ctx context.Context, name string) (l machine.Load, err error) {
	err = h.on(ctx, "load", name, func(m *vm) error {
		l.ResidentBytes = m.spec.MemoryBytes
		return nil
	})
	return l, err
}
