package lifecycletest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"path/filepath"
	"slices"
	"time"

	"mesh/lab/machine"
	"mesh/lab/machine/machinetest"
)

var (
	_ machine.Memory = hypervisor{}
	_ machine.Abuse  = hypervisor{}
)

func (h hypervisor) Platform(_ context.Context, a machine.Accelerator) (machine.Platform, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.has("daemon", "lab") {
		return machine.Platform{}, errors.New("no daemon")
	}
	return h.platform(a), nil
}

func (h hypervisor) platform(a machine.Accelerator) machine.Platform {
	p := machinetest.FakePlatform(a)
	if h.Emulator != "" {
		p.Emulator = h.Emulator
	}
	return p
}

func (h hypervisor) Pause(ctx context.Context, name string) error {
	return h.on(ctx, "pause", name, func(d *domain) error {
		d.State = machine.Paused
		return nil
	})
}

func (h hypervisor) PauseAll(ctx context.Context, names []string) (time.Duration, error) {
	var problems []error
	for _, name := range names {
		if err := h.Pause(ctx, name); err != nil {
			problems = append(problems, fmt.Errorf("pause machine %s: %w", name, err))
		}
	}
	return time.Millisecond, errors.Join(problems...)
}

func (h hypervisor) Save(ctx context.Context, name, memory string) error {
	return h.on(ctx, "save", name, func(d *domain) error {
		if err := h.write(*d, memory); err != nil {
			return err
		}
		return errors.Join(h.dropDomain(*d), h.put("dead", name, machine.Death{Cause: machine.Saved}))
	})
}

func (h hypervisor) Snapshot(ctx context.Context, name, memory, disk string) error {
	return h.on(ctx, "snapshot", name, func(d *domain) error {
		layer := readLayer(disk)
		switch {
		case d.State != machine.Paused:
			return fmt.Errorf("it is %s; pause it first", d.State)
		case layer == nil:
			return fmt.Errorf("%s is no disk", disk)
		case filepath.Join(filepath.Dir(disk), string(layer[baseKey])) != d.Spec.Disk:
			return fmt.Errorf("disk %s does not stand on %s", disk, d.Spec.Disk)
		}
		if err := h.failing(disk); err != nil {
			return err
		}
		if err := h.write(*d, memory); err != nil {
			return err
		}
		d.Spec.Disk = disk
		return nil
	})
}

func (h hypervisor) Disk(_ context.Context, name string) (string, error) {
	d, err := h.living(name)
	return d.Spec.Disk, err
}

// write makes the file of a machine's memory.
func (h hypervisor) write(d domain, memory string) error {
	if !d.Booted {
		return errors.New("its guest has never run, so there is nothing to save")
	}
	if d.Lost {
		return errors.New("input/output error")
	}
	if d.Detached {
		return errors.New("its disk is detached; attach it first")
	}
	return machinetest.Image{
		Platform: h.platform(d.Spec.Accelerator), Machine: d.Spec, Held: d.Held, Pulled: d.Pulled,
	}.Write(memory)
}

func (h hypervisor) Restore(ctx context.Context, s machine.Spec, memory string) error {
	return h.change(ctx, "restore "+s.Name, func() error {
		i, err := machinetest.OpenImage(memory)
		if err != nil {
			return err
		}
		if err := i.Fits(h.platform(s.Accelerator), s); err != nil {
			return err
		}
		if err := h.place(s, i.Held); err != nil {
			return err
		}
		var d domain
		if err := h.get("domain", s.Name, &d); err != nil {
			return err
		}
		d.Booted, d.Pulled = true, i.Pulled
		return h.put("domain", s.Name, d)
	})
}

func (h hypervisor) Plug(ctx context.Context, name string, nic machine.NIC) error {
	return h.on(ctx, "plug", name, func(d *domain) error {
		d.Spec.NICs = append(d.Spec.NICs, nic)
		if err := d.Spec.Check(); err != nil {
			return err
		}
		if h.has("link", nic.Tap) {
			return fmt.Errorf("link %s exists", nic.Tap)
		}
		return h.put("link", nic.Tap, "")
	})
}

func (h hypervisor) Reset(ctx context.Context, name string) error {
	return h.on(ctx, "reset", name, func(d *domain) error {
		d.Held = map[string]string{heldCmdline: d.Spec.Cmdline}
		d.Booted = false
		d.Resets++
		if d.State != machine.Running {
			return nil
		}
		return d.boot()
	})
}

func (h hypervisor) Link(ctx context.Context, name, mac string, up bool) error {
	return h.on(ctx, "link", name, func(d *domain) error {
		if !slices.ContainsFunc(d.Spec.NICs, func(n machine.NIC) bool { return n.MAC == mac }) {
			return fmt.Errorf("it has no NIC %s", mac)
		}
		d.Pulled = slices.DeleteFunc(d.Pulled, func(m string) bool { return m == mac })
		if !up {
			d.Pulled = append(d.Pulled, mac)
		}
		return nil
	})
}

func (h hypervisor) Throttle(ctx context.Context, name string, t machine.Throttle) error {
	return h.on(ctx, "throttle", name, func(d *domain) error {
		d.Throttle = t
		return t.Check() // an error keeps what was
	})
}

func (h hypervisor) Detach(ctx context.Context, name string) error {
	return h.on(ctx, "detach", name, func(d *domain) error {
		if d.State != machine.Running {
			return errors.New("its guest does not run, so it cannot let go")
		}
		d.Detached = true
		return nil
	})
}

func (h hypervisor) Attach(ctx context.Context, name string) error {
	return h.on(ctx, "attach", name, func(d *domain) error {
		d.Detached = false
		return nil
	})
}

func (h hypervisor) Screenshot(_ context.Context, name string) ([]byte, error) {
	d, err := h.living(name)
	if err != nil {
		return nil, err
	}
	if !d.Spec.Display {
		return nil, errors.New("it has no display")
	}
	var b bytes.Buffer
	err = png.Encode(&b, image.NewGray(image.Rect(0, 0, 1, 1)))
	return b.Bytes(), err
}

func (h hypervisor) Load(_ context.Context, name string) (machine.Load, error) {
	d, err := h.living(name)
	return machine.Load{ResidentBytes: d.Spec.MemoryBytes}, err
}

// living is a machine that exists.
func (h hypervisor) living(name string) (d domain, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.get("domain", name, &d) != nil {
		return d, machine.ErrAbsent
	}
	return d, nil
}
