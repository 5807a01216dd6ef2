package world_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"mesh/lab/underlay"
	"mesh/lab/world"
	"mesh/lab/world/worldtest"
)

// kinds has a site behind each kind of router, and two providers outside.
const kinds = `
name: kinds
segments:
  public: {kind: public, ipv4: 203.0.113.0/24, ipv6: 2001:db8:113::/64}
  abroad: {kind: public, ipv4: 198.51.100.0/24}
  six: {kind: public, ipv6: 2001:db8:6::/64}
  home: {kind: site, ipv4: 192.168.1.0/24, ipv6: 2001:db8:114::/64}
  guarded: {kind: site, ipv4: 192.168.2.0/24}
  firm: {kind: site, ipv4: 192.168.3.0/24}
  carrier: {kind: carrier, ipv4: 100.64.0.0/24}
  flat: {kind: site, ipv4: 192.168.4.0/24}
  cloud: {kind: site, ipv4: 10.1.0.0/24}
  office: {kind: site, ipv4: 198.18.1.0/24, ipv6: 2001:db8:115::/64}
  lab: {kind: site, ipv4: 198.18.2.0/24, ipv6: 2001:db8:116::/64}
  new: {kind: site, ipv6: 2001:db8:117::/64}
  narrow: {kind: site, ipv4: 192.168.5.0/24, ipv6: 2001:db8:118::/64}
  dark: {kind: site, ipv4: 192.168.6.0/24, ipv6: 2001:db8:119::/64}
  island: {kind: isolated, ipv4: 10.9.0.0/24, ipv6: 2001:db8:11a::/64}
routers:
  home: {inside: home, outside: public, forwards: [{port: 443, to: in, at: 8443}, {port: 53, protocol: udp, to: in2}]}
  guarded: {inside: guarded, outside: public, firewall: closed}
  firm: {inside: firm, outside: public, nat: hard, forwards: [{port: 443, to: clerk}]}
  carrier: {inside: carrier, outside: public, nat: hard}
  flat: {inside: flat, outside: carrier}
  cloud: {inside: cloud, outside: public, nat: one-to-one}
  office: {inside: office, outside: public, nat: none, firewall: closed}
  lab: {inside: lab, outside: public, nat: none, firewall: open}
  new: {inside: new, outside: six}
  narrow: {inside: narrow, outside: public, nat: none, firewall: open, mtu: 1400}
  dark: {inside: dark, outside: public, nat: none, firewall: open, mtu: 1400, too-big: lost}
machines:
  pub: {segments: [public]}
  far: {segments: [abroad]}
  in: {segments: [home]}
  in2: {segments: [home]}
  shy: {segments: [guarded]}
  clerk: {segments: [firm]}
  phone: {segments: [carrier]}
  tenant: {segments: [flat]}
  server: {segments: [cloud]}
  desk: {segments: [office]}
  bench: {segments: [lab]}
  novel: {segments: [new]}
  thin: {segments: [narrow]}
  lost: {segments: [dark]}
  robin: {segments: [island]}
  friday: {segments: [island]}
`

// briefly is how long is waited for what must not come.
const briefly = 300 * time.Millisecond

// city is a world of kinds, with the machines that tests ask for.
type city struct {
	t      *testing.T
	u      underlay.Underlay
	client *world.Client
}

func newCity(t *testing.T, run string) city {
	t.Helper()
	worldtest.Need(t)
	u := plan(t, kinds, run)
	cfg := config(t, u)
	start(t, cfg)
	return city{t, u, world.NewClient(cfg.Control)}
}

// machine is up, with its addresses of both families.
func (c city) machine(name string) *worldtest.Machine {
	c.t.Helper()
	m := worldtest.NewMachine(c.t, c.u, name)
	m.Up()
	if m.NIC.IPv4.IsValid() {
		m.Lease(soon(c.t))
	}
	if m.NIC.IPv6.IsValid() {
		m.Autoconf(soon(c.t))
	}
	return m
}

