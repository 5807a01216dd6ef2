package dhcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/server4"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Server serves one segment. Leases may be called at any time.
type Server struct {
	config Config
	log    *slog.Logger
	link   int
	conn   *net.UDPConn
	routes *netlink.Handle

	mu     sync.Mutex
	leases map[string]string
}

// Listen opens a server on a link of the namespace that the calling thread is
// in; it stays there. Serve closes it.
func Listen(link string, c Config, log *slog.Logger) (*Server, error) {
	where := fmt.Sprintf("lease server of segment %s on %s", c.Segment, link)
	l, err := netlink.LinkByName(link)
	if err != nil {
		return nil, fmt.Errorf("%s: %v", where, err)
	}
	routes, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("%s: %v", where, err)
	}
	conn, err := server4.NewIPv4UDPConn(link, &net.UDPAddr{IP: net.IPv4zero, Port: dhcpv4.ServerPort})
	if err != nil {
		routes.Close()
		return nil, fmt.Errorf("%s: %v", where, err)
	}
	return &Server{
		config: c, log: log.With("segment", c.Segment), link: l.Attrs().Index,
		conn: conn, routes: routes, leases: map[string]string{},
	}, nil
}

// Serve answers until ctx is done, which is no error.
func (s *Server) Serve(ctx context.Context) error {
	defer s.routes.Close()
	defer s.conn.Close()
	defer context.AfterFunc(ctx, func() { s.conn.SetReadDeadline(time.Unix(1, 0)) })()
	// RFC 2131 knows no greatest size; Ethernet does.
	packet := make([]byte, 1500)
	for {
		n, _, err := s.conn.ReadFromUDPAddrPort(packet)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, unix.ENETDOWN) {
			continue // said once when the link goes down; it may come back
		}
		if err != nil {
			return fmt.Errorf("lease server of segment %s: receive: %v", s.config.Segment, err)
		}
		m, err := dhcpv4.FromBytes(packet[:n])
		if err != nil {
			s.log.Warn("lease request is malformed", "err", err)
			continue
		}
		s.handle(m)
	}
}

// handle answers one message. A reply that cannot be sent is not the server's
// end: the client asks again.
func (s *Server) handle(m *dhcpv4.DHCPv4) {
	v := s.config.Answer(m)
	mac := m.ClientHWAddr.String()
	log := s.log.With("mac", mac, "message", m.MessageType().String(), "why", v.Why)
	if v.Reply == nil && v.Odd {
		log.Warn("lease request is not answered")
		return
	}
	if v.Reply == nil {
		log.Info("lease message noted")
		return
	}
	address := address(v.Reply.YourIPAddr)
	if err := s.send(v.Reply); err != nil {
		log.Warn("lease reply is not sent", "err", err)
		return
	}
	if v.Reply.MessageType() == dhcpv4.MessageTypeAck && address.IsValid() {
		s.mu.Lock()
		s.leases[mac] = address.String()
		s.mu.Unlock()
	}
	log.Info("lease request answered", "reply", v.Reply.MessageType().String(), "address", address)
}

func (s *Server) send(reply *dhcpv4.DHCPv4) error {
	to, neighbour := destination(reply)
	if neighbour {
		// The client does not answer ARP for an address that it does not have yet.
		err := s.routes.NeighSet(&netlink.Neigh{
			LinkIndex: s.link, IP: to.AsSlice(), HardwareAddr: reply.ClientHWAddr,
			State: netlink.NUD_REACHABLE, Family: unix.AF_INET,
		})
		if err != nil {
			return fmt.Errorf("tell the kernel who %s will be: %v", to, err)
		}
	}
	_, err := s.conn.WriteToUDPAddrPort(reply.ToBytes(), netip.AddrPortFrom(to, dhcpv4.ClientPort))
	return err
}

// Leases are the addresses as last acknowledged, by MAC.
func (s *Server) Leases() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.leases)
}
