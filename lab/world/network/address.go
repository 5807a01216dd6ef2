package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// applyAddrs gives a link exactly these addresses, usable at once, and tells
// whether it lost one. A link with none stays without IPv6 altogether.
func applyAddrs(link netlink.Link, addrs []netip.Prefix) (lost bool, err error) {
	without := "1"
	if slices.ContainsFunc(addrs, func(a netip.Prefix) bool { return a.Addr().Is6() }) {
		without = "0"
	}
	err = set(Setting{Path: "ipv6/conf/" + link.Attrs().Name + "/disable_ipv6", Value: without})
	if err != nil {
		return false, err
	}
	for _, a := range addrs {
		addr := &netlink.Addr{IPNet: ipNet(a)}
		if a.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if a.Addr().IsLinkLocalUnicast() {
			addr.Scope = unix.RT_SCOPE_LINK
		}
		if err := netlink.AddrReplace(link, addr); err != nil {
			return false, fmt.Errorf("give it %s: %v", a, err)
		}
	}
	has, err := whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return false, fmt.Errorf("list its addresses: %v", err)
	}
	for _, old := range has {
		if slices.Contains(addrs, prefixOf(old.IPNet)) {
			continue
		}
		if err := netlink.AddrDel(link, &old); err != nil {
			return lost, fmt.Errorf("take %s away: %v", old.IPNet, err)
		}
		lost = true
	}
	return lost, nil
}

// protocol marks the ways that are this package's: rtnetlink(7).
const protocol = unix.RTPROT_STATIC

// applyRoutes makes exactly these ways of this package be there.
func applyRoutes(routes []Route) error {
	for _, r := range routes {
		way := &netlink.Route{Dst: ipNet(r.To), Gw: r.Via.AsSlice(), Protocol: protocol, MTU: r.MTU}
		if r.Link != "" {
			if err := ownWay(way, r); err != nil {
				return err
			}
		}
		if err := netlink.RouteReplace(way); err != nil {
			return fmt.Errorf("route %s by %s%s: %v", r.To, r.Via, r.Link, err)
		}
	}
	ours := &netlink.Route{Table: unix.RT_TABLE_MAIN, Protocol: protocol}
	has, err := whole(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, ours, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
	})
	if err != nil {
		return fmt.Errorf("list routes: %v", err)
	}
	for _, old := range has {
		planned := slices.ContainsFunc(routes, func(r Route) bool {
			return r.To == prefixOf(old.Dst) && r.Via == addrOf(old.Gw)
		})
		if planned {
			continue
		}
		if err := netlink.RouteDel(&old); err != nil {
			return fmt.Errorf("take the route to %s by %s away: %v", old.Dst, old.Gw, err)
		}
	}
	return nil
}

// ownWay makes way take the place of the one that the kernel makes with an
// address of a link, and goes with it.
func ownWay(way *netlink.Route, r Route) error {
	link, err := netlink.LinkByName(r.Link)
	if err != nil {
		return fmt.Errorf("route %s at %s: %v", r.To, r.Link, err)
	}
	way.LinkIndex, way.Gw, way.Protocol = link.Attrs().Index, nil, unix.RTPROT_KERNEL
	if r.To.Addr().Is4() {
		way.Scope, way.Src = netlink.SCOPE_LINK, r.From.AsSlice()
	} else {
		way.Priority = 256 // IP6_RT_PRIO_ADDRCONF: net/ipv6/route.h
	}
	return nil
}

// whole lists again what changed while it was listed: netlink(7), NLM_F_DUMP_INTR.
func whole[T any](list func() ([]T, error)) (all []T, err error) {
	for range 20 {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}
