package gateway

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"time"

	"mesh/host/identity"
)

// strangerLifetime is how long a connection may stay open that shows no node's key.
const strangerLifetime = 2 * time.Minute

// strangers bounds the connections that have not shown a node's key: of one source
// no more are taken than its share, which leaves room for others, and where all
// sources together have too many, the oldest ends.
type strangers struct {
	perSource int
	inAll     int
	lifetime  time.Duration
	nodes     *nodes // where those go that have

	mu    sync.Mutex
	of    map[netip.Addr]int
	order *list.List // of *accepted, oldest first
}

func newStrangers(l Limits) *strangers {
	return &strangers{
		perSource: l.StrangersPerSource, inAll: l.Strangers, lifetime: strangerLifetime, nodes: newNodes(l),
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

// accepted is a connection: a stranger's until it is known or closed.
type accepted struct {
	net.Conn
	of     *strangers
	source netip.Addr
	place  *list.Element // guarded by strangers.mu; nil: not counted there
	end    *time.Timer

	// Guarded by nodes.mu.
	node   *identity.NodePublicKey // nil: not counted there
	closed bool
}

// take counts c; nil where its source has too many.
func (s *strangers) take(c net.Conn) *accepted {
	added := &accepted{Conn: c, of: s, source: sourceOf(c.RemoteAddr().String())}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[added.source] >= s.perSource {
		return nil
	}
	if s.order.Len() >= s.inAll {
		oldest := s.order.Front().Value.(*accepted)
		s.forgetLocked(oldest)
		oldest.Conn.Close()
	}
	s.of[added.source]++
	added.place = s.order.PushBack(added)
	added.end = time.AfterFunc(s.lifetime, func() { added.Close() })
	return added
}

// known says that the connection is that of the node with this key.
func (c *accepted) known(key identity.NodePublicKey) {
	c.of.forget(c)
	c.of.nodes.take(key, c)
}

func (c *accepted) Close() error {
	c.of.forget(c)
	c.of.nodes.closed(c)
	return c.Conn.Close()
}

func (s *strangers) forget(c *accepted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked(c)
}

func (s *strangers) forgetLocked(c *accepted) {
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

// acceptedOf finds the connection that the server knows as c.
func acceptedOf(c net.Conn) *accepted { return c.(*tls.Conn).NetConn().(*accepted) }
