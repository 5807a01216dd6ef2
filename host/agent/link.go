package agent

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	"mesh/host/declaration"
	"mesh/host/link"
	"mesh/host/store"
)

// Delays between attempts to reach the plane. A plane that comes back is found
// again within redialMost and a dial.
const (
	redialFirst = time.Second
	redialMost  = 10 * time.Second
)

// uplink is the link's side of the agent. One goroutine owns it.
type uplink struct {
	agent   *Agent
	member  *Membership
	current *store.Accepted      // newest declaration of this mesh, taken or held; nil: none
	outcome *declaration.Outcome // of the newest pass over one of this mesh; nil: none yet
	last    passed               // newest, of whatever mesh
	wanted  map[string]*fetching // by digest
}

// keepLink dials for as long as ctx lasts. It never gives up and never stands
// in the way of the passes.
func (a *Agent) keepLink(ctx context.Context) {
	u := &uplink{agent: a}
	retry := backoff{first: redialFirst, most: redialMost, jitter: a.cfg.Jitter}
	for ctx.Err() == nil {
		u.reread()
		if u.member == nil {
			u.wait(ctx, a.cfg.Interval)
			continue
		}
		lived, err := u.connect(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errNewIdentity):
			retry.reset()
			continue
		case u.retired() && notANode(err): // the plane knew already, and this machine was cut before it took that in
			if errors.Is(u.leave(), errNewIdentity) {
				continue
			}
		case lived:
			retry.reset()
		}
		a.board.linkDown(plain(err))
		u.wait(ctx, retry.next())
	}
}

// notANode tells whether the plane says that this machine is none of its nodes.
func notANode(err error) bool {
	var refused *connect.Error
	return errors.As(err, &refused) && refused.Meta().Get(link.ReasonHeader) == string(link.ReasonNotANode)
}

// errNewIdentity ends a session whose machine was enrolled anew.
var errNewIdentity = errors.New("this machine's identity changed")

// reread looks whether this machine is somebody else by now, and tells whether
// it is.
func (u *uplink) reread() bool {
	member, err := ReadMembership(u.agent.cfg.Identity)
	if err != nil {
		u.agent.board.linkDown(plain(err))
	}
	if u.member.same(member) {
		return false
	}
	u.member, u.current, u.outcome, u.wanted = member, nil, nil, nil
	u.take(u.last)
	if member != nil {
		u.agent.cfg.Log.Info("this machine is a node", "mesh", member.Mesh, "node", member.Node)
	}
	return true
}

// wait passes time until something calls for another look. What passes come to
// meanwhile is kept for the next session.
func (u *uplink) wait(ctx context.Context, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-u.agent.cfg.Changed:
			return
		case p := <-u.agent.passed:
			u.take(p)
		}
	}
}

// take keeps what a pass came to, if it is about this mesh.
func (u *uplink) take(p passed) {
	u.last = p
	if u.member == nil || p.held == nil || p.held.Source != store.SourcePlane || p.held.Mesh != u.member.Mesh {
		return
	}
	if u.current == nil || !newer(u.current, p.held) {
		u.current = p.held
	}
	if p.outcome.Digest == p.held.Digest {
		u.want(p.missing)
		u.outcome = &p.outcome
	}
}

// newer tells whether a is of a later epoch or generation than b.
func newer(a, b *store.Accepted) bool {
	return a.Epoch > b.Epoch || a.Epoch == b.Epoch && a.Generation > b.Generation
}
