package libvirt

import (
	"context"
	"errors"
	"fmt"

	rpc "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"mesh/lab/machine"
)

var _ machine.Abuse = (*Hypervisor)(nil)

// Reset is machine.Abuse's.
func (h *Hypervisor) Reset(ctx context.Context, name string) error {
	return h.with(ctx, "reset machine "+name, name, func(c *rpc.Libvirt, d rpc.Domain) error {
		return c.DomainReset(d, 0)
	})
}

// Link is machine.Abuse's.
func (h *Hypervisor) Link(ctx context.Context, name, mac string, up bool) error {
	state := "down"
	if up {
		state = "up"
	}
	return h.with(ctx, "set the link of machine "+name+" "+state, name, func(c *rpc.Libvirt, d rpc.Domain) error {
		domain, err := describe(c, d)
		if err != nil {
			return err
		}
		for _, n := range domain.Devices.Interfaces {
			if n.MAC == nil || n.MAC.Address != mac {
				continue
			}
			n.Link = &libvirtxml.DomainInterfaceLink{State: state}
			text, err := n.Marshal()
			if err != nil {
				return err
			}
			return c.DomainUpdateDeviceFlags(d, text, rpc.DomainDeviceModifyLive)
		}
		return fmt.Errorf("it has no NIC %s", mac)
	})
}

// Throttle is machine.Abuse's.
func (h *Hypervisor) Throttle(ctx context.Context, name string, t machine.Throttle) error {
	if err := t.Check(); err != nil {
		return fmt.Errorf("throttle the disk of machine %s: %w", name, err)
	}
	return h.with(ctx, "throttle the disk of machine "+name, name, func(c *rpc.Libvirt, d rpc.Domain) error {
		return c.DomainSetBlockIOTune(d, diskTarget, []rpc.TypedParam{
			{Field: "total_bytes_sec", Value: *rpc.NewTypedParamValueUllong(uint64(t.BytesPerSecond))},
			{Field: "total_iops_sec", Value: *rpc.NewTypedParamValueUllong(uint64(t.OperationsPerSecond))},
		}, uint32(rpc.DomainDeviceModifyLive))
	})
}

// Detach is machine.Abuse's.
func (h *Hypervisor) Detach(ctx context.Context, name string) error {
	return errors.New("not yet")
}

// Attach is machine.Abuse's.
func (h *Hypervisor) Attach(ctx context.Context, name string) error {
	return errors.New("not yet")
}

// Screenshot is machine.Abuse's.
func (h *Hypervisor) Screenshot(ctx context.Context, name string) (shot []byte, err error) {
	return nil, errors.New("not yet")
}

// Load is machine.Abuse's.
func (h *Hypervisor) Load(ctx context.Context, name string) (l machine.Load, err error) {
	return machine.Load{}, errors.New("not yet")
}
