package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"mesh/lab/world/namespace"
)

// Builder makes plans stand. The zero value is ready. Not safe for concurrent use.
type Builder struct {
	loaded map[string]string // by namespace: the filter that this builder loaded last
	joined map[string]string // by router's end at a bridge: the bridge that this builder joined it to last
}

// Apply makes p stand, with a fresh Builder.
func Apply(ctx context.Context, p Plan) error { return new(Builder).Apply(ctx, p) }

// Apply makes p stand. What stands already is kept; a second Apply of the same
// plan changes nothing. The first failure ends it, and what was made is left for
// the next Apply, or for whoever removes the namespaces.
func (b *Builder) Apply(ctx context.Context, p Plan) error {
	for _, name := range p.namespaces() {
		if _, err := namespace.Create(name); err != nil {
			return err
		}
	}
	err := namespace.Do(p.World.Namespace, func() error { return b.applyWorld(ctx, p.World) })
	if err != nil {
		return err
	}
	for _, r := range p.Routers {
		if err := b.applyRouter(ctx, p.World.Namespace, r); err != nil {
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

func (b *Builder) applyWorld(ctx context.Context, w World) error {
	if err := b.prepare(ctx, w.Namespace, w.Settings, w.Ruleset); err != nil {
		return err
	}
	for _, bridge := range w.Bridges {
		if err := applyBridge(bridge); err != nil {
			return fmt.Errorf("bridge %s: %w", bridge.Link, err)
		}
	}
	return nil
}

// applyRouter prepares the router's namespace before a link comes into it, since
// a link takes its settings from what is there.
func (b *Builder) applyRouter(ctx context.Context, world string, r Router) error {
	err := namespace.Do(r.Namespace, func() error { return b.prepare(ctx, r.Namespace, r.Settings, r.Ruleset) })
	if err != nil {
		return err
	}
	err = namespace.Do(world, func() error { return b.joinRouter(r) })
	if err != nil {
		return err
	}
	return namespace.Do(r.Namespace, func() error {
		moved, err := applyPorts(r)
		if err == nil && moved {
			err = b.forget(ctx, r)
		}
		return err
	})
}

// forget ends what a router remembers of the addresses that it had: connections,
// and the mappings that its filter keeps. A machine that goes on sending would
// keep both for ever.
func (b *Builder) forget(ctx context.Context, r Router) error {
	delete(b.loaded, r.Namespace)
	if err := b.load(ctx, r.Namespace, r.Ruleset); err != nil {
		return err
	}
	if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
		return fmt.Errorf("forget connections: %v", err)
	}
	return nil
}

// joinRouter makes the router's veths; only both ends together exist. One that
// was joined to its bridge before is left alone: somebody may have put something
// between the two.
func (b *Builder) joinRouter(r Router) error {
	ns, err := netns.GetFromName(r.Namespace)
	if err != nil {
		return fmt.Errorf("open namespace %s: %v", r.Namespace, err)
	}
	defer ns.Close()
	for _, p := range r.Ports {
		if b.joined[p.Peer] == p.Bridge {
			continue
		}
		if err := joinPort(p, ns); err != nil {
			return fmt.Errorf("join router port %s (%s) to bridge %s: %w", p.Link, p.Peer, p.Bridge, err)
		}
		if b.joined == nil {
			b.joined = map[string]string{}
		}
		b.joined[p.Peer] = p.Bridge
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

// applyPorts also tells whether a port lost an address that it had.
func applyPorts(r Router) (moved bool, err error) {
	for _, p := range r.Ports {
		link, err := netlink.LinkByName(p.Link)
		if err == nil {
			var lost bool
			lost, err = applyAddrs(link, p.Addrs)
			moved = moved || lost
		}
		if err == nil {
			err = netlink.LinkSetUp(link)
		}
		if err != nil {
			return moved, fmt.Errorf("port %s: %w", p.Link, err)
		}
	}
	return moved, applyRoutes(r.Routes)
}

// prepare is what comes before any link is up: settings, filter, loopback.
func (b *Builder) prepare(ctx context.Context, space string, settings []Setting, ruleset string) error {
	for _, s := range settings {
		if err := set(s); err != nil {
			return err
		}
	}
	if err := b.load(ctx, space, ruleset); err != nil {
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

// load replaces a namespace's table in one transaction. What is loaded already
// stays: its maps hold what the running scenario filled in.
func (b *Builder) load(ctx context.Context, space, ruleset string) error {
	if b.loaded[space] == ruleset {
		return nil
	}
	if err := load(ctx, ruleset); err != nil {
		return err
	}
	if b.loaded == nil {
		b.loaded = map[string]string{}
	}
	b.loaded[space] = ruleset
	return nil
}

// load hands a ruleset to the namespace that this thread is in.
func load(ctx context.Context, ruleset string) error {
	if _, err := run(ctx, "nft", ruleset, "-f", "-"); err != nil {
		return fmt.Errorf("load filter: %v", err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{
		IP:   p.Addr().AsSlice(),
		Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen()),
	}
}

// prefixOf is ipNet's reverse; the zero Prefix where there is none.
func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addrOf(n.IP), bits)
}

// addrOf is the address that is in a slice; the zero Addr where there is none.
func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
