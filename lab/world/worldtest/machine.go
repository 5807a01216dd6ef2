package worldtest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"mesh/lab/underlay"
	"mesh/lab/world"
	"mesh/lab/world/namespace"
)

// Card is the name of a machine's only link.
const Card = "eth0"

// Machine is a namespace with one link, which stands where a virtual machine's
// would: its other end is the tap. Its IPv6 is the kernel's own.
type Machine struct {
	Space string
	NIC   underlay.NIC
	DNS   netip.Addr // the resolver, once it has one

	t testing.TB
}

// NewMachine makes a machine of u and attaches its first NIC. Like the tap of a
// virtual machine that does not run yet, its link has a carrier, the bridge
// forwards what it would send, and it sends nothing. It is removed with the test.
func NewMachine(t testing.TB, u underlay.Underlay, name string) *Machine {
	t.Helper()
	m := &Machine{Space: "machine-" + u.Run + "-" + name, t: t}
	for _, declared := range u.Machines {
		if declared.Name == name {
			m.NIC = declared.NICs[0]
		}
	}
	if m.NIC.Tap == "" {
		t.Fatalf("the scenario has no machine %s", name)
	}
	if _, err := namespace.Create(m.Space); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := namespace.Remove(m.Space); err != nil {
			t.Error(err)
		}
	})
	if err := m.plug(); err != nil {
		t.Fatal(err)
	}
	forwards := m.watch(u.Namespace)
	if err := world.Attach(u, m.NIC.Tap); err != nil {
		t.Fatal(err)
	}
	forwards()
	return m
}

