package libvirt

import (
	"context"
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
	what := fmt.Sprintf("set link %s of machine %s %s", mac, name, state)
	return h.with(ctx, what, name, func(c *rpc.Libvirt, d rpc.Domain) error {
		now, err := describe(c, d)
		if err != nil {
			return err
		}
		for _, n := range now.Devices.Interfaces {
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
	what := "throttle the disk of machine " + name
	if err := t.Check(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return h.with(ctx, what, name, func(c *rpc.Libvirt, d rpc.Domain) error {
		return c.DomainSetBlockIOTune(d, diskTarget, []rpc.TypedParam{
			{Field: "total_bytes_sec", Value: *rpc.NewTypedParamValueUllong(uint64(t.BytesPerSecond))},
			{Field: "total_iops_sec", Value: *rpc.NewTypedParamValueUllong(uint64(t.OperationsPerSecond))},
		}, uint32(rpc.DomainAffectLive))
	})
}

// Load is machine.Abuse's.
func (h *Hypervisor) Load(ctx context.Context, name string) (l machine.Load, err error) {
	const wanted = rpc.DomainStatsCPUTotal | rpc.DomainStatsBalloon | rpc.DomainStatsBlock
	err = h.with(ctx, "ask what machine "+name+" uses", name, func(c *rpc.Libvirt, d rpc.Domain) error {
		records, err := c.ConnectGetAllDomainStats([]rpc.Domain{d}, uint32(wanted), 0)
		if err != nil {
			return err
		}
		for _, r := range records {
			l = loadOf(r.Params)
		}
		return nil
	})
	return l, err
}

// loadOf picks out of libvirt's statistics; what is not there is zero.
// https://libvirt.org/html/libvirt-libvirt-domain.html#virConnectGetAllDomainStats
func loadOf(params []rpc.TypedParam) (l machine.Load) {
	for _, p := range params {
		value, _ := p.Value.I.(uint64)
		switch p.Field {
		case "cpu.time":
			l.CPUSeconds = float64(value) / 1e9
		case "balloon.rss":
			l.ResidentBytes = int64(value) << 10
		case "block.0.rd.bytes":
			l.ReadBytes = int64(value)
		case "block.0.wr.bytes":
			l.WrittenBytes = int64(value)
		}
	}
	return l
}
