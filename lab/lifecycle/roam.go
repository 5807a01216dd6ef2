package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"mesh/lab/guest"
	"mesh/lab/machine"
	"mesh/lab/underlay"
	"mesh/lab/world"
)

// Roam moves a machine, or a router with the site behind it, to another of the
// segments that it is declared to roam to, or home. A machine that runs sees its
// cable pulled and put into another socket, and Roam returns once it has the
// addresses that wait for it there. What was cut off is finished by the same
// again. ErrAbsent.
func (l *Lab) Roam(ctx context.Context, name, who, segment string) error {
	return l.changing(ctx, name, "move "+who+" of "+name, func(r *Record) error {
		what := fmt.Sprintf("cannot move %s of %s to %s", who, name, segment)
		if r.Phase != Raised {
			return &Error{
				What: what, Why: "the scenario is raised in part, and raising it can only go on where all are at home",
				Next: "finish raising it, or destroy it", Code: codeFailed,
			}
		}
		moved, err := r.Plan.World.Underlay.Roam(who, segment)
		if err != nil {
			return &Error{What: what, Why: err.Error(), Code: codeUsage}
		}
		if err := l.move(ctx, r, moved, who); err != nil {
			return fmt.Errorf("move %s to %s: %w", who, segment, err)
		}
		return nil
	})
}

// move makes first the record and then the world be as moved has it. Where the
// world cannot follow, the record is put back.
func (l *Lab) move(ctx context.Context, r *Record, moved underlay.Underlay, who string) error {
	was := r.Plan.World.Underlay
	r.Plan.World.Underlay = moved
	if err := writeRecord(r.Plan.Directory, *r); err != nil {
		return err
	}
	roam := func() error { return l.changeWorld(ctx, r.Plan.World, "stands", moved.Away()) }
	i := slices.IndexFunc(r.Plan.Machines, func(m Machine) bool { return m.Name == who })
	pulled := false // by a fault, which goes along
	var err error
	if i < 0 { // a router
		err = roam()
	} else {
		pulled = (&striker{l, r}).pulled("", who, segmentOf(moved, who))
		err = l.replug(ctx, r.Plan.Machines[i], pulled, roam)
	}
	if err != nil {
		r.Plan.World.Underlay = was
		return errors.Join(err, writeRecord(r.Plan.Directory, *r))
	}
	if i < 0 || pulled {
		return nil
	}
	return l.settled(ctx, *r, r.Plan.Machines[i])
}

// segmentOf is where a machine that roams stands.
func segmentOf(u underlay.Underlay, machine string) string {
	i := slices.IndexFunc(u.Roamers(), func(r underlay.Roamer) bool { return r.Name == machine })
	return u.Roamers()[i].At
}

// changeWorld replaces one member of a world's state, and leaves the rest as it is.
func (l *Lab) changeWorld(ctx context.Context, c world.Config, member string, value any) error {
	text, err := l.cfg.World.State(ctx, c)
	if err != nil {
		return err
	}
	state := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &state); err != nil {
		return fmt.Errorf("read the state of the world: %v", err)
	}
	if state[member], err = json.Marshal(value); err == nil {
		text, err = json.Marshal(state)
	}
	if err != nil {
		return fmt.Errorf("write the state of the world: %v", err)
	}
	return l.cfg.World.SetState(ctx, c, text)
}

// replug pulls a machine's cable while it is moved, and leaves it so if it is to
// be. A machine that is off has none to be pulled.
func (l *Lab) replug(ctx context.Context, m Machine, pulled bool, roam func() error) error {
	mac := m.Spec.NICs[0].MAC // who roams has one
	err := l.cfg.Abuse.Link(ctx, m.Spec.Name, mac, false)
	if errors.Is(err, machine.ErrAbsent) {
		return roam()
	}
	if err != nil {
		return err
	}
	err = roam()
	if pulled {
		return err
	}
	l.noticed(ctx, m, mac)
	// Back into a socket in any case, also if whoever asked has gone.
	return errors.Join(err, l.cfg.Abuse.Link(context.WithoutCancel(ctx), m.Spec.Name, mac, true))
}

// noticeScript waits until everybody on a machine is told that the cable of the
// NIC of a MAC is out: the kernel holds such news back for up to a second, and
// tells nothing of what was over before.
const noticeScript = `for turn in $(seq 100); do
	for nic in /sys/class/net/*; do
		read -r mac <"$nic/address"
		read -r state <"$nic/operstate"
		[ "$mac" != %s ] || [ "$state" = up ] || exit 0
	done
	sleep 0.05
done
exit 1`

// noticeLimit bounds how long a machine may take to notice.
const noticeLimit = 20 * time.Second

// noticed waits until a machine that runs has noticed that its cable is out, so
// that it asks for addresses once it is in again. One that cannot be asked is
// given up; whether it gets there is seen afterwards.
func (l *Lab) noticed(ctx context.Context, m Machine, mac string) {
	if state, err := l.cfg.Hypervisor.State(ctx, m.Spec.Name); err != nil || state != machine.Running {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, noticeLimit)
	defer cancel()
	_, _ = l.cfg.Guest.Exec(ctx, m.Spec.Name, guest.Shell(fmt.Sprintf(noticeScript, mac)))
}

// settled waits until a machine that runs has the addresses of where it stands.
func (l *Lab) settled(ctx context.Context, r Record, m Machine) error {
	state, err := l.cfg.Hypervisor.State(ctx, m.Spec.Name)
	if errors.Is(err, machine.ErrAbsent) || err == nil && state != machine.Running {
		return nil
	}
	if err != nil {
		return err
	}
	limit := l.bootLimit(r.Accelerator)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w after %s", errTimeout, limit))
	defer cancel()
	return l.ready(ctx, r.Plan, m, guest.Identity{KeepClock: true})
}
