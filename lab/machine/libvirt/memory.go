package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	rpc "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"mesh/lab/machine"
)

var _ machine.Memory = (*Hypervisor)(nil)

// partSuffix is that of a memory image that is being written. One whose writer
// was killed stays; the next attempt at the same image replaces it.
const partSuffix = ".part"

// memoryTime bounds what writes or reads a whole memory: gigabytes, on a machine
// that has much else to do.
const memoryTime = 10 * time.Minute

// Platform is machine.Memory's.
func (h *Hypervisor) Platform(ctx context.Context, a machine.Accelerator) (p machine.Platform, err error) {
	err = h.call(ctx, "ask what machines are made of", func(c *rpc.Libvirt) error {
		_, p, err = platform(c, a, newest)
		return err
	})
	return p, err
}

// platform is that of machines of a type, with what they are made from.
func platform(c *rpc.Libvirt, a machine.Accelerator, machineType string) (host, machine.Platform, error) {
	h, err := probe(c, a, machineType)
	if err != nil {
		return h, machine.Platform{}, err
	}
	version, err := c.ConnectGetVersion()
	if err != nil {
		return h, machine.Platform{}, fmt.Errorf("ask QEMU's version: %w", err)
	}
	return h, machine.Platform{Emulator: emulatorPrefix + dotted(version), MachineType: h.machine, CPU: cpuModel, Accelerator: a}, nil
}

// Pause is machine.Memory's.
func (h *Hypervisor) Pause(ctx context.Context, name string) error {
	return h.with(ctx, "pause machine "+name, name, func(c *rpc.Libvirt, d rpc.Domain) error {
		return c.DomainSuspend(d) // leaves a paused one alone
	})
}

// Save is machine.Memory's.
func (h *Hypervisor) Save(ctx context.Context, name, memory string) error {
	return h.writeMemory(ctx, "save machine "+name, name, memory, func(c *rpc.Libvirt, d rpc.Domain, _ *libvirtxml.Domain) error {
		return c.DomainSaveFlags(d, memory+partSuffix, nil, 0)
	})
}

// Snapshot is machine.Memory's.
func (h *Hypervisor) Snapshot(ctx context.Context, name, memory, disk string) error {
	return h.writeMemory(ctx, "snapshot machine "+name, name, memory, func(c *rpc.Libvirt, d rpc.Domain, now *libvirtxml.Domain) error {
		state, _, err := c.DomainGetState(d, 0)
		if err != nil {
			return err
		}
		if rpc.DomainState(state) != rpc.DomainPaused {
			return errors.New("it runs; pause it first")
		}
		chain, err := backingChain(disk)
		if err != nil {
			return err
		}
		if old := now.Devices.Disks[0].Source.File.File; len(chain) == 0 || chain[0] != old {
			return fmt.Errorf("disk %s does not stand on %s, which the machine has now", disk, old)
		}
		text, err := snapshotXML(memory+partSuffix, disk)
		if err != nil {
			return err
		}
		_, err = c.DomainSnapshotCreateXML(d, text, uint32(rpc.DomainSnapshotCreateNoMetadata|rpc.DomainSnapshotCreateReuseExt))
		return err
	})
}

// snapshotXML asks for a snapshot of memory and disk at once.
func snapshotXML(memory, disk string) (string, error) {
	s := libvirtxml.DomainSnapshot{
		Memory: &libvirtxml.DomainSnapshotMemory{Snapshot: "external", File: memory},
		Disks: &libvirtxml.DomainSnapshotDisks{Disks: []libvirtxml.DomainSnapshotDisk{{
			Name: diskTarget, Snapshot: "external",
			Driver: &libvirtxml.DomainDiskDriver{Type: "qcow2"},
			Source: &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: disk}},
		}}},
	}
	return s.Marshal()
}

// writeMemory lets write make the part of a memory image, seals it and gives it
// its name. When ctx ends while it is written, writing is ended.
func (h *Hypervisor) writeMemory(ctx context.Context, what, name, memory string, write func(c *rpc.Libvirt, d rpc.Domain, now *libvirtxml.Domain) error) error {
	if _, err := os.Lstat(memory); err == nil {
		return fmt.Errorf("%s: %s exists", what, memory)
	}
	ctx, cancel := context.WithTimeout(ctx, memoryTime)
	defer cancel()
	part := memory + partSuffix
	var sealed seal
	err := h.with(ctx, what, name, func(c *rpc.Libvirt, d rpc.Domain) error {
		now, err := describe(c, d)
		if err != nil {
			return err
		}
		spec, err := specOf(now)
		if errors.Is(err, errNoDisk) {
			return errors.New("its disk is detached; attach it first")
		}
		if err != nil {
			return err
		}
		if _, sealed.Platform, err = platform(c, spec.Accelerator, now.OS.Type.Machine); err != nil {
			return err
		}
		return write(c, d, now)
	})
	if err != nil && ctx.Err() != nil {
		h.abort(ctx, name)
	}
	if err == nil {
		err = publish(sealed, part, memory)
		if err != nil {
			err = fmt.Errorf("%s: %w", what, err)
		}
	}
	if err != nil {
		_ = os.Remove(part)
	}
	return err
}

// abort ends the writing of a memory image whose caller gave up, so that the
// machine is as it was. It waits for that.
func (h *Hypervisor) abort(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepTime)
	defer cancel()
	_ = h.with(ctx, "", name, func(c *rpc.Libvirt, d rpc.Domain) error {
		_ = c.DomainAbortJob(d) // fails where it has come to its end
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			job, _, _, _, _, _, _, _, _, _, _, _, err := c.DomainGetJobInfo(d)
			if err != nil || rpc.DomainJobType(job) == rpc.DomainJobNone {
				return err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}

// publish seals what libvirt has finished and gives it its name.
func publish(s seal, part, memory string) error {
	f, err := os.OpenFile(part, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(s.add(f), f.Close()); err != nil {
		return err
	}
	return os.Rename(part, memory)
}

// describe reads a machine's document.
func describe(c *rpc.Libvirt, d rpc.Domain) (*libvirtxml.Domain, error) {
	text, err := c.DomainGetXMLDesc(d, 0)
	if err != nil {
		return nil, err
	}
	var domain libvirtxml.Domain
	if err := domain.Unmarshal(text); err != nil {
		return nil, fmt.Errorf("read its description: %w", err)
	}
	return &domain, nil
}

// Plug is machine.Memory's.
func (h *Hypervisor) Plug(ctx context.Context, name string, nic machine.NIC) error {
	what := "plug a NIC into machine " + name
	if err := nic.Check(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return h.with(ctx, what, name, func(c *rpc.Libvirt, d rpc.Domain) error {
		now, err := describe(c, d)
		if err != nil {
			return err
		}
		for _, n := range now.Devices.Interfaces {
			if n.MAC != nil && n.MAC.Address == nic.MAC {
				return fmt.Errorf("it has a NIC %s", nic.MAC)
			}
		}
		n := networkInterface(nic)
		text, err := n.Marshal()
		if err != nil {
			return err
		}
		return c.DomainAttachDeviceFlags(d, text, uint32(rpc.DomainDeviceModifyLive))
	})
}
