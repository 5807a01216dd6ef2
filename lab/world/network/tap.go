package network

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"mesh/lab/world/namespace"
)

// AttachTap moves a link from the caller's namespace into another, joins it to a
// bridge there and sets it up. A link that is there already only gets what it
// lacks.
func AttachTap(space, bridge, tap string) error {
	err := moveInto(space, tap)
	if err == nil {
		err = namespace.Do(space, func() error { return Join(tap, bridge) })
	}
	if err != nil {
		return fmt.Errorf("attach tap %s to bridge %s: %w", tap, bridge, err)
	}
	return nil
}

// moveInto moves a link; that it is not here is no failure, it may have been
// moved before.
func moveInto(space, link string) error {
	l, err := netlink.LinkByName(link)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil
	}
	if err != nil {
		return err
	}
	ns, err := netns.GetFromName(space)
	if err != nil {
		return fmt.Errorf("open namespace %s: %v", space, err)
	}
	defer ns.Close()
	return netlink.LinkSetNsFd(l, int(ns))
}

// Join joins a link of the caller's namespace to a bridge of it and sets it up.
func Join(link, bridge string) error {
	b, err := netlink.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("bridge %s: %v", bridge, err)
	}
	return joinBridge(link, b)
}
