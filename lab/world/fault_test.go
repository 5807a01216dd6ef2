package world_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"

	"mesh/lab/fault"
	"mesh/lab/underlay"
	"mesh/lab/world"
	"mesh/lab/world/namespace"
	"mesh/lab/world/network"
	"mesh/lab/world/worldtest"
)

// bed is a running town with a machine outside, two in a home and one in an
// office, all with addresses.
type bed struct {
	t      testing.TB
	u      underlay.Underlay
	client *world.Client

	pub, shop, in, desk *worldtest.Machine
}

func newBed(t testing.TB, run string) *bed {
	t.Helper()
	worldtest.Need(t)
	u := plan(t, town, run)
	c := config(t, u)
	start(t, c)
	return &bed{
		t: t, u: u, client: world.NewClient(c.Control),
		pub: up(t, u, "pub"), shop: up(t, u, "shop"), in: up(t, u, "in"), desk: up(t, u, "desk"),
	}
}

// strike makes exactly these faults be in force.
func (b *bed) strike(faults ...fault.Fault) {
	b.t.Helper()
	for i := range faults {
		f, err := fault.Resolve(faults[i], b.u)
		if err != nil {
			b.t.Fatal(err)
		}
		faults[i] = fault.Named(f, func(string) bool { return false })
	}
	text, err := json.Marshal(world.State{Faults: faults})
	if err == nil {
		err = b.client.SetState(b.t.Context(), text)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// on reads targets.
func on(t testing.TB, words ...string) (targets []fault.Target) {
	t.Helper()
	for _, w := range words {
		target, err := fault.ParseTarget(w)
		if err != nil {
			t.Fatal(err)
		}
		targets = append(targets, target)
	}
	return targets
}

// datagrams sends n numbered datagrams from one machine to another and counts
// those that arrive. before is what is waited for after the last.
func datagrams(t testing.TB, from, to *worldtest.Machine, at netip.Addr, n int) int {
	t.Helper()
	var receiver net.PacketConn
	to.Must(func() (err error) {
		receiver, err = net.ListenPacket("udp", netip.AddrPortFrom(at, 0).String())
		return err
	})
	defer receiver.Close()
	sender, err := from.Dial(soon(t), "udp", receiver.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	got := make(chan int)
	go func() {
		count, buffer := 0, make([]byte, 64)
		for {
			size, _, err := receiver.ReadFrom(buffer)
			if err != nil || string(buffer[:size]) == "end" {
				got <- count
				return
			}
			count++
		}
	}()
	for i := range n {
		if _, err := fmt.Fprint(sender, i); err != nil {
			t.Fatal(err)
		}
		if i%50 == 49 {
			time.Sleep(time.Millisecond) // within the receiver's buffer
		}
	}
	receiver.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	fmt.Fprint(sender, "end")
	return <-got
}

// TestLoss loses about as much as is said, and in the direction that is said.
func TestLoss(t *testing.T) {
	b := newBed(t, "00000021")
	const n = 4000
	shop, pub := b.shop.NIC.IPv4.Addr(), b.pub.NIC.IPv4.Addr()
	for _, c := range []struct {
		direction fault.Direction
		away, to  float64 // expected loss of what pub sends to shop, and back
	}{
		{fault.Out, 0.3, 0}, {fault.In, 0, 0.3}, {fault.Both, 0.3, 0.3},
	} {
		b.strike(fault.Fault{Kind: fault.Loss, On: on(t, "pub"), Share: 300_000, Direction: c.direction})
		for _, way := range []struct {
			from, to *worldtest.Machine
			at       netip.Addr
			want     float64
		}{{b.pub, b.shop, shop, c.away}, {b.shop, b.pub, pub, c.to}} {
			warm(t, way.from, way.at)
			lost := 1 - float64(datagrams(t, way.from, way.to, way.at, n))/n
			if math.Abs(lost-way.want) > 0.05 || way.want == 0 && lost > 0.01 {
				t.Errorf("%s: %.1f %% of what is sent to %s is lost, want %.0f %%", c.direction, 100*lost, way.at, 100*way.want)
			}
		}
	}
	b.strike()
	if got := datagrams(t, b.pub, b.shop, shop, 100); got != 100 {
		t.Errorf("undone: %d of 100 arrive", got)
	}
}

// warm lets neighbours find each other, through loss.
func warm(t testing.TB, from *worldtest.Machine, to netip.Addr) {
	t.Helper()
	conn, err := from.Dial(soon(t), "tcp", netip.AddrPortFrom(to, 9).String())
	if err == nil {
		conn.Close()
	} else if !strings.Contains(err.Error(), "refused") {
		t.Fatalf("%s is not reached: %v", to, err)
	}
}

// reached tells whether a machine hears another.
func reached(t testing.TB, from *worldtest.Machine, to netip.Addr) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	conn, err := from.Dial(ctx, "tcp", netip.AddrPortFrom(to, 9).String())
	if err == nil {
		conn.Close()
	}
	return err == nil || strings.Contains(err.Error(), "refused")
}

// TestPartition cuts exactly between the two sides, whether they share a
// segment, are routed to each other, or are translated.
func TestPartition(t *testing.T) {
	b := newBed(t, "00000022")
	b.in.Autoconf(soon(t))
	b.pub.Autoconf(soon(t))
	addr := func(m *worldtest.Machine) netip.Addr { return m.NIC.IPv4.Addr() }
	services := netip.MustParseAddr("203.0.113.2")
	ways := []struct {
		name string
		from *worldtest.Machine
		to   netip.Addr
	}{
		{"pub>shop", b.pub, addr(b.shop)}, {"shop>pub", b.shop, addr(b.pub)},
		{"in>pub", b.in, addr(b.pub)}, {"in>pub6", b.in, b.pub.NIC.IPv6.Addr()},
		{"in>shop", b.in, addr(b.shop)}, {"pub>desk", b.pub, addr(b.desk)}, {"desk>pub", b.desk, addr(b.pub)},
		{"pub>world", b.pub, services}, {"in>world", b.in, services},
	}
	for _, c := range []struct {
		name  string
		fault fault.Fault
		cut   string
	}{
		{"none", fault.Fault{}, ""},
		{"same segment", fault.Fault{On: on(t, "pub"), From: on(t, "shop")}, "pub>shop shop>pub"},
		{"behind a translator", fault.Fault{On: on(t, "machine:in"), From: on(t, "pub")}, "in>pub in>pub6"},
		{"routed", fault.Fault{On: on(t, "pub"), From: on(t, "segment:office")}, "pub>desk desk>pub"},
		{"from the world", fault.Fault{On: on(t, "pub", "in"), From: on(t, "world")}, "pub>world in>world"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.t = t
			if c.fault.On == nil {
				b.strike()
			} else {
				c.fault.Kind = fault.Partition
				b.strike(c.fault)
			}
			var cut []string
			for _, way := range ways {
				if !reached(t, way.from, way.to) {
					cut = append(cut, way.name)
				}
			}
			if got := strings.Join(cut, " "); got != c.cut {
				t.Errorf("cut: %q, want %q", got, c.cut)
			}
		})
	}
}

// TestPartitionOneWay lets datagrams pass one way only.
func TestPartitionOneWay(t *testing.T) {
	b := newBed(t, "00000023")
	shop, pub := b.shop.NIC.IPv4.Addr(), b.pub.NIC.IPv4.Addr()
	warm(t, b.pub, shop)
	b.strike(fault.Fault{Kind: fault.Partition, On: on(t, "pub"), From: on(t, "shop"), Direction: fault.Out})
	if got := datagrams(t, b.pub, b.shop, shop, 20); got != 0 {
		t.Errorf("%d of 20 datagrams pass the cut", got)
	}
	if got := datagrams(t, b.shop, b.pub, pub, 20); got != 20 {
		t.Errorf("%d of 20 datagrams pass the other way", got)
	}
}

// TestRate passes about as much as is said.
func TestRate(t *testing.T) {
	b := newBed(t, "00000024")
	l := b.shop.Listen(netip.AddrPortFrom(b.shop.NIC.IPv4.Addr(), 0).String())
	received := make(chan int64, 1)
	serve := func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		n, _ := io.Copy(io.Discard, conn)
		received <- n
	}
	const span = 2 * time.Second
	for _, rate := range []fault.Rate{4_000_000, 16_000_000} {
		b.strike(fault.Fault{Kind: fault.RateLimit, On: on(t, "pub"), Rate: rate, Direction: fault.Out})
		go serve()
		conn, err := b.pub.Dial(soon(t), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn.SetWriteDeadline(time.Now().Add(span))
		_, _ = io.Copy(conn, zeros{}) // until the deadline
		conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
		got := float64(<-received) * 8 / span.Seconds() / float64(rate)
		t.Logf("%v: %.2f of it", rate, got)
		if got > 1.2 || got < 0.5 {
			t.Errorf("%v: %.2f times that was received", rate, got)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestDelay delays each direction by itself, adds up, and lets large transfers
// through whole.
func TestDelay(t *testing.T) {
	b := newBed(t, "00000025")
	l := b.shop.Listen(netip.AddrPortFrom(b.shop.NIC.IPv4.Addr(), 0).String())
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer conn.Close(); io.Copy(conn, conn) }()
		}
	}()
	trip := func(from *worldtest.Machine) time.Duration {
		t.Helper()
		conn, err := from.Dial(soon(t), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		begun := time.Now()
		buffer := make([]byte, 1)
		if _, err := conn.Write(buffer); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, buffer); err != nil {
			t.Fatal(err)
		}
		return time.Since(begun)
	}
	ms := fault.Duration(time.Millisecond)
	b.strike(
		fault.Fault{Name: "away", Kind: fault.Delay, On: on(t, "pub"), Delay: 100 * ms, Direction: fault.Out},
		fault.Fault{Name: "back", Kind: fault.Delay, On: on(t, "pub"), Delay: 50 * ms, Jitter: 10 * ms, Direction: fault.In},
		fault.Fault{Name: "gate", Kind: fault.Delay, On: on(t, "router:box"), Delay: 70 * ms},
	)
	for _, c := range []struct {
		from *worldtest.Machine
		want time.Duration
	}{{b.pub, 150 * time.Millisecond}, {b.in, 140 * time.Millisecond}} {
		if got := trip(c.from); got < c.want-11*time.Millisecond || got > c.want+150*time.Millisecond {
			t.Errorf("a round trip from %s takes %v, want about %v", c.from.Space, got, c.want)
		}
	}
	b.strike(fault.Fault{Kind: fault.Delay, On: on(t, "segment:public"), Delay: 20 * ms})
	if got := trip(b.pub); got < 40*time.Millisecond {
		t.Errorf("a round trip through the segment takes %v, want 40 ms", got)
	}
	large(t, b, l.Addr().String())
	b.strike()
	if got := trip(b.pub); got > 20*time.Millisecond {
		t.Errorf("undone: a round trip takes %v", got)
	}
}

// large sends more than any queue holds, whole.
func large(t *testing.T, b *bed, at string) {
	t.Helper()
	conn, err := b.pub.Dial(soon(t), "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const size = 1 << 20
	go func() {
		conn.Write(make([]byte, size))
		conn.(*net.TCPConn).CloseWrite()
	}()
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := io.Copy(io.Discard, conn); n != size || err != nil {
		t.Errorf("%d of %d bytes came back: %v", n, size, err)
	}
}

// TestLinkDown cuts a whole site off.
func TestLinkDown(t *testing.T) {
	b := newBed(t, "00000026")
	b.strike(fault.Fault{Kind: fault.LinkDown, On: on(t, "router:box")})
	if reached(t, b.in, b.pub.NIC.IPv4.Addr()) {
		t.Error("the home reaches out")
	}
	if !reached(t, b.desk, b.pub.NIC.IPv4.Addr()) {
		t.Error("the office does not")
	}
	b.strike()
	warm(t, b.in, b.pub.NIC.IPv4.Addr())
}

// TestDNSFailing answers as is said, for the zone that is said.
func TestDNSFailing(t *testing.T) {
	b := newBed(t, "00000027")
	ask := func(name string) string {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		a, err := b.pub.Ask(ctx, "udp", name, dns.TypeA)
		if err != nil {
			return "silence"
		}
		return dns.RcodeToString[a.Rcode]
	}
	for _, c := range []struct {
		fault      fault.Fault
		acme, shop string
	}{
		{fault.Fault{}, "SERVFAIL", "SERVFAIL"},
		{fault.Fault{How: fault.Silent}, "silence", "silence"},
		{fault.Fault{How: fault.NXDomain, Zone: "ACME.world.test"}, "NXDOMAIN", "NOERROR"},
		{fault.Fault{Zone: "me.world.test"}, "NOERROR", "NOERROR"},
	} {
		c.fault.Kind = fault.DNSFailing
		b.strike(c.fault)
		if acme, shop := ask("acme.world.test"), ask("shop.world.test"); acme != c.acme || shop != c.shop {
			t.Errorf("%v: acme %s, shop %s; want %s, %s", c.fault, acme, shop, c.acme, c.shop)
		}
	}
	b.strike()
	if got := ask("acme.world.test"); got != "NOERROR" {
		t.Errorf("undone: %s", got)
	}
}

// TestServiceStopped stops each service, says so, and starts it again.
func TestServiceStopped(t *testing.T) {
	b := newBed(t, "00000028")
	at := netip.MustParseAddr("203.0.113.2")
	refused := func(port uint16) bool {
		conn, err := b.pub.Dial(soon(t), "tcp", netip.AddrPortFrom(at, port).String())
		if err == nil {
			conn.Close()
		}
		return err != nil && strings.Contains(err.Error(), "refused")
	}
	ports := map[string]uint16{"dns": 53, "issuer": 14000, "artefacts": 80}
	for service, port := range ports {
		b.strike(fault.Fault{Name: "x", Kind: fault.ServiceStopped, On: on(t, service)})
		for other, its := range ports {
			if got := refused(its); got != (other == service) {
				t.Errorf("%s stopped: port %d refused: %v", service, port, got)
			}
		}
		status, err := b.client.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range status.Services {
			if want := "stopped by fault x"; s.OK == (s.Name == service) || !s.OK && s.Why != want {
				t.Errorf("%s stopped: status %+v", service, s)
			}
		}
	}
	b.strike(fault.Fault{Kind: fault.ServiceStopped, On: on(t, "dhcp", "service:router-advertisement")})
	m := worldtest.NewMachine(t, b.u, "robin")
	if m.LeasesWithin(300 * time.Millisecond) {
		t.Error("an address is given though nobody gives addresses")
	}
	b.strike()
	m.Lease(soon(t))
	if refused(53) || refused(80) || refused(14000) {
		t.Error("undone: something is still stopped")
	}
}

// TestCapture keeps what passes between two machines of a segment, and nothing
// of what does not pass it.
func TestCapture(t *testing.T) {
	worldtest.Need(t)
	u := plan(t, town, "0000002c")
	c := config(t, u)
	start(t, c)
	pub, shop := up(t, u, "pub"), up(t, u, "shop")
	l := shop.Listen(netip.AddrPortFrom(shop.NIC.IPv4.Addr(), 0).String())
	conn, err := pub.Dial(soon(t), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "from pub to shop"); err != nil {
		t.Fatal(err)
	}
	holds := func(segment string) bool {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(c.Log), "captures", segment+".pcap"))
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Contains(text, []byte("from pub to shop"))
	}
	for ctx := soon(t); !holds("public"); {
		select {
		case <-ctx.Done():
			t.Fatal("the capture does not show what was sent")
		case <-time.After(50 * time.Millisecond):
		}
	}
	if holds("home") {
		t.Error("the capture of another segment shows it")
	}
}

