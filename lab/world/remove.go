package world

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"mesh/lab/companion"
	"mesh/lab/underlay"
	"mesh/lab/world/namespace"
	"mesh/lab/world/network"
)

// Remove ends a world and takes away all that it made: the process p, if it is
// that very process still; every other process that lives in one of its
// namespaces; the namespaces with their links; the control socket. The log and
// the configuration stay. A zero p means that it is not known. What is missing
// already is no failure, and one failure does not keep it from the rest.
func Remove(ctx context.Context, c Config, p Process) error {
	var errs []error
	if p.Alive() {
		errs = append(errs, companion.End(ctx, p.PID, p.Alive))
	}
	names := []string{c.Underlay.Namespace}
	for _, r := range c.Underlay.Routers {
		names = append(names, r.Namespace)
	}
	for _, name := range names {
		errs = append(errs, empty(ctx, name), namespace.Remove(name))
	}
	if err := os.Remove(c.Control); err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, fmt.Errorf("remove control socket: %v", err))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove world of run %s: %w", c.Underlay.Run, err)
	}
	return nil
}

// empty ends whatever lives in a namespace: it would keep the namespace alive
// under no name.
func empty(ctx context.Context, name string) error {
	pids, err := namespace.Processes(name)
	errs := []error{err}
	for _, pid := range pids {
		if pid == os.Getpid() {
			continue
		}
		errs = append(errs, companion.End(ctx, pid, func() bool { return namespace.Holds(name, pid) }))
	}
	return errors.Join(errs...)
}

// AttachTap moves a link from the caller's namespace into another, joins it to a
// bridge there and sets it up. A link that is there already only gets what it
// lacks.
func AttachTap(space, bridge, tap string) error { return network.AttachTap(space, bridge, tap) }

// Attach attaches the tap of a machine's NIC to the bridge that u has for it.
func Attach(u underlay.Underlay, tap string) error {
	for _, m := range u.Machines {
		for _, nic := range m.NICs {
			at := slices.IndexFunc(u.Segments, func(s underlay.Segment) bool { return s.Name == nic.Segment })
			if nic.Tap == tap && at >= 0 {
				return AttachTap(u.Namespace, u.Segments[at].Bridge, tap)
			}
		}
	}
	return fmt.Errorf("attach tap %s: no machine of run %s has it", tap, u.Run)
}
