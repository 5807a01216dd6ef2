package worldtest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Capture sees every frame that reaches or leaves a machine's link from its
// making on.
type Capture struct {
	t  testing.TB
	fd int
}

// NewCapture begins to capture; it ends with the test.
func NewCapture(m *Machine) *Capture {
	m.t.Helper()
	c := &Capture{t: m.t}
	m.Must(func() (err error) {
		link, err := netlink.LinkByName(Card)
		if err != nil {
			return err
		}
		all := uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8) // in network order: packet(7)
		if c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all)); err != nil {
			return err
		}
		patience := unix.Timeval{Sec: 10}
		if err := unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
			return err
		}
		return unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Attrs().Index})
	})
	m.t.Cleanup(func() { unix.Close(c.fd) })
	return c
}

// Until gives all frames before the first that holds mark.
func (c *Capture) Until(mark string) (frames [][]byte) {
	c.t.Helper()
	for {
		frame := make([]byte, 2048)
		n, _, err := unix.Recvfrom(c.fd, frame, 0)
		if err != nil {
			c.t.Fatalf("no frame with %q among %d: %v", mark, len(frames), err)
		}
		if bytes.Contains(frame[:n], []byte(mark)) {
			return frames
		}
		frames = append(frames, frame[:n])
	}
}

// Shout sends text in a datagram to everybody on the machine's segment.
func (m *Machine) Shout(ctx context.Context, text string) {
	m.t.Helper()
	m.Must(func() error {
		lc := net.ListenConfig{}
		conn, err := lc.ListenPacket(ctx, "udp4", netip.AddrPortFrom(m.NIC.IPv4.Addr(), 0).String())
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.WriteTo([]byte(text), &net.UDPAddr{IP: net.IPv4bcast, Port: 9})
		return err
	})
}

// Surroundings describes the links, addresses, routes and rules of the lab
// machine that the test runs on, one a line.
func Surroundings(t testing.TB) string {
	t.Helper()
	var lines []string
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		lines = append(lines, fmt.Sprintf("link %s %s %s", l.Attrs().Name, l.Type(), l.Attrs().Flags))
	}
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		lines = append(lines, fmt.Sprintf("address %s on %d", a.IPNet, a.LinkIndex))
	}
	every := &netlink.Route{Table: unix.RT_TABLE_UNSPEC}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, every, netlink.RT_FILTER_TABLE)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes {
		lines = append(lines, "route "+r.String())
	}
	rules, err := netlink.RuleList(netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		lines = append(lines, "rule "+r.String())
	}
	return strings.Join(lines, "\n") + "\n"
}
