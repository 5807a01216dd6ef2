package libvirt

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	rpc "github.com/digitalocean/go-libvirt"

	"mesh/lab/machine"
)

// agentTime is the longest that one command may wait for its answer. Commands
// only start and ask; none of them takes long unless the guest is starved.
const agentTime = 60 * time.Second

// Agent is machine.Hypervisor's. An answer has at most 4 MiB, a limit of
// libvirt's protocol. What the agent itself refuses is an error with its words.
func (h *Hypervisor) Agent(ctx context.Context, name, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, agentTime)
	defer cancel()
	var answer string
	err := h.with(ctx, "ask the guest agent of machine "+name, name, func(c *rpc.Libvirt, d rpc.Domain) error {
		got, err := c.QEMUDomainAgentCommand(d, command, seconds(ctx), 0)
		switch {
		case err == nil && len(got) == 1:
			answer = got[0]
			return nil
		case !silent(err):
			return err
		}
		// The same is said of a machine that has just ended.
		if _, gone := c.DomainLookupByName(name); is(gone, rpc.ErrNoDomain) {
			return machine.ErrAbsent
		}
		return fmt.Errorf("%w: %w", machine.ErrAgent, err)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return "", fmt.Errorf("%w (%w)", err, machine.ErrAgent)
	}
	return answer, err
}

// silent tells whether err means that the agent is not there, or too slow.
func silent(err error) bool {
	for _, number := range []rpc.ErrorNumber{
		rpc.ErrAgentUnresponsive, rpc.ErrAgentUnsynced, rpc.ErrAgentCommandTimeout,
		rpc.ErrOperationInvalid, // the machine is paused
	} {
		if is(err, number) {
			return true
		}
	}
	return false
}

// seconds is what is left of ctx for libvirt, which counts in whole seconds: at
// least one, since the daemon takes zero for "do not wait".
func seconds(ctx context.Context) int32 {
	deadline, _ := ctx.Deadline()
	return max(1, int32(math.Ceil(time.Until(deadline).Seconds())))
}