// plug makes the link, with its other end still on the lab machine.
func (m *Machine) plug() error {
	mac, err := net.ParseMAC(m.NIC.MAC)
	if err != nil {
		return err
	}
	return m.Do(func() error {
		// None of the kernel's own waiting, so that what is left is the world's.
		for path, value := range map[string]string{
			"disable_ipv6": "1", "dad_transmits": "0", "router_solicitation_delay": "0",
		} {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/"+path, []byte(value), 0); err != nil {
				return err
			}
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.HardwareAddr = Card, mac
		err := netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: attrs, PeerName: m.NIC.Tap, PeerNamespace: netlink.NsPid(unix.Getpid()),
		})
		if err != nil {
			return err
		}
		for _, name := range []string{"lo", Card} {
			link, err := netlink.LinkByName(name)
			if err == nil {
				err = netlink.LinkSetUp(link)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// watch returns what waits for the bridge's port to forward.
func (m *Machine) watch(world string) (forwards func()) {
	changes, done := make(chan netlink.LinkUpdate, 64), make(chan struct{})
	err := namespace.Do(world, func() error { return netlink.LinkSubscribe(changes, done) })
	if err != nil {
		m.t.Fatal(err)
	}
	return func() {
		defer close(done)
		patience := time.After(10 * time.Second)
		for {
			select {
			case change := <-changes:
				if change.Attrs().Name == m.NIC.Tap && change.Attrs().OperState == netlink.OperUp {
					return
				}
			case <-patience:
				m.t.Fatalf("%s has no carrier after 10 s", m.Space)
			}
		}
	}
}

// Up lets the machine's own kernel begin with IPv6; what it does with IPv4 is
// Lease's.
func (m *Machine) Up() {
	m.t.Helper()
	m.Must(func() error {
		return os.WriteFile("/proc/sys/net/ipv6/conf/"+Card+"/disable_ipv6", []byte("0"), 0)
	})
}

// Do runs f in the machine; see namespace.Do.
func (m *Machine) Do(f func() error) error { return namespace.Do(m.Space, f) }

// Must is Do for what may not fail.
func (m *Machine) Must(f func() error) {
	m.t.Helper()
	if err := m.Do(f); err != nil {
		m.t.Fatal(err)
	}
}

// Lease asks for an address as a machine does and takes it: address, way out,
// resolver.
func (m *Machine) Lease(ctx context.Context) *nclient4.Lease {
	m.t.Helper()
	var lease *nclient4.Lease
	m.Must(func() error {
		client, err := nclient4.New(Card, nclient4.WithTimeout(2*time.Second))
		if err != nil {
			return err
		}
		defer client.Close()
		if lease, err = client.Request(ctx); err != nil {
			return err
		}
		return m.take(lease)
	})
	return lease
}

// Unplug takes the cable away for a moment: whoever looks after the link forgets
// what it was given.
func (m *Machine) Unplug() {
	m.t.Helper()
	m.Must(func() error {
		link, err := netlink.LinkByName(Card)
		if err != nil {
			return err
		}
		addrs, err := netlink.AddrList(link, netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		for _, a := range addrs {
			if err := netlink.AddrDel(link, &a); err != nil {
				return err
			}
		}
		if err := netlink.LinkSetDown(link); err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
}

func (m *Machine) take(lease *nclient4.Lease) error {
	link, err := netlink.LinkByName(Card)
	if err != nil {
		return err
	}
	mask := lease.ACK.SubnetMask()
	err = netlink.AddrReplace(link, &netlink.Addr{IPNet: &net.IPNet{IP: lease.ACK.YourIPAddr, Mask: mask}})
	if err != nil {
		return err
	}
	if routers := lease.ACK.Router(); len(routers) > 0 {
		if err := netlink.RouteReplace(&netlink.Route{Gw: routers[0], Dst: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}}); err != nil {
			return err
		}
	}
	if servers := lease.ACK.DNS(); len(servers) > 0 {
		m.DNS, _ = netip.AddrFromSlice(servers[0].To4())
	}
	return nil
}

// Autoconf waits until the machine's kernel has made its global IPv6 address
// and a default route out of an advertisement.
func (m *Machine) Autoconf(ctx context.Context) netip.Addr {
	m.t.Helper()
	changes, done := make(chan netlink.AddrUpdate, 64), make(chan struct{})
	defer close(done)
	m.Must(func() error { return netlink.AddrSubscribe(changes, done) })
	for {
		if a := m.global(); a.IsValid() {
			return a
		}
		select {
		case <-changes:
		case <-ctx.Done():
			m.t.Fatalf("%s has no IPv6 address: %v", m.Space, context.Cause(ctx))
		}
	}
}

// global is the usable address out of an advertisement, if there is one yet.
func (m *Machine) global() (found netip.Addr) {
	m.Must(func() error {
		link, err := netlink.LinkByName(Card)
		if err != nil {
			return err
		}
		addrs, err := netlink.AddrList(link, netlink.FAMILY_V6)
		for _, a := range addrs {
			if a.IP.IsGlobalUnicast() && a.Flags&unix.IFA_F_TENTATIVE == 0 {
				found, _ = netip.AddrFromSlice(a.IP)
			}
		}
		return err
	})
	return found
}

// Ask asks the machine's resolver, over "udp" or "tcp".
func (m *Machine) Ask(ctx context.Context, transport, name string, kind uint16) (*dns.Msg, error) {
	question := new(dns.Msg).SetQuestion(dns.Fqdn(name), kind)
	var answer *dns.Msg
	err := m.Do(func() (err error) {
		client := &dns.Client{Net: transport, Timeout: 2 * time.Second}
		answer, _, err = client.ExchangeContext(ctx, question, netip.AddrPortFrom(m.DNS, 53).String())
		return err
	})
	return answer, err
}

// Dial dials from the machine, by address or by name.
func (m *Machine) Dial(ctx context.Context, network, at string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err != nil {
		answer, err := m.Ask(ctx, "udp", host, dns.TypeA)
		if err != nil {
			return nil, err
		}
		if len(answer.Answer) == 0 {
			return nil, fmt.Errorf("%s: %s", host, dns.RcodeToString[answer.Rcode])
		}
		host = answer.Answer[0].(*dns.A).A.String()
	}
	var conn net.Conn
	err = m.Do(func() (err error) {
		// One address: it is dialled by this very goroutine.
		conn, err = (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(host, port))
		return err
	})
	return conn, err
}

// HTTP is a client on the machine.
func (m *Machine) HTTP() *http.Client {
	return &http.Client{
		Transport: &http.Transport{DialContext: m.Dial, DisableKeepAlives: true},
		Timeout:   10 * time.Second,
	}
}

// Listen listens on the machine for TCP; it ends with the test.
func (m *Machine) Listen(at string) net.Listener {
	m.t.Helper()
	var l net.Listener
	m.Must(func() (err error) {
		l, err = net.Listen("tcp", at)
		return err
	})
	m.t.Cleanup(func() { l.Close() })
	return l
}
