package gateway

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"time"
)

// strangerLifetime is how long a connection may stay open that shows no node's key.
const strangerLifetime = 2 * time.Minute

// strangers bounds the connections that have not shown a node's key: of one source
// no more are taken than its share, which leaves room for others, and where all
// sources together have too many, the oldest ends. Nodes are not counted.
type strangers struct {
	perSource int
	inAll     int
	lifetime  time.Duration

	mu    sync.Mutex
	of    map[netip.Addr]int
	order *list.List // of *stranger, oldest first
}

func newStrangers(l Limits) *strangers {
	return &strangers{
		perSource: l.StrangersPerSource, inAll: l.Strangers, lifetime: strangerLifetime,
		of: map[netip.Addr]int{}, order: list.New(),
	}
}

// guard is l with its connections bounded.
func (s *strangers) guard(l net.Listener) net.Listener { return guarded{l, s} }

type guarded struct {
	net.Listener
	strangers *strangers
}

func (g guarded) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if taken := g.strangers.take(c); taken != nil {
			return taken, nil
		}
		c.Close()
	}
}

// stranger is a connection. It is counted until it is known or closed.
type stranger struct {
	net.Conn
	of     *strangers
	source netip.Addr
	place  *list.Element // guarded by strangers.mu; nil: not counted
	end    *time.Timer
}

// take counts c; nil where its source has too many.
func (s *strangers) take(c net.Conn) *stranger {
	added := &stranger{Conn: c, of: s, source: sourceOf(c.RemoteAddr().String())}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[added.source] >= s.perSource {
		return nil
	}
	if s.order.Len() >= s.inAll {
		oldest := s.order.Front().Value.(*stranger)
		s.forgetLocked(oldest)
		oldest.Conn.Close()
	}
	s.of[added.source]++
	added.place = s.order.PushBack(added)
	added.end = time.AfterFunc(s.lifetime, func() { added.Close() })
	return added
}

// known says that the connection is a node's.
func (c *stranger) known() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.of.forgetLocked(c)
}

func (c *stranger) Close() error {
	c.known()
	return c.Conn.Close()
}

func (s *strangers) forgetLocked(c *stranger) {
	if c.place == nil {
		return
	}
	c.end.Stop()
	s.order.Remove(c.place)
	c.place = nil
	if s.of[c.source]--; s.of[c.source] == 0 {
		delete(s.of, c.source)
	}
}

// strangerOf finds the connection that the server knows as c.
func strangerOf(c net.Conn) *stranger { return c.(*tls.Conn).NetConn().(*stranger) }
