package world_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"mesh/lab/world"
	"mesh/lab/world/worldtest"
)

// TestRoutersRemember takes from routers what they remember, and gives it back:
// whoever was translated and let in is again, before anybody inside sends.
func TestRoutersRemember(t *testing.T) {
	c := newCity(t, "00000049")
	pub := c.machine("pub")
	public, at := c.open(pub, 7000)
	type talk struct {
		socket *worldtest.Socket
		as     netip.AddrPort
	}
	talks := map[string]talk{}
	desk := c.machine("desk")
	for _, name := range []string{"in", "shy", "clerk", "phone", "tenant", "desk"} {
		m := desk
		if name != "desk" {
			m = c.machine(name)
		}
		socket, _ := c.open(m, 6000)
		talks[name] = talk{socket, c.seen(socket, public, at)}
	}
	six := netip.AddrPortFrom(pub.NIC.IPv6.Addr(), 7000)
	public6 := pub.UDP(soon(t), six)
	socket6 := desk.UDP(soon(t), netip.AddrPortFrom(desk.NIC.IPv6.Addr(), 6000))
	talks6 := talk{socket6, c.seen(socket6, public6, six)}

	// A call from outside to a port that is forwarded.
	server, _ := c.open(c.machine("in2"), 53)
	service := netip.AddrPortFrom(c.outside("home"), 53)
	if err := public.Send(service, "question"); err != nil {
		t.Fatal(err)
	}
	if _, ok := server.Hears("question", 5*time.Second); !ok {
		t.Fatal("a forwarded port is not reached")
	}

	whole, err := c.client.Whole(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	heard := func(text string, within time.Duration) map[string]bool {
		all := map[string]bool{}
		for name, talk := range talks {
			if err := public.Send(talk.as, text); err != nil {
				t.Fatal(err)
			}
			_, all[name] = talk.socket.Hears(text, within)
		}
		if err := public6.Send(talks6.as, text); err != nil {
			t.Fatal(err)
		}
		_, all["desk, IPv6"] = talks6.socket.Hears(text, within)
		return all
	}

	if err := c.client.SetState(soon(t), json.RawMessage(`{"routers":{}}`)); err != nil {
		t.Fatal(err)
	}
	for name, ok := range heard("who remembers nothing", briefly) {
		if ok {
			t.Errorf("%s is still called by a router that was told to forget", name)
		}
	}
	if err := c.client.SetState(soon(t), whole); err != nil {
		t.Fatal(err)
	}
	for name, ok := range heard("who remembers", 5*time.Second) {
		if !ok {
			t.Errorf("%s is not called by a router that remembers", name)
		}
	}
	if err := server.Send(at, "answer"); err != nil {
		t.Fatal(err)
	}
	if by, ok := public.Hears("answer", 5*time.Second); !ok || by != service {
		t.Errorf("the answer of a forwarded port comes from %s, want %s", by, service)
	}

	state, err := c.client.State(soon(t))
	if err != nil || strings.Contains(string(state), "routers") {
		t.Errorf("the state tells %s, %v; only the whole one tells what routers remember", state, err)
	}
}

// TestMemoryRefused tells whatever no router can remember, and nothing of it
// reaches a program.
func TestMemoryRefused(t *testing.T) {
	u := plan(t, kinds, "0000004a")
	text := `{"routers":{"home":{"connections":["-D -p tcp","-A -p tcp\n-F","-A -o xml"],"mappings":[
		{"protocol":"icmp","inside":"10.0.0.1:1","outside":"203.0.113.1:1"},
		{"protocol":"tcp","inside":"[2001:db8::1]:1","outside":"203.0.113.1:1"}]},"hom":{}}}`
	_, err := world.ParseState([]byte(text), u)
	if err == nil {
		t.Fatal("taken")
	}
	for _, want := range []string{`no router "hom"`, `"-D -p tcp"`, `"-A -p tcp\n-F"`, `"-A -o xml"`, `"icmp"`, "2001:db8::1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not told in:\n%v", want, err)
		}
	}
}