// TestFiltersAreTaken loads every filter that is a golden file, and again, into
// the kernel.
func TestFiltersAreTaken(t *testing.T) {
	worldtest.Need(t)
	files, err := filepath.Glob("impairment/testdata/*.nft")
	if err != nil || len(files) < 5 {
		t.Fatalf("%v, %v", files, err)
	}
	const space = "filters"
	if _, err := namespace.Create(space); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { namespace.Remove(space) })
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := network.Load(t.Context(), space, string(text)); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

// TestDelayAfterPowerCut delays a machine whose link is made anew, as that of one
// that boots again is.
func TestDelayAfterPowerCut(t *testing.T) {
	b := outside(t, "0000002d")
	b.strike(fault.Fault{Kind: fault.Delay, On: on(t, "pub"), Delay: fault.Duration(60 * time.Millisecond)})
	b.pub.Must(func() error {
		card, err := netlink.LinkByName(worldtest.Card)
		if err != nil {
			return err
		}
		return netlink.LinkDel(card)
	})
	again := worldtest.NewMachine(t, b.u, "pub")
	again.Up()
	again.Lease(soon(t))
	for ctx, late := soon(t), 0; late < 5; { // one alone may be late by itself
		begun := time.Now()
		conn, err := again.Dial(ctx, "tcp", "203.0.113.2:80")
		if err == nil {
			conn.Close()
		}
		if late++; err != nil || time.Since(begun) < 120*time.Millisecond {
			late = 0
		}
		if ctx.Err() != nil {
			t.Fatal("what it sends is not delayed")
		}
	}
}
