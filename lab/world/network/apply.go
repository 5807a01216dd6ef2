package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"mesh/lab/world/namespace"
)

// Apply makes p stand. What stands already is kept; a second Apply of the same
// plan changes nothing. The first failure ends it, and what was made is left for
// the next Apply, or for whoever removes the namespaces.
func Apply(ctx context.Context, p Plan) error {
	for _, name := range p.namespaces() {
		if _, err := namespace.Create(name); err != nil {
			return err
		}
	}
	err := namespace.Do(p.World.Namespace, func() error { return applyWorld(ctx, p.World) })
	if err != nil {
		return err
	}
	for _, r := range p.Routers {
		if err := applyRouter(ctx, p.World.Namespace, r); err != nil {
			return err
		}
	}
	// Last, since their next hops are the routers.
	return namespace.Do(p.World.Namespace, func() error { return applyRoutes(p.World.Routes) })
}

func (p Plan) namespaces() []string {
	names := []string{p.World.Namespace}
	for _, r := range p.Routers {
		names = append(names, r.Namespace)
	}
	return names
}

func applyWorld(ctx context.Context, w World) error {
	if err := prepare(ctx, w.Settings, w.Ruleset); err != nil {
		return err
	}
	for _, b := range w.Bridges {
		if err := applyBridge(b); err != nil {
			return fmt.Errorf("bridge %s: %w", b.Link, err)
		}
	}
	return nil
}

// applyRouter prepares the router's namespace before a link comes into it, since
// a link takes its settings from what is there.
func applyRouter(ctx context.Context, world string, r Router) error {
	err := namespace.Do(r.Namespace, func() error { return prepare(ctx, r.Settings, r.Ruleset) })
	if err != nil {
		return err
	}
	err = namespace.Do(world, func() error { return joinRouter(r) })
	if err != nil {
		return err
	}
	return namespace.Do(r.Namespace, func() error { return applyPorts(r) })
}

// joinRouter makes the router's veths; only both ends together exist.
func joinRouter(r Router) error {
	ns, err := netns.GetFromName(r.Namespace)
	if err != nil {
		return fmt.Errorf("open namespace %s: %v", r.Namespace, err)
	}
	defer ns.Close()
	for _, p := range r.Ports {
		if err := joinPort(p, ns); err != nil {
			return fmt.Errorf("join router port %s (%s) to bridge %s: %w", p.Link, p.Peer, p.Bridge, err)
		}
	}
	return nil
}

func joinPort(p Port, router netns.NsHandle) error {
	bridge, err := netlink.LinkByName(p.Bridge)
	if err != nil {
		return err
	}
	mac, err := net.ParseMAC(p.MAC)
	if err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = p.Peer
	veth := &netlink.Veth{
		LinkAttrs: attrs, PeerName: p.Link, PeerHardwareAddr: mac, PeerNamespace: netlink.NsFd(router),
	}
	if err := netlink.LinkAdd(veth); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return joinBridge(p.Peer, bridge)
}

// joinBridge joins a link of this namespace to a bridge of it and sets it up.
func joinBridge(link string, bridge netlink.Link) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	if l.Attrs().MasterIndex != bridge.Attrs().Index {
		if err := netlink.LinkSetMaster(l, bridge); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(l)
}

func applyPorts(r Router) error {
	for _, p := range r.Ports {
		link, err := netlink.LinkByName(p.Link)
		if err == nil {
			err = applyAddrs(link, p.Addrs)
		}
		if err == nil {
			err = netlink.LinkSetUp(link)
		}
		if err != nil {
			return fmt.Errorf("port %s: %w", p.Link, err)
		}
	}
	return applyRoutes(r.Routes)
}

// prepare is what comes before any link is up: settings, filter, loopback.
func prepare(ctx context.Context, settings []Setting, ruleset string) error {
	for _, s := range settings {
		if err := set(s); err != nil {
			return err
		}
	}
	if err := load(ctx, ruleset); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback: %v", err)
	}
	return netlink.LinkSetUp(lo)
}

// set writes a setting of the namespace that this thread is in.
func set(s Setting) error {
	path := filepath.Join("/proc/sys/net", s.Path)
	err := os.WriteFile(path, []byte(s.Value), 0)
	if s.Optional && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("set %s to %s: %v", path, s.Value, err)
	}
	return nil
}

// load replaces the namespace's whole filter in one transaction.
func load(ctx context.Context, ruleset string) error {
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(ruleset)
	var said bytes.Buffer
	cmd.Stderr = &said
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("load filter: the program nft is missing; install the package nftables")
	}
	if err != nil {
		return fmt.Errorf("load filter: %v: %s; `lab verify` shows what this machine's kernel cannot do",
			err, strings.TrimSpace(said.String()))
	}
	return nil
}

// applyAddrs gives a link its addresses, usable at once. A link with none stays
// without IPv6 altogether.
func applyAddrs(link netlink.Link, addrs []netip.Prefix) error {
	for _, a := range addrs {
		if a.Addr().Is6() {
			err := set(Setting{Path: "ipv6/conf/" + link.Attrs().Name + "/disable_ipv6", Value: "0"})
			if err != nil {
				return err
			}
			break
		}
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
			return fmt.Errorf("give it %s: %v", a, err)
		}
	}
	return nil
}

func applyRoutes(routes []Route) error {
	for _, r := range routes {
		if err := netlink.RouteReplace(&netlink.Route{Dst: ipNet(r.To), Gw: r.Via.AsSlice()}); err != nil {
			return fmt.Errorf("route %s by %s: %v", r.To, r.Via, err)
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{
		IP:   p.Addr().AsSlice(),
		Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen()),
	}
}
