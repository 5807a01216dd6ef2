package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"mesh/lab/guest"
	"mesh/lab/underlay"
)

// patience is how long a machine is asked to wait for its addresses before it
// tells what it lacks. Asking again costs one that is emulated, beside others
// that are busy, a second or two.
const patience = 20 * time.Second

// ready gives a machine that runs an identity, its clock and what else id holds,
// and waits until it is who and where the plan says.
func (l *Lab) ready(ctx context.Context, p Plan, m Machine, id guest.Identity) error {
	if err := l.cfg.Guest.Wait(ctx, m.Spec.Name); err != nil {
		return fmt.Errorf("wait for machine %s: %w", m.Name, err)
	}
	at, err := place(p, m.Name)
	if err != nil {
		return err
	}
	id.Addresses, id.Patience = addressesOf(at), patience
	again := time.NewTicker(4 * l.cfg.Poll)
	defer again.Stop()
	for {
		facts, err := l.cfg.Guest.Settle(ctx, m.Spec.Name, id)
		var missing []string
		switch {
		case err == nil:
			if missing = lacks(facts, m, at); len(missing) == 0 {
				return nil
			}
			id = guest.Identity{Addresses: id.Addresses, Patience: patience}
		case ctx.Err() == nil:
			return err
		default:
			missing = []string{err.Error()}
		}
		select {
		case <-ctx.Done():
			return &Error{
				What: "machine " + m.Name + " is not what it is declared to be", Where: "machine " + m.Name,
				Why: strings.Join(missing, "\n"), Code: codeFailed, Cause: context.Cause(ctx),
			}
		case <-again.C:
		}
	}
}

func place(p Plan, name string) (underlay.Machine, error) {
	for _, m := range p.World.Underlay.Machines {
		if m.Name == name {
			return m, nil
		}
	}
	return underlay.Machine{}, fmt.Errorf("the plan has no place for machine %s", name)
}

// addressesOf lists all that a machine is to have.
func addressesOf(at underlay.Machine) (all []guest.Address) {
	for _, nic := range at.NICs {
		if nic.IPv4.IsValid() {
			all = append(all, guest.Address{MAC: nic.MAC, Prefix: nic.IPv4})
		}
		if nic.IPv6.IsValid() {
			all = append(all, guest.Address{MAC: nic.MAC, Prefix: nic.IPv6})
		}
	}
	return all
}

// lacks compares what a machine says of itself with what is declared; a line each.
func lacks(s guest.Facts, m Machine, at underlay.Machine) (lines []string) {
	if s.MachineID != m.MachineID {
		lines = append(lines, fmt.Sprintf("its machine id is %q, not %s", s.MachineID, m.MachineID))
	}
	if s.Hostname != m.Name {
		lines = append(lines, fmt.Sprintf("its host name is %q, not %s", s.Hostname, m.Name))
	}
	for _, nic := range at.NICs {
		for _, want := range addressesOf(underlay.Machine{NICs: []underlay.NIC{nic}}) {
			if has := s.Addresses[nic.MAC]; !slices.Contains(has, want.Prefix.String()) {
				lines = append(lines, fmt.Sprintf("address %s is not on its NIC in segment %s (%s), which has %q",
					want.Prefix, nic.Segment, nic.MAC, has))
			}
		}
	}
	return lines
}
