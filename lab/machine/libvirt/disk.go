package libvirt

import (
	"context"
	"errors"

	rpc "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"
)

// Disk is machine.Memory's.
func (h *Hypervisor) Disk(ctx context.Context, name string) (string, error) {
	var disk string
	err := h.with(ctx, "ask the disk of machine "+name, name, func(c *rpc.Libvirt, d rpc.Domain) error {
		text, err := c.DomainGetXMLDesc(d, 0)
		if err != nil {
			return err
		}
		disk, err = firstDisk(text)
		return err
	})
	return disk, err
}

// firstDisk is the file behind the disk that a domain's document names first.
func firstDisk(text string) (string, error) {
	var domain libvirtxml.Domain
	if err := domain.Unmarshal(text); err != nil {
		return "", err
	}
	if domain.Devices != nil {
		for _, disk := range domain.Devices.Disks {
			if disk.Source != nil && disk.Source.File != nil {
				return disk.Source.File.File, nil
			}
		}
	}
	return "", errors.New("it has no disk that is a file")
}