// outside is the IPv4 address of a router's outside.
func (c city) outside(router string) netip.Addr {
	for _, r := range c.u.Routers {
		if r.Name == router {
			return r.Outside.Addrs[0].Addr()
		}
	}
	c.t.Fatalf("no router %s", router)
	return netip.Addr{}
}

// open opens a socket on a machine's IPv4 address.
func (c city) open(m *worldtest.Machine, port uint16) (*worldtest.Socket, netip.AddrPort) {
	c.t.Helper()
	at := netip.AddrPortFrom(m.NIC.IPv4.Addr(), port)
	return m.UDP(soon(c.t), at), at
}

// seen tells as whom a socket's sender is seen.
func (c city) seen(from *worldtest.Socket, by *worldtest.Socket, at netip.AddrPort) netip.AddrPort {
	c.t.Helper()
	if err := from.Send(at, "hello"); err != nil {
		c.t.Fatal(err)
	}
	as, ok := by.Hears("hello", 5*time.Second)
	if !ok {
		c.t.Fatalf("%s does not hear what is sent there", at)
	}
	if err := by.Send(as, "welcome"); err != nil {
		c.t.Fatal(err)
	}
	if _, ok := from.Hears("welcome", 5*time.Second); !ok {
		c.t.Fatalf("the answer of %s to %s does not come", at, as)
	}
	return as
}

// TestEasyNAT: whatever the destination, a machine's port is seen as one, and
// everybody may call it there; nobody else's port is called so, even if another
// machine uses the same inside.
func TestEasyNAT(t *testing.T) {
	c := newCity(t, "00000040")
	pub, far, in, in2 := c.machine("pub"), c.machine("far"), c.machine("in"), c.machine("in2")
	a, atA := c.open(pub, 4001)
	b, atB := c.open(far, 4002)
	stranger, _ := c.open(far, 4003)
	mine, _ := c.open(in, 4000)
	other, _ := c.open(in2, 4000)

	as := c.seen(mine, a, atA)
	if want := netip.AddrPortFrom(c.outside("home"), 4000); as != want {
		t.Errorf("the first port is seen as %s, want %s", as, want)
	}
	if again := c.seen(mine, b, atB); again != as {
		t.Errorf("another destination sees %s, want %s", again, as)
	}
	if err := stranger.Send(as, "uninvited"); err != nil {
		t.Fatal(err)
	}
	from, ok := mine.Hears("uninvited", 5*time.Second)
	if !ok {
		t.Fatal("a stranger is not let in by a port in use")
	}
	if err := mine.Send(from, "who are you"); err != nil {
		t.Fatal(err)
	}
	if by, ok := stranger.Hears("who are you", 5*time.Second); !ok || by != as {
		t.Errorf("the stranger is answered by %s, want %s", by, as)
	}

	elsewhere, atElsewhere := c.open(pub, 4004) // where the port would be free
	second := c.seen(other, elsewhere, atElsewhere)
	if second == as || second.Addr() != as.Addr() {
		t.Errorf("another machine's port is seen as %s, the first as %s", second, as)
	}
	for by, at := range map[*worldtest.Socket]netip.AddrPort{a: atA, b: atB} {
		if again := c.seen(other, by, at); again != second {
			t.Errorf("%s sees the second machine as %s, want %s", at, again, second)
		}
	}
	if err := stranger.Send(netip.AddrPortFrom(as.Addr(), 5000), "knock"); err != nil {
		t.Fatal(err)
	}
	if _, ok := mine.Hears("knock", briefly); ok {
		t.Error("a port that is not in use lets a stranger in")
	}
}

