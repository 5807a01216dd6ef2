package gateway

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"mesh/host/link"
	"mesh/plane/registry"
)

// Limits bounds what callers can take, those without a node's key above all. The
// zero value of each field means its default.
type Limits struct {
	// Burst and PerSecond bound the enrolments asked for from one address (one
	// /64 in IPv6). Defaults 512 and 20.
	Burst     int
	PerSecond float64
	// Working enrolments are read and decided at once; Waiting more wait for
	// their turn, unread. Defaults 8 and 512.
	Working int
	Waiting int
	// StrangersPerSource and Strangers bound the connections that are open and have
	// not shown a node's key, from one address (one /64 in IPv6) and in all. Defaults
	// 256 and 2048.
	StrangersPerSource int
	Strangers          int
	// ConnectionsPerNode bounds the connections that are open and have shown the key
	// of one node. Default 4.
	ConnectionsPerNode int
}

// withDefaults is l with a value in every field.
func (l Limits) withDefaults() Limits {
	l.Burst = cmp.Or(l.Burst, 512)
	l.PerSecond = cmp.Or(l.PerSecond, 20)
	l.Working = cmp.Or(l.Working, 8)
	l.Waiting = cmp.Or(l.Waiting, 512)
	l.StrangersPerSource = cmp.Or(l.StrangersPerSource, 256)
	l.Strangers = cmp.Or(l.Strangers, 2048)
	l.ConnectionsPerNode = cmp.Or(l.ConnectionsPerNode, 4)
	return l
}

const (
	enrolReadTimeout  = 15 * time.Second
	reportReadTimeout = 10 * time.Minute // of a node, which may have much to say over a slow link
	maxReportBytes    = 16 << 20
	maxRequestBytes   = 64 << 10 // of Watch and Fetch
)

// admission lets requests through to their handlers.
type admission struct {
	working chan struct{}
	waiting atomic.Int64
	limits  Limits
	meter   meter
}

func newAdmission(l Limits) *admission {
	return &admission{
		working: make(chan struct{}, l.Working),
		limits:  l,
		meter:   meter{seed: maphash.MakeSeed(), burst: float64(l.Burst), perSecond: l.PerSecond},
	}
}

// stranger lets a request of an unknown key through to next, bounded before a
// byte of its body is read. It answers with an error that the caller is to be
// told, or nil after next has answered.
func (a *admission) stranger(w http.ResponseWriter, r *http.Request, now time.Time, next http.Handler) error {
	connection := connectionOf(r.Context())
	if !connection.asking.CompareAndSwap(false, true) {
		return busy() // bodies that wait unread would take the connection's window from the one that is read
	}
	defer connection.asking.Store(false)
	if r.ContentLength > link.MaxEnrolBytes {
		return &link.Refusal{Reason: link.ReasonMalformed, Message: "the request is too long to be an enrolment"}
	}
	if !a.meter.allow(sourceOf(r.RemoteAddr), now) {
		return busy()
	}
	if a.waiting.Add(1) > int64(a.limits.Waiting) {
		a.waiting.Add(-1)
		return busy()
	}
	select {
	case a.working <- struct{}{}:
		a.waiting.Add(-1)
		defer func() { <-a.working }()
	case <-r.Context().Done():
		a.waiting.Add(-1)
		return context.Cause(r.Context())
	}
	bound(w, r, enrolReadTimeout, link.MaxEnrolBytes)
	next.ServeHTTP(w, r)
	return nil
}

// connection is what a request knows of the connection it came by.
type connection struct {
	*accepted
	asking atomic.Bool // whether it asks to enrol at this moment
}

type connectionKey struct{}

func perConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{accepted: acceptedOf(c)})
}

func connectionOf(ctx context.Context) *connection { return ctx.Value(connectionKey{}).(*connection) }

// bound limits how long and how far the body of r is read.
func bound(w http.ResponseWriter, r *http.Request, within time.Duration, bytes int64) {
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(within)) // HTTP/2 always can
	r.Body = http.MaxBytesReader(w, r.Body, bytes)
}

// sourceOf is the address that a connection comes from, a whole /64 in IPv6.
func sourceOf(remote string) netip.Addr {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{} // all of these share one budget
	}
	a := at.Addr().Unmap().WithZone("")
	if a.Is6() {
		return netip.PrefixFrom(a, 64).Masked().Addr()
	}
	return a
}

// meter bounds how often each source asks, in memory that does not grow: sources
// that fall on the same bucket share its budget.
type meter struct {
	seed      maphash.Seed
	burst     float64
	perSecond float64

	mu      sync.Mutex
	buckets [1024]bucket
}

type bucket struct {
	spent float64 // requests not paid back yet
	at    time.Time
}

func (m *meter) allow(source netip.Addr, now time.Time) bool {
	i := maphash.Comparable(m.seed, source) % uint64(len(m.buckets))
	m.mu.Lock()
	defer m.mu.Unlock()
	b := &m.buckets[i]
	if elapsed := now.Sub(b.at).Seconds(); elapsed > 0 {
		b.spent = max(0, b.spent-elapsed*m.perSecond)
	}
	b.at = now
	if b.spent+1 > m.burst {
		return false
	}
	b.spent++
	return true
}

func busy() error {
	return &link.Refusal{Reason: link.ReasonBusy, Message: "the plane is asked to enrol too often; try again in a minute"}
}

func notANode() error {
	return &link.Refusal{Reason: link.ReasonNotANode,
		Message: "the key of this machine is not one of a node of this mesh: it was never enrolled, enrolled again with another key, or removed; enrol it with a new token"}
}

// errReplaced ends a link whose node opened another.
var errReplaced = errors.New("another link of this node was opened")

// isUnknown tells whether a read found no node.
func isUnknown(err error) bool { return errors.Is(err, registry.ErrUnknown) }
