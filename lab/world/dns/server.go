package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
)

// Server serves a zone on some addresses, over UDP and TCP.
type Server struct {
	zone    *Zone
	log     *slog.Logger
	trouble *Trouble
	servers []*dns.Server
}

// Listen opens both transports on each address, in the namespace that the
// calling thread is in. Serve closes them. Nil trouble is none, ever.
func Listen(addrs []netip.AddrPort, zone *Zone, trouble *Trouble, log *slog.Logger) (*Server, error) {
	s := &Server{zone: zone, trouble: trouble, log: log}
	for _, at := range addrs {
		packets, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listen for DNS: %v", err), s.close())
		}
		s.add(&dns.Server{PacketConn: packets})
		// Where any port will do, the one that UDP got.
		at = netip.AddrPortFrom(at.Addr(), uint16(packets.LocalAddr().(*net.UDPAddr).Port))
		streams, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listen for DNS: %v", err), s.close())
		}
		s.add(&dns.Server{Listener: streams})
	}
	return s, nil
}

func (s *Server) add(server *dns.Server) {
	limit := streamLimit
	if server.PacketConn != nil {
		limit = packetLimit
	}
	server.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		a, silent := s.trouble.answer(q)
		if silent {
			s.log.Debug("name asked, and not answered", "from", w.RemoteAddr().String())
			return
		}
		if a == nil {
			a = s.zone.Answer(q, limit(q))
		}
		if len(q.Question) == 1 {
			s.log.Debug("name asked", "from", w.RemoteAddr().String(), "name", q.Question[0].Name,
				"type", dns.TypeToString[q.Question[0].Qtype], "answer", dns.RcodeToString[a.Rcode])
		}
		if err := w.WriteMsg(a); err != nil {
			s.log.Debug("name answer is not sent", "err", err)
		}
	})
	s.servers = append(s.servers, server)
}

func streamLimit(*dns.Msg) int { return dns.MaxMsgSize }

// packetLimit is what the asker takes, within what passes every network.
func packetLimit(q *dns.Msg) int {
	if opt := q.IsEdns0(); opt != nil {
		return min(maxUDP, max(dns.MinMsgSize, int(opt.UDPSize())))
	}
	return dns.MinMsgSize
}

// Addr is where the first address is served.
func (s *Server) Addr() netip.AddrPort {
	return s.servers[0].PacketConn.LocalAddr().(*net.UDPAddr).AddrPort()
}

// Serve answers until ctx is done, which is no error.
func (s *Server) Serve(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, server := range s.servers {
		started := make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		ended := make(chan struct{})
		group.Go(func() error {
			defer close(ended)
			if err := server.ActivateAndServe(); err != nil && ctx.Err() == nil {
				return fmt.Errorf("serve DNS: %v", err)
			}
			return nil
		})
		group.Go(func() error {
			select {
			case <-ended:
				return nil
			case <-ctx.Done():
			}
			select { // it knows no shutdown before its start
			case <-ended:
			case <-started:
				stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
				defer cancel()
				server.ShutdownContext(stop) // says no more than that somebody was still asking
			}
			return nil
		})
	}
	return group.Wait()
}

func (s *Server) close() error {
	var errs []error
	for _, server := range s.servers {
		if server.PacketConn != nil {
			errs = append(errs, server.PacketConn.Close())
		} else {
			errs = append(errs, server.Listener.Close())
		}
	}
	return errors.Join(errs...)
}
