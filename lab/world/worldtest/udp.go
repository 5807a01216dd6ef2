package worldtest

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Socket is a UDP socket on a machine; it ends with the test.
type Socket struct {
	m    *Machine
	conn *net.UDPConn
}

// UDP opens a socket that neither cuts packets nor lets them be cut.
func (m *Machine) UDP(ctx context.Context, at netip.AddrPort) *Socket {
	m.t.Helper()
	s := &Socket{m: m}
	m.Must(func() error {
		conn, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", at.String())
		if err != nil {
			return err
		}
		s.conn = conn.(*net.UDPConn)
		return s.control(func(fd int) error {
			if at.Addr().Is4() {
				return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
			}
			return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
		})
	})
	m.t.Cleanup(func() { s.conn.Close() })
	return s
}

func (s *Socket) control(f func(fd int) error) error {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return err
	}
	done := raw.Control(func(fd uintptr) { err = f(int(fd)) })
	return errors.Join(done, err)
}

// Send sends text. The error is the kernel's, such as unix.EMSGSIZE for what is
// known to be too long on its way.
func (s *Socket) Send(to netip.AddrPort, text string) error {
	_, err := s.conn.WriteToUDPAddrPort([]byte(text), to)
	return err
}

// Hears waits a while for a text and tells who sent it; false if it does not come.
func (s *Socket) Hears(text string, within time.Duration) (from netip.AddrPort, ok bool) {
	s.m.t.Helper()
	if err := s.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		s.m.t.Fatal(err)
	}
	packet := make([]byte, 2048)
	for {
		n, from, err := s.conn.ReadFromUDPAddrPort(packet)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return netip.AddrPort{}, false
		case err != nil: // of something sent before
		case string(packet[:n]) == text:
			return netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), true
		}
	}
}
