package libvirt

import (
	"context"

	rpc "github.com/digitalocean/go-libvirt"
)

// Description is a machine as libvirt describes it: its domain's XML, without
// what libvirt holds to be secret. machine.ErrAbsent.
func (h *Hypervisor) Description(ctx context.Context, name string) (text string, err error) {
	err = h.with(ctx, "describe machine "+name, name, func(c *rpc.Libvirt, d rpc.Domain) error {
		text, err = c.DomainGetXMLDesc(d, 0)
		return err
	})
	return text, err
}
