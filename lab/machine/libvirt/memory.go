package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	rpc "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"mesh/lab/machine"
)

var _ machine.Memory = (*Hypervisor)(nil)

// Platform is machine.Memory's.
func (h *Hypervisor) Platform(ctx context.Context, a machine.Accelerator) (p machine.Platform, err error) {
	err = h.call(ctx, "ask what machines are made of", func(c *rpc.Libvirt) error {
		p, err = platform(c, a, newest)
		return err
	})
	return p, err
}

// platform is that of machines of that type.
func platform(c *rpc.Libvirt, a machine.Accelerator, machineType string) (machine.Platform, error) {
	host, err := probe(c, a, machineType)
	if err != nil {
		return machine.Platform{}, err
	}
	version, err := c.ConnectGetVersion()
	if err != nil {
		return machine.Platform{}, fmt.Errorf("ask QEMU's version: %w", err)
	}
	return machine.Platform{Emulator: "qemu " + dotted(version), MachineType: host.machine, CPU: cpuModel, Accelerator: a}, nil
}

// Pause is machine.Memory's.
func (h *Hypervisor) Pause(ctx context.Context, name string) error {
	return h.with(ctx, "pause machine "+name, name, func(c *rpc.Libvirt, d rpc.Domain) error {
		state, _, err := c.DomainGetState(d, 0)
		if err != nil || rpc.DomainState(state) == rpc.DomainPaused {
			return err
		}
		return c.DomainSuspend(d)
	})
}

// Save is machine.Memory's.
func (h *Hypervisor) Save(ctx context.Context, name, memory string) error {
	return h.with(ctx, "save machine "+name, name, func(c *rpc.Libvirt, d rpc.Domain) error {
		return h.writeMemory(c, d, memory, func(part string) error {
			return c.DomainSaveFlags(d, part, nil, 0)
		})
	})
}

// writeMemory lets do write a memory image, seals it and gives it its name.
func (h *Hypervisor) writeMemory(c *rpc.Libvirt, d rpc.Domain, memory string, do func(part string) error) error {
	if _, err := os.Lstat(memory); err == nil {
		return fmt.Errorf("%s exists", memory)
	}
	domain, err := describe(c, d)
	if err != nil {
		return err
	}
	spec, err := specOf(domain)
	if err != nil {
		return err
	}
	p, err := platform(c, spec.Accelerator, domain.OS.Type.Machine)
	if err != nil {
		return err
	}
	part := memory + ".part"
	if err := do(part); err != nil {
		_ = os.Remove(part)
		return err
	}
	f, err := os.OpenFile(part, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = seal{Platform: p}.add(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(part, memory)
}

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

// Snapshot is machine.Memory's.
func (h *Hypervisor) Snapshot(ctx context.Context, name, memory, disk string) error {
	return h.with(ctx, "snapshot machine "+name, name, func(c *rpc.Libvirt, d rpc.Domain) error {
		chain, err := backingChain(disk)
		if err != nil {
			return err
		}
		domain, err := describe(c, d)
		if err != nil {
			return err
		}
		if now := diskOf(domain); len(chain) == 0 || chain[0] != now {
			return fmt.Errorf("disk %s does not stand on %s, which the machine has now", disk, now)
		}
		return h.writeMemory(c, d, memory, func(part string) error {
			text, err := snapshotXML(part, disk)
			if err != nil {
				return err
			}
			_, err = c.DomainSnapshotCreateXML(d, text, uint32(rpc.DomainSnapshotCreateNoMetadata|rpc.DomainSnapshotCreateReuseExt))
			return err
		})
	})
}

func diskOf(d *libvirtxml.Domain) string {
	if len(d.Devices.Disks) == 1 && d.Devices.Disks[0].Source != nil && d.Devices.Disks[0].Source.File != nil {
		return d.Devices.Disks[0].Source.File.File
	}
	return ""
}

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

// Plug is machine.Memory's.
func (h *Hypervisor) Plug(ctx context.Context, name string, nic machine.NIC) error {
	return h.with(ctx, "plug a NIC into machine "+name, name, func(c *rpc.Libvirt, d rpc.Domain) error {
		n := networkInterface(nic)
		text, err := n.Marshal()
		if err != nil {
			return err
		}
		return c.DomainAttachDeviceFlags(d, text, uint32(rpc.DomainDeviceModifyLive))
	})
}

// Restore is machine.Memory's.
func (h *Hypervisor) Restore(ctx context.Context, spec machine.Spec, memory string) error {
	what := "restore machine " + spec.Name
	chain, err := checkFiles(spec)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	f, err := os.Open(memory)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer f.Close()
	err = h.call(ctx, what, func(c *rpc.Libvirt) error {
		image, sealed, err := openMemory(f, spec)
		if err != nil {
			return fmt.Errorf("%s: %w", memory, err)
		}
		host, err := probe(c, spec.Accelerator, sealed.Platform.MachineType)
		if err != nil {
			return err
		}
		host.backing, host.genid = chain, newUUID()
		domain, err := parseDomain(image.xml)
		if err != nil {
			return err
		}
		become(domain, spec, host)
		if image.xml, err = domain.Marshal(); err != nil {
			return err
		}
		file := spec.ConsoleLog + ".memory" // a disk's directory may hold nothing but disks
		defer os.Remove(file)
		if err := writeClone(file, image, f, sealed.Bytes); err != nil {
			return err
		}
		return c.DomainRestoreFlags(file, nil, uint32(rpc.DomainSavePaused))
	})
	if err == nil {
		return nil
	}
	h.sweep(ctx, spec)
	return explained(err, logFile(spec.Name), stillborn(ctx, spec.Name))
}

// openMemory reads what stands before and after the state of an image, and
// checks it against the spec.
func openMemory(f *os.File, spec machine.Spec) (saveImage, seal, error) {
	info, err := f.Stat()
	if err != nil {
		return saveImage{}, seal{}, err
	}
	image, err := readSaveImage(f)
	if err != nil {
		return image, seal{}, err
	}
	sealed, err := readSeal(f, info.Size())
	if err != nil {
		return image, sealed, err
	}
	d, err := parseDomain(image.xml)
	if err != nil {
		return image, sealed, err
	}
	of, err := specOf(d)
	if err != nil {
		return image, sealed, err
	}
	return image, sealed, spec.Fits(of)
}

// writeClone writes image with the state of from, which ends at end.
func writeClone(file string, image saveImage, from *os.File, end int64) error {
	to, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = to.Write(image.header())
	if err == nil {
		_, err = from.Seek(image.state, io.SeekStart)
	}
	if err == nil {
		_, err = io.CopyN(to, from, end-image.state)
	}
	return errors.Join(err, to.Close())
}

var _ = strings.TrimSpace
