package libvirt

import (
	"context"
	"encoding/xml"
	"errors"
	"time"

	rpc "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"
)

// detachSpace is the namespace of the element in a domain's metadata that keeps
// the document of a disk while it is detached.
const detachSpace = "urn:mesh:lab:1:detached"

// kept is that element.
type kept struct {
	XMLName xml.Name `xml:"detached"`
	Disk    string   `xml:",chardata"`
}

// Detach is machine.Abuse's. A guest that was asked and has not let go may do so
// any time later, also after Detach has given up.
func (h *Hypervisor) Detach(ctx context.Context, name string) error {
	return h.with(ctx, "detach the disk of machine "+name, name, func(c *rpc.Libvirt, d rpc.Domain) error {
		now, err := describe(c, d)
		if err != nil || len(now.Devices.Disks) == 0 {
			return err
		}
		asked, err := detached(c, d)
		if err != nil {
			return err
		}
		if asked == "" {
			if err := askToDetach(c, d, now.Devices.Disks[0]); err != nil {
				return err
			}
		}
		return awaitDetached(ctx, c, d)
	})
}

// askToDetach keeps the disk's document, and asks the guest.
func askToDetach(c *rpc.Libvirt, d rpc.Domain, disk libvirtxml.DomainDisk) error {
	text, err := disk.Marshal()
	if err != nil {
		return err
	}
	element, err := xml.Marshal(kept{Disk: text})
	if err != nil {
		return err
	}
	if err := keep(c, d, rpc.OptString{string(element)}); err != nil {
		return err
	}
	if err := c.DomainDetachDeviceFlags(d, text, uint32(rpc.DomainDeviceModifyLive)); err != nil {
		return errors.Join(err, keep(c, d, nil))
	}
	return nil
}

// awaitDetached returns when the disk is gone. Libvirt itself waits for a few
// seconds only, and then says that all went well.
func awaitDetached(ctx context.Context, c *rpc.Libvirt, d rpc.Domain) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		now, err := describe(c, d)
		if err != nil || len(now.Devices.Disks) == 0 {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Attach is machine.Abuse's.
func (h *Hypervisor) Attach(ctx context.Context, name string) error {
	return h.with(ctx, "attach the disk of machine "+name, name, func(c *rpc.Libvirt, d rpc.Domain) error {
		disk, err := detached(c, d)
		if err != nil || disk == "" {
			return err
		}
		now, err := describe(c, d)
		if err != nil {
			return err
		}
		if len(now.Devices.Disks) == 0 {
			if err := c.DomainAttachDeviceFlags(d, disk, uint32(rpc.DomainDeviceModifyLive)); err != nil {
				return err
			}
		}
		return keep(c, d, nil)
	})
}

// keep puts the element into a running domain's metadata, or takes it out.
func keep(c *rpc.Libvirt, d rpc.Domain, element rpc.OptString) error {
	var key rpc.OptString
	if element != nil {
		key = rpc.OptString{"mesh-detached"}
	}
	return c.DomainSetMetadata(d, int32(rpc.DomainMetadataElement), element, key, rpc.OptString{detachSpace}, rpc.DomainAffectLive)
}

// detached is the document that was kept; empty for none.
func detached(c *rpc.Libvirt, d rpc.Domain) (string, error) {
	text, err := c.DomainGetMetadata(d, int32(rpc.DomainMetadataElement), rpc.OptString{detachSpace}, rpc.DomainAffectLive)
	if is(err, rpc.ErrNoDomainMetadata) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var k kept
	if err := xml.Unmarshal([]byte(text), &k); err != nil {
		return "", err
	}
	return k.Disk, nil
}
