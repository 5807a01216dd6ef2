package gateway_test

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"mesh/plane/gateway"
	"mesh/plane/planetest"
)

// connectFrom opens a connection from an address of loopback, and says nothing.
func connectFrom(t *testing.T, source, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	c, err := d.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// ended tells whether the plane closes a connection within a while, shorter than
// that of a handshake that nobody begins.
func ended(t *testing.T, c net.Conn, within time.Duration) bool {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	_, err := c.Read(make([]byte, 1))
	var timeout net.Error
	return err != nil && !(errors.As(err, &timeout) && timeout.Timeout())
}

// TestCaseP10ConnectionsAreBounded: whoever opens many connections without a key
// has a share of them, and neither a node nor another source notices.
func TestCaseP10ConnectionsAreBounded(t *testing.T) {
	r := start(t, planetest.Options{}, func(c *gateway.Config) { c.Limits.StrangersPerSource, c.Limits.Strangers = 4, 6 })
	ctx := timeout(t)
	var nodes []*planetest.Host
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} { // more than strangers may be
		h := r.enrolled(ctx, name)
		stream, _ := watching(t, ctx, h)
		defer stream.Close()
		nodes = append(nodes, h)
	}
	var many []net.Conn
	for range 4 {
		many = append(many, connectFrom(t, "127.0.0.2", r.address))
	}
	for range 8 {
		if !ended(t, connectFrom(t, "127.0.0.2", r.address), 5*time.Second) {
			t.Error("a source has more than its share")
		}
	}
	for _, c := range many {
		if ended(t, c, time.Millisecond) {
			t.Error("what was within the share has ended")
		}
	}
	r.enrolled(ctx, "late")

	for _, source := range []string{"127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6"} {
		connectFrom(t, source, r.address)
	}
	if !ended(t, many[0], 5*time.Second) {
		t.Error("the oldest stays where there are too many in all")
	}
	for i, h := range nodes {
		if _, open := r.Links.Since(h.Key.Public()); !open {
			t.Errorf("the link of node %d is down", i)
		}
	}
	r.enrolled(ctx, "later")
}

// pipes is a listener of connections in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, open := <-p; open {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A connection that shows no node's key ends by itself.
func TestStrangerDoesNotStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := make(pipes, 1)
		l := gateway.Guard(p, gateway.Limits{StrangersPerSource: 1, Strangers: 1})
		far, near := net.Pipe()
		p <- near
		if _, err := l.Accept(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		if took := time.Since(began); took != 2*time.Minute {
			t.Errorf("it stayed for %s", took)
		}
		_, near = net.Pipe()
		p <- near // there is room again
		if c, err := l.Accept(); err != nil {
			t.Error(err)
		} else if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
