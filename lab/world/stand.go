package world

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/vishvananda/netlink"

	"mesh/lab/underlay"
	"mesh/lab/world/namespace"
	"mesh/lab/world/network"
)

// move is u with everybody where s has them: those of whom it tells nothing are
// where they began.
func (s State) move(u underlay.Underlay) (underlay.Underlay, error) {
	var problems []error
	moved := u
	roam := func(name, segment string) {
		next, err := moved.Roam(name, segment)
		if err != nil {
			problems = append(problems, err)
			return
		}
		moved = next
	}
	for _, r := range u.Roamers() {
		roam(r.Name, r.Segments[0])
	}
	for _, name := range slices.Sorted(maps.Keys(s.Stands)) {
		roam(name, s.Stands[name])
	}
	return moved, errors.Join(problems...)
}

// moveLocked makes the network be as u has it.
func (w *World) moveLocked(ctx context.Context, u underlay.Underlay) error {
	if reflect.DeepEqual(u, w.underlay) {
		return nil
	}
	w.underlay = underlay.Underlay{} // not known, until all of it is done
	err := w.builder.Apply(ctx, network.NewPlan(u))
	if err == nil {
		err = namespace.Do(u.Namespace, func() error { return replug(u) })
	}
	if err == nil {
		w.underlay = u
	}
	return err
}

// replug joins the taps of machines that roam to the bridges of where they stand,
// in the world's namespace. One that is not there is attached when it comes, and
// one that is off its bridge has a delay line there.
func replug(u underlay.Underlay) error {
	for _, m := range u.Machines {
		for _, nic := range m.NICs {
			var missing netlink.LinkNotFoundError
			tap, err := netlink.LinkByName(nic.Tap)
			if len(nic.Stands) == 0 || errors.As(err, &missing) || err == nil && tap.Attrs().MasterIndex == 0 {
				continue
			}
			if err == nil {
				err = network.Join(nic.Tap, bridgeOf(u, nic.Segment))
			}
			if err != nil {
				return fmt.Errorf("move machine %s to %s: %w", m.Name, nic.Segment, err)
			}
		}
	}
	return nil
}

// bridgeOf is the bridge of a segment of u.
func bridgeOf(u underlay.Underlay, segment string) string {
	i := slices.IndexFunc(u.Segments, func(s underlay.Segment) bool { return s.Name == segment })
	return u.Segments[i].Bridge
}
