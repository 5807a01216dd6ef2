package advertisement

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/mdlayher/ndp"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/ipv6"
	"golang.org/x/sync/errgroup"
)

// interval is the time between advertisements that nobody asked for.
const interval = 4 * time.Second

// RFC 4291, section 2.7.1.
var (
	allNodes   = netip.MustParseAddr("ff02::1")
	allRouters = netip.MustParseAddr("ff02::2")
)

// Server advertises on one segment.
type Server struct {
	config Config
	log    *slog.Logger
	conn   *ndp.Conn
	mac    net.HardwareAddr
}

// Listen opens a server on a link of the namespace that the calling thread is
// in; it stays there. The link must have a link-local address. Serve closes it.
func Listen(link string, c Config, log *slog.Logger) (*Server, error) {
	s := &Server{config: c, log: log.With("segment", c.Segment)}
	err := s.listen(link)
	if err != nil {
		return nil, fmt.Errorf("router advertisements of segment %s on %s: %v", c.Segment, link, err)
	}
	return s, nil
}

func (s *Server) listen(link string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	s.mac = l.Attrs().HardwareAddr
	// Package net keeps one table of zone names for the whole process, whatever
	// namespace a name is of. A number stands for itself in all of them.
	numbered := &net.Interface{
		Index: l.Attrs().Index, Name: strconv.Itoa(l.Attrs().Index), MTU: l.Attrs().MTU, HardwareAddr: s.mac,
	}
	if s.conn, _, err = ndp.Listen(numbered, ndp.LinkLocal); err != nil {
		return err
	}
	var only ipv6.ICMPFilter
	only.SetAll(true)
	only.Accept(ipv6.ICMPTypeRouterSolicitation)
	err = s.conn.SetICMPFilter(&only)
	if err == nil {
		err = s.conn.JoinGroup(allRouters)
	}
	if err != nil {
		s.conn.Close()
	}
	return err
}

// Serve advertises every few seconds, and at once when asked, until ctx is done,
// which is no error.
func (s *Server) Serve(ctx context.Context) error {
	defer s.conn.Close()
	group, ctx := errgroup.WithContext(ctx)
	asked := make(chan struct{}, 1) // many questions, one answer to all
	group.Go(func() error { return s.listenTo(ctx, asked) })
	group.Go(func() error {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			s.advertise()
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
			case <-asked:
			}
		}
	})
	return group.Wait()
}

// listenTo passes on that somebody asked.
func (s *Server) listenTo(ctx context.Context, asked chan<- struct{}) error {
	defer context.AfterFunc(ctx, func() { s.conn.SetReadDeadline(time.Unix(1, 0)) })()
	for {
		_, _, from, err := s.conn.ReadFrom()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("router advertisements of segment %s: receive: %v", s.config.Segment, err)
		}
		s.log.Debug("router solicited", "from", from)
		select {
		case asked <- struct{}{}:
		default:
		}
	}
}

// advertise sends one. That it cannot is not the server's end: the next follows.
func (s *Server) advertise() {
	if err := s.conn.WriteTo(s.config.Message(s.mac), nil, allNodes); err != nil {
		s.log.Warn("router advertisement is not sent", "err", err)
	}
}