// TestEasyNATHolePunching: what arrives too early from the other side does not
// keep a port from being seen as it is by everybody else.
func TestEasyNATHolePunching(t *testing.T) {
	c := newCity(t, "00000041")
	pub, shy := c.machine("pub"), c.machine("shy")
	a, atA := c.open(pub, 4001)
	b, atB := c.open(pub, 4002)
	mine, _ := c.open(shy, 4000)
	want := netip.AddrPortFrom(c.outside("guarded"), 4000)
	if err := a.Send(want, "early"); err != nil {
		t.Fatal(err)
	}
	if _, ok := mine.Hears("early", briefly); ok {
		t.Fatal("a closed firewall lets a stranger in")
	}
	for _, other := range []struct {
		socket *worldtest.Socket
		at     netip.AddrPort
	}{{a, atA}, {b, atB}} {
		if as := c.seen(mine, other.socket, other.at); as != want {
			t.Errorf("%s sees %s, want %s", other.at, as, want)
		}
	}
	stranger, _ := c.open(pub, 4003)
	if err := stranger.Send(want, "uninvited"); err != nil {
		t.Fatal(err)
	}
	if _, ok := mine.Hears("uninvited", briefly); ok {
		t.Error("a closed firewall lets a stranger in by a port in use")
	}
}

// TestHardNAT: each destination sees another port, and only it may answer.
func TestHardNAT(t *testing.T) {
	c := newCity(t, "00000042")
	pub, far, clerk := c.machine("pub"), c.machine("far"), c.machine("clerk")
	a, atA := c.open(pub, 4001)
	b, atB := c.open(far, 4002)
	beside, _ := c.open(pub, 4003)
	mine, _ := c.open(clerk, 4000)
	ports := map[uint16]bool{}
	var as netip.AddrPort
	for _, other := range []struct {
		socket *worldtest.Socket
		at     netip.AddrPort
	}{{a, atA}, {b, atB}} {
		as = c.seen(mine, other.socket, other.at)
		if as.Addr() != c.outside("firm") || as.Port() == 4000 {
			t.Errorf("%s sees %s", other.at, as)
		}
		ports[as.Port()] = true
		if err := beside.Send(as, "uninvited"); err != nil {
			t.Fatal(err)
		}
		if _, ok := mine.Hears("uninvited", briefly); ok {
			t.Errorf("a neighbour of %s is let in", other.at)
		}
	}
	if len(ports) != 2 {
		t.Errorf("two destinations see one port: %s", as)
	}
}

// TestCarrier: who is behind a carrier is translated twice.
func TestCarrier(t *testing.T) {
	c := newCity(t, "00000043")
	pub, phone, tenant := c.machine("pub"), c.machine("phone"), c.machine("tenant")
	a, atA := c.open(pub, 4001)
	near, atNear := c.open(phone, 4002)
	mine, _ := c.open(tenant, 4000)
	if as := c.seen(mine, near, atNear); as.Addr() != c.outside("flat") || !netip.MustParsePrefix("100.64.0.0/10").Contains(as.Addr()) {
		t.Errorf("in the carrier's network the tenant is seen as %s, want %s", as, c.outside("flat"))
	}
	if as := c.seen(mine, a, atA); as.Addr() != c.outside("carrier") {
		t.Errorf("outside the tenant is seen as %s, want %s", as, c.outside("carrier"))
	}
	if as := c.seen(near, a, atA); as.Addr() != c.outside("carrier") {
		t.Errorf("outside the phone is seen as %s, want %s", as, c.outside("carrier"))
	}
	tenant.Listen(":80")
	unreachable(t, pub, c.outside("flat"))
}

// TestOneToOne: a machine has an outside address of its own, both ways.
func TestOneToOne(t *testing.T) {
	c := newCity(t, "00000044")
	pub, server := c.machine("pub"), c.machine("server")
	own := c.u.Routers[5].Translated[0].Outside.Addr()
	a, atA := c.open(pub, 4001)
	mine, _ := c.open(server, 4000)
	if as := c.seen(mine, a, atA); as != netip.AddrPortFrom(own, 4000) {
		t.Errorf("it is seen as %s, want %s", as, own)
	}
	says(t, server, ":80", "the cloud")
	if got := fetch(t, pub, "http://"+own.String()+"/"); got != "the cloud" {
		t.Errorf("at %s is %q", own, got)
	}
}

