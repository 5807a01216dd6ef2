package world_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"mesh/lab/underlay"
	"mesh/lab/world"
	"mesh/lab/world/namespace"
	"mesh/lab/world/worldtest"
)

// TestCaseL1SideBySide raises one scenario twice: the same addresses inside, and
// nothing of one is ever seen in the other.
func TestCaseL1SideBySide(t *testing.T) {
	worldtest.Need(t)
	before := worldtest.Surroundings(t)
	type side struct {
		c         world.Config
		p         world.Process
		pub, shop *worldtest.Machine
		seen      *worldtest.Capture
	}
	var sides []*side
	for i, run := range []string{"0000000a", "0000000b"} {
		u := plan(t, town, run)
		s := &side{c: config(t, u)}
		s.p = start(t, s.c)
		s.pub, s.shop = up(t, u, "pub"), up(t, u, "shop")
		says(t, s.shop, "203.0.113.11:80", run)
		s.seen = worldtest.NewCapture(s.shop)
		sides = append(sides, s)
		if got, want := s.shop.NIC.IPv4, sides[0].shop.NIC.IPv4; got != want || !want.IsValid() {
			t.Fatalf("side %d: inner address %v, want %v", i, got, want)
		}
	}
	a, b := sides[0], sides[1]
	a.pub.Shout(soon(t), "only for a")
	a.seen.Until("only for a") // it is on its way no longer
	b.pub.Shout(soon(t), "only for b")
	for _, frame := range b.seen.Until("only for b") {
		if bytes.Contains(frame, []byte("only for a")) {
			t.Fatalf("a frame of one scenario is in the other: %x", frame)
		}
	}
	for _, s := range sides {
		if got := fetch(t, s.pub, "http://203.0.113.11/"); got != s.c.Underlay.Run {
			t.Errorf("the same address leads to %s, want %s", got, s.c.Underlay.Run)
		}
	}
	if diff := cmp.Diff(before, worldtest.Surroundings(t)); diff != "" {
		t.Errorf("the lab machine sees the inside (-before +while raised):\n%s", diff)
	}
	remove(t, a.c, a.p)
	if got := fetch(t, b.pub, "http://203.0.113.11/"); got != "0000000b" {
		t.Errorf("after one is gone the other says %s", got)
	}
}

// TestCaseL13SameRange raises a scenario on a lab machine that is itself in the
// ranges that the scenario uses.
func TestCaseL13SameRange(t *testing.T) {
	worldtest.Need(t)
	// The world's services, a machine, the world's services again.
	occupy(t, "203.0.113.2/24", "192.168.1.10/24", "2001:db8:113::2/64")
	if err := netlink.RouteAdd(&netlink.Route{Dst: ipNet("0.0.0.0/0"), Gw: net.ParseIP("203.0.113.1")}); err != nil {
		t.Fatal(err)
	}
	before := worldtest.Surroundings(t)

	u := plan(t, town, "0000000c")
	c := config(t, u)
	p := start(t, c)
	if got := fetch(t, up(t, u, "in"), "http://packages.world.test/debian-13/Packages"); got != "Package: hello\n" {
		t.Errorf("got %q", got)
	}
	if diff := cmp.Diff(before, worldtest.Surroundings(t)); diff != "" {
		t.Errorf("(-before +while raised):\n%s", diff)
	}
	remove(t, c, p)
	if diff := cmp.Diff(before, worldtest.Surroundings(t)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

// occupy gives the lab machine a link with addresses, the last of them IPv6, and
// returns when the kernel has made of it all that it does in its own time.
func occupy(t *testing.T, addrs ...string) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "lan0"
	lan := &netlink.Bridge{LinkAttrs: attrs}
	if err := netlink.LinkAdd(lan); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { netlink.LinkDel(lan) })
	// No address of the kernel's own making.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/lan0/addr_gen_mode", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	changes, done := make(chan netlink.RouteUpdate, 64), make(chan struct{})
	defer close(done)
	if err := netlink.RouteSubscribe(changes, done); err != nil {
		t.Fatal(err)
	}
	for _, own := range addrs {
		if err := netlink.AddrAdd(lan, &netlink.Addr{IPNet: ipNet(own), Flags: unix.IFA_F_NODAD}); err != nil {
			t.Fatal(err)
		}
	}
	if err := netlink.LinkSetUp(lan); err != nil {
		t.Fatal(err)
	}
	for last := ipNet(addrs[len(addrs)-1]); ; {
		select {
		case change := <-changes:
			if change.Dst != nil && change.Dst.IP.Equal(last.IP) && change.Table == unix.RT_TABLE_LOCAL {
				return
			}
		case <-soon(t).Done():
			t.Fatalf("%s is not usable after 10 s", last)
		}
	}
}

