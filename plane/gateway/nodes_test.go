package gateway_test

import (
	"net"
	"testing"
	"time"

	"mesh/host/link"
	"mesh/plane/gateway"
	"mesh/plane/planetest"
)

// TestNodeHasFewConnections: a node that opens more than its share loses its
// oldest, and no other node notices.
func TestNodeHasFewConnections(t *testing.T) {
	r := start(t, planetest.Options{}, func(c *gateway.Config) { c.Limits.ConnectionsPerNode = 2 })
	ctx := timeout(t)
	other := r.enrolled(ctx, "other")
	link1, _ := watching(t, ctx, other)
	defer link1.Close()
	web := r.enrolled(ctx, "web")
	oldest, _ := watching(t, ctx, web)
	defer oldest.Close()

	// call is answered by a plane that knows the caller as a node.
	call := func(h *planetest.Host) {
		t.Helper()
		_, err := planetest.Call[link.FetchRequest, link.FetchResponse](ctx, h, link.ProcedureFetch, &link.FetchRequest{Digest: "none"})
		reason(t, err, link.ReasonNotFound)
	}
	second, third := web.Again(t), web.Again(t)
	for range 3 { // a connection counts once, whatever is asked on it
		call(second)
	}
	if _, open := r.Links.Since(web.Key.Public()); !open {
		t.Error("the link ended, and the node had not more than its share")
	}
	call(third)
	if oldest.Receive() {
		t.Error("the oldest connection stays")
	}
	call(second)
	call(third)
	if a, b := second.Dials(), third.Dials(); a != 1 || b != 1 {
		t.Errorf("the newest two were dialled %d and %d times", a, b)
	}

	again, _ := watching(t, ctx, web) // and a host that was cut off comes back
	defer again.Close()
	call(second)
	if got := second.Dials(); got != 2 {
		t.Errorf("the oldest was dialled %d times after the node came back", got)
	}
	if _, open := r.Links.Since(other.Key.Public()); !open {
		t.Error("another node was cut off")
	}
}

// A connection that is closed makes room, also one that is closed before it is
// known whose it is.
func TestClosedConnectionMakesRoom(t *testing.T) {
	p := make(pipes, 1)
	l := gateway.Guard(p, gateway.Limits{StrangersPerSource: 9, Strangers: 9, ConnectionsPerNode: 2})
	key := planetest.NewMachine("web").Key.Public()
	next := func() net.Conn {
		t.Helper()
		_, behind := net.Pipe()
		p <- behind
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	known := func(c net.Conn) net.Conn {
		gateway.Known(c, key)
		gateway.Known(c, key)
		return c
	}
	open := func(c net.Conn) bool { return c.SetDeadline(time.Time{}) == nil }

	stranger := next()
	known(next()).Close()
	oldest := known(next())
	late := next()
	late.Close()
	known(late)
	second := known(next())
	if !open(oldest) || !open(second) {
		t.Error("connections that are gone are counted")
	}
	third := known(next())
	if open(oldest) || !open(second) || !open(third) {
		t.Error("it is not the oldest of three that ends")
	}
	if !open(stranger) {
		t.Error("a stranger was taken for the node")
	}
}