// TestForwards: a port of the router leads to a machine, from outside and not
// from inside.
func TestForwards(t *testing.T) {
	c := newCity(t, "00000045")
	pub, in, in2, clerk := c.machine("pub"), c.machine("in"), c.machine("in2"), c.machine("clerk")
	says(t, in, ":8443", "home")
	says(t, clerk, ":443", "firm")
	for router, want := range map[string]string{"home": "home", "firm": "firm"} {
		if got := fetch(t, pub, "http://"+netip.AddrPortFrom(c.outside(router), 443).String()); got != want {
			t.Errorf("port 443 of %s leads to %q", router, got)
		}
	}
	dns, _ := c.open(in2, 53)
	asks, _ := c.open(pub, 4001)
	if err := asks.Send(netip.AddrPortFrom(c.outside("home"), 53), "question"); err != nil {
		t.Fatal(err)
	}
	if _, ok := dns.Hears("question", 5*time.Second); !ok {
		t.Error("port 53 does not lead to in2")
	}
	if _, err := in2.Dial(soon(t), "tcp", netip.AddrPortFrom(c.outside("home"), 443).String()); err == nil {
		t.Error("a forwarded port is reached from inside by the outside address")
	}
}

// TestFirewalls: closed lets in answers alone, of public addresses too; open lets
// in everything.
func TestFirewalls(t *testing.T) {
	c := newCity(t, "00000046")
	pub, desk, bench := c.machine("pub"), c.machine("desk"), c.machine("bench")
	for _, m := range []*worldtest.Machine{desk, bench} {
		m.Listen("[::]:80")
		for _, to := range []netip.Addr{pub.NIC.IPv4.Addr(), pub.NIC.IPv6.Addr()} {
			if got := caller(t, m, pub, to); got != m.NIC.IPv4.Addr() && got != m.NIC.IPv6.Addr() {
				t.Errorf("%s is seen as %s", m.Space, got)
			}
		}
	}
	unreachable(t, pub, desk.NIC.IPv4.Addr())
	unreachable(t, pub, desk.NIC.IPv6.Addr())
	for _, to := range []netip.Addr{bench.NIC.IPv4.Addr(), bench.NIC.IPv6.Addr()} {
		if conn, err := pub.Dial(soon(t), "tcp", netip.AddrPortFrom(to, 80).String()); err != nil {
			t.Errorf("an open firewall: %v", err)
		} else {
			conn.Close()
		}
	}
}

// TestIsolated: neighbours on an island reach each other and nobody else, by any
// way that they could be given.
func TestIsolated(t *testing.T) {
	c := newCity(t, "00000047")
	pub, robin, friday := c.machine("pub"), c.machine("robin"), c.machine("friday")
	pub.Listen("[::]:80")
	says(t, friday, ":80", "friday")
	if got := fetch(t, robin, "http://"+friday.NIC.IPv4.Addr().String()+"/"); got != "friday" {
		t.Errorf("the neighbour says %q", got)
	}
	robin.Must(func() error {
		routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
		for _, r := range routes {
			if r.Gw != nil {
				t.Errorf("there is a way out: %s", r)
			}
		}
		return err
	})
	for i, s := range c.u.Segments {
		if s.Name == "island" {
			bypass(t, robin, pub.NIC.IPv4.Addr().String(), bridgeMAC(t, c.u, c.u.Segments[i].Name))
		}
	}
	unreachable(t, robin, pub.NIC.IPv4.Addr())
	unreachable(t, robin, pub.NIC.IPv6.Addr())
	unreachable(t, pub, robin.NIC.IPv4.Addr())
}

// TestSixOnly: a machine with IPv6 alone reaches IPv6 outside, and names.
func TestSixOnly(t *testing.T) {
	c := newCity(t, "00000048")
	pub, novel := c.machine("pub"), c.machine("novel")
	if novel.NIC.IPv4.IsValid() {
		t.Fatalf("it has %s", novel.NIC.IPv4)
	}
	if got := caller(t, novel, pub, pub.NIC.IPv6.Addr()); got != novel.NIC.IPv6.Addr() {
		t.Errorf("it is seen as %s", got)
	}
	novel.DNS = c.u.Services.DNS[1]
	if answer, err := novel.Ask(soon(t), "udp", "pub.world.test", 28); err != nil || len(answer.Answer) != 1 {
		t.Errorf("%v, %v", answer, err)
	}
}

