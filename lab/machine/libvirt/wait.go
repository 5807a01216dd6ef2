package libvirt

import (
	"context"
	"errors"
	"fmt"

	rpc "github.com/digitalocean/go-libvirt"

	"mesh/lab/machine"
)

// Wait is machine.Hypervisor's. It needs no polling: the daemon tells.
func (h *Hypervisor) Wait(ctx context.Context, name string) (machine.Death, error) {
	if err := h.waitEnd(ctx, name); err != nil {
		return machine.Death{}, fmt.Errorf("wait for the end of machine %s: %w", name, err)
	}
	l, err := readLog(name)
	if err != nil {
		return machine.Death{}, fmt.Errorf("read how machine %s ended: %w", name, err)
	}
	return machine.Death{Cause: l.cause, Stderr: l.stderr, Command: l.command}, nil
}

// waitEnd returns nil once no domain of that name exists or its process has ended.
func (h *Hypervisor) waitEnd(ctx context.Context, name string) error {
	c, hangUp, err := connect(ctx, h.sockets)
	if err != nil {
		return ended(ctx, err)
	}
	listening, stop := context.WithCancel(ctx)
	// Subscribed before looking, so that no end falls between the two.
	events, err := c.LifecycleEvents(listening)
	if err != nil {
		stop()
		hangUp()
		return ended(ctx, err)
	}
	defer func() {
		stop()
		for range events { // its sender does not look at the context while it sends
		}
		hangUp()
	}()
	d, err := c.DomainLookupByName(name)
	if is(err, rpc.ErrNoDomain) {
		return nil
	}
	if err != nil {
		return ended(ctx, err)
	}
	for e := range events {
		if e.Dom.UUID == d.UUID && rpc.DomainEventType(e.Event) == rpc.DomainEventStopped {
			return nil
		}
	}
	return ended(ctx, errors.New("the libvirt daemon hung up"))
}

// ended prefers ctx's reason to what its end broke.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
