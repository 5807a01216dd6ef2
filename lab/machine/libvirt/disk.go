package libvirt

import (
	"context"
	"errors"
	"fmt"
	"time"

	rpc "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"
)

// Disk is machine.Memory's.
func (h *Hypervisor) Disk(ctx context.Context, name string) (string, error) {
	var disk string
	err := h.with(ctx, "ask the disk of machine "+name, name, func(c *rpc.Libvirt, d rpc.Domain) error {
		if err := idle(ctx, c, d); err != nil {
			return err
		}
		text, err := c.DomainGetXMLDesc(d, 0)
		if err != nil {
			return err
		}
		disk, err = firstDisk(text)
		return err
	})
	return disk, err
}

// idlePoll is how often a domain is looked at that something is done to, and
// idleLimit for how long.
const (
	idlePoll  = 50 * time.Millisecond
	idleLimit = 10 * time.Second
)

// idle waits until nothing is done to a domain: a client that was killed does not
// end what it had asked for.
func idle(ctx context.Context, c *rpc.Libvirt, d rpc.Domain) error {
	ctx, cancel := context.WithTimeoutCause(ctx, idleLimit, fmt.Errorf("the daemon is still at it after %s", idleLimit))
	defer cancel()
	again := time.NewTicker(idlePoll)
	defer again.Stop()
	for {
		job, _, _, _, _, _, _, _, _, _, _, _, err := c.DomainGetJobInfo(d)
		if err != nil || rpc.DomainJobType(job) == rpc.DomainJobNone {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-again.C:
		}
	}
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