// TestPathMTU: what is too long for a router is told to its sender, inside and
// outside; or it vanishes.
func TestPathMTU(t *testing.T) {
	c := newCity(t, "00000049")
	pub, port := c.machine("pub"), uint16(4000)
	for name, told := range map[string]bool{"thin": true, "lost": false} {
		m := c.machine(name)
		for _, family := range []struct {
			inside, outside netip.Addr
			header          int
		}{
			{m.NIC.IPv4.Addr(), pub.NIC.IPv4.Addr(), 28},
			{m.NIC.IPv6.Addr(), pub.NIC.IPv6.Addr(), 48},
		} {
			port++
			in, out := netip.AddrPortFrom(family.inside, port), netip.AddrPortFrom(family.outside, port)
			inside, outside := m.UDP(soon(t), in), pub.UDP(soon(t), out)
			for _, way := range []struct {
				from, to *worldtest.Socket
				at       netip.AddrPort
			}{{inside, outside, out}, {outside, inside, in}} {
				short, long := strings.Repeat("s", 1400-family.header), strings.Repeat("l", 1401-family.header)
				if err := way.from.Send(way.at, short); err != nil {
					t.Fatal(err)
				}
				if _, ok := way.to.Hears(short, 5*time.Second); !ok {
					t.Fatalf("%s: a packet of 1400 bytes does not come to %s", name, way.at)
				}
				if err := way.from.Send(way.at, long); err != nil {
					t.Fatal(err)
				}
				if _, ok := way.to.Hears(long, briefly); ok {
					t.Errorf("%s: a packet of 1401 bytes comes to %s", name, way.at)
				}
				err := way.from.Send(way.at, long)
				if knows := errors.Is(err, unix.EMSGSIZE); knows != told {
					t.Errorf("%s: to %s, too long a second time: %v, want to know: %v", name, way.at, err, told)
				}
			}
		}
	}
}

// TestCaseL1KindsSideBySide raises every kind twice: the same is seen of those
// behind routers, and each side sees its own alone.
func TestCaseL1KindsSideBySide(t *testing.T) {
	before := ""
	var seen [2]string
	for i, run := range []string{"0000004a", "0000004b"} {
		if i == 0 {
			worldtest.Need(t)
			before = worldtest.Surroundings(t)
		}
		c := newCity(t, run)
		pub, tenant, in := c.machine("pub"), c.machine("tenant"), c.machine("in")
		says(t, pub, ":80", run)
		for _, m := range []*worldtest.Machine{tenant, in} {
			if got := fetch(t, m, "http://"+pub.NIC.IPv4.Addr().String()+"/"); got != run {
				t.Errorf("in %s the same address leads to %s", run, got)
			}
		}
		a, atA := c.open(pub, 4001)
		mine, _ := c.open(in, 4000)
		seen[i] = c.seen(mine, a, atA).String()
	}
	if seen[0] != seen[1] {
		t.Errorf("one is seen as %s, the other as %s", seen[0], seen[1])
	}
	if diff := cmp.Diff(before, worldtest.Surroundings(t)); diff != "" {
		t.Errorf("the lab machine sees the inside (-before +while raised):\n%s", diff)
	}
}

// TestCaseL13CarrierRange raises a carrier on a lab machine that is a customer of
// one, and has the addresses of its routers.
func TestCaseL13CarrierRange(t *testing.T) {
	worldtest.Need(t)
	occupy(t, "100.64.0.2/10", "203.0.113.4/24", "2001:db8:113::4/64")
	before := worldtest.Surroundings(t)
	c := newCity(t, "0000004c")
	if got := fetch(t, c.machine("tenant"), "http://packages.world.test/debian-13/Packages"); got != "Package: hello\n" {
		t.Errorf("got %q", got)
	}
	if diff := cmp.Diff(before, worldtest.Surroundings(t)); diff != "" {
		t.Errorf("(-before +while raised):\n%s", diff)
	}
}
