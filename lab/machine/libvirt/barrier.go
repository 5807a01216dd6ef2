package libvirt

import (
	"context"
	"errors"
	"sync"
	"time"

	rpc "github.com/digitalocean/go-libvirt"
)

// PauseAll is machine.Memory's. Everything that takes time is done before the
// first machine is asked to stop: each has a connection that waits.
func (h *Hypervisor) PauseAll(ctx context.Context, names []string) (time.Duration, error) {
	var (
		waiting, pausing sync.WaitGroup
		asked            = make(chan struct{})
		problems         = make([]error, len(names))
		stopped          = make([]time.Time, len(names))
	)
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	waiting.Add(len(names))
	for i, name := range names {
		pausing.Go(func() {
			ready := sync.OnceFunc(waiting.Done)
			defer ready()
			problems[i] = h.with(ctx, "pause machine "+name, name, func(c *rpc.Libvirt, d rpc.Domain) error {
				ready()
				select {
				case <-asked:
				case <-ctx.Done():
				}
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				err := c.DomainSuspend(d)
				stopped[i] = time.Now()
				return err
			})
			if problems[i] != nil {
				giveUp(problems[i]) // nobody else has to stop
			}
		})
	}
	waiting.Wait()
	began := time.Now()
	close(asked)
	pausing.Wait()
	var skew time.Duration
	for _, at := range stopped {
		skew = max(skew, at.Sub(began)) // each stopped at some time since it was asked to
	}
	return skew, errors.Join(problems...)
}