// TestTranslated reaches out of a home and not into it.
func TestTranslated(t *testing.T) {
	worldtest.Need(t)
	u := plan(t, town, "0000000d")
	start(t, config(t, u))
	in, pub := up(t, u, "in"), up(t, u, "pub")
	in.Autoconf(soon(t))
	pub.Autoconf(soon(t))
	for to, from := range map[netip.Addr]netip.Addr{
		pub.NIC.IPv4.Addr(): netip.MustParseAddr("203.0.113.3"), // the router's
		pub.NIC.IPv6.Addr(): in.NIC.IPv6.Addr(),
	} {
		if got := caller(t, in, pub, to); got != from {
			t.Errorf("%s is called from %s, want %s", to, got, from)
		}
	}
	in.Listen("[::]:80")
	unreachable(t, pub, in.NIC.IPv4.Addr())
	unreachable(t, pub, in.NIC.IPv6.Addr())
	// Nor by the router itself as next hop.
	pub.Must(func() error {
		return netlink.RouteAdd(&netlink.Route{Dst: ipNet("192.168.1.0/24"), Gw: net.ParseIP("203.0.113.3")})
	})
	unreachable(t, pub, in.NIC.IPv4.Addr())
}

// TestPlain reaches into an office whose router does not translate.
func TestPlain(t *testing.T) {
	worldtest.Need(t)
	u := plan(t, town, "0000000e")
	start(t, config(t, u))
	desk, pub := up(t, u, "desk"), up(t, u, "pub")
	if got := caller(t, desk, pub, pub.NIC.IPv4.Addr()); got != desk.NIC.IPv4.Addr() {
		t.Errorf("called from %s, want %s", got, desk.NIC.IPv4.Addr())
	}
	if got := caller(t, pub, desk, desk.NIC.IPv4.Addr()); got != pub.NIC.IPv4.Addr() {
		t.Errorf("called from %s, want %s", got, pub.NIC.IPv4.Addr())
	}
}

// TestSwitchIsNoRouter sends to the bridge itself what a site's machine wants to
// have passed around its router: the world takes none of it.
func TestSwitchIsNoRouter(t *testing.T) {
	worldtest.Need(t)
	u := plan(t, town, "0000000f")
	start(t, config(t, u))
	shop := up(t, u, "shop")
	shop.Listen(":80")
	for machine, site := range map[string]string{"in": "home", "robin": "island"} {
		m := up(t, u, machine)
		for _, to := range []string{"203.0.113.2", "203.0.113.1", "203.0.113.11"} {
			bypass(t, m, to, bridgeMAC(t, u, site))
			unreachable(t, m, netip.MustParseAddr(to))
		}
	}
}

// bypass makes a machine send to an address by a neighbour's MAC.
func bypass(t *testing.T, m *worldtest.Machine, to string, mac net.HardwareAddr) {
	t.Helper()
	m.Must(func() error {
		link, err := netlink.LinkByName(worldtest.Card)
		if err != nil {
			return err
		}
		err = netlink.RouteReplace(&netlink.Route{
			Dst: ipNet(to + "/32"), LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK,
		})
		if err != nil {
			return err
		}
		return netlink.NeighSet(&netlink.Neigh{
			LinkIndex: link.Attrs().Index, IP: net.ParseIP(to), HardwareAddr: mac, State: netlink.NUD_PERMANENT,
		})
	})
}

func bridgeMAC(t *testing.T, u underlay.Underlay, segment string) (mac net.HardwareAddr) {
	t.Helper()
	for _, s := range u.Segments {
		if s.Name != segment {
			continue
		}
		err := namespace.Do(u.Namespace, func() error {
			link, err := netlink.LinkByName(s.Bridge)
			if err == nil {
				mac = link.Attrs().HardwareAddr
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return mac
}

// caller tells who a machine sees when another calls it.
func caller(t *testing.T, from, to *worldtest.Machine, at netip.Addr) netip.Addr {
	t.Helper()
	l := to.Listen(netip.AddrPortFrom(at, 8080).String())
	defer l.Close()
	conn, err := from.Dial(soon(t), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	l.(*net.TCPListener).SetDeadline(time.Now().Add(5 * time.Second))
	seen, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Close()
	return seen.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
}

// unreachable waits a moment for a connection that may not come about.
func unreachable(t *testing.T, from *worldtest.Machine, to netip.Addr) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	conn, err := from.Dial(ctx, "tcp", netip.AddrPortFrom(to, 80).String())
	if err == nil {
		conn.Close()
		t.Errorf("%s reaches %s", from.Space, to)
	} else if strings.Contains(err.Error(), "refused") {
		t.Errorf("%s is heard by %s: %v", from.Space, to, err)
	}
}

// says answers every request to a machine with one word.
func says(t *testing.T, m *worldtest.Machine, at, word string) {
	t.Helper()
	l, ended := m.Listen(at), make(chan struct{})
	go func() {
		defer close(ended)
		http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, word) }))
	}()
	t.Cleanup(func() { l.Close(); <-ended })
}

func fetch(t *testing.T, m *worldtest.Machine, url string) string {
	t.Helper()
	answer, err := m.HTTP().Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func ipNet(prefix string) *net.IPNet {
	ip, n, err := net.ParseCIDR(prefix)
	if err != nil {
		panic(err)
	}
	return &net.IPNet{IP: ip, Mask: n.Mask}
}
