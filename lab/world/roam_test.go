package world_test

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/fault"
	"mesh/lab/underlay"
	"mesh/lab/world"
	"mesh/lab/world/worldtest"
)

// road has a laptop and a home that both roam.
const road = `
name: road
segments:
  public: {kind: public, ipv4: 203.0.113.0/24, ipv6: 2001:db8:113::/64}
  abroad: {kind: public, ipv4: 198.51.100.0/24}
  home: {kind: site, ipv4: 192.168.1.0/24, ipv6: 2001:db8:114::/64}
  cafe: {kind: site, ipv4: 10.1.0.0/24}
  island: {kind: isolated, ipv4: 10.9.0.0/24}
routers:
  box: {inside: home, outside: public, roams: [abroad]}
  cafe: {inside: cafe, outside: abroad, nat: hard}
machines:
  pub: {segments: [public]}
  desk: {segments: [home]}
  laptop: {segments: [home], roams: [cafe, public, island]}
`

// seat is where u has a machine's NIC in a segment.
func seat(t *testing.T, u underlay.Underlay, machine, segment string) underlay.Stand {
	t.Helper()
	for _, m := range u.Machines {
		if stand, ok := m.NICs[0].In(segment); ok && m.Name == machine {
			return stand
		}
	}
	t.Fatalf("%s does not stand in %s", machine, segment)
	return underlay.Stand{}
}

// roam moves somebody, and leaves the rest of the world's state as it is.
func roam(t *testing.T, client *world.Client, name, segment string) error {
	t.Helper()
	text, err := client.State(soon(t))
	if err != nil {
		return err
	}
	var s world.State
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	if s.Stands == nil {
		s.Stands = map[string]string{}
	}
	s.Stands[name] = segment
	if text, err = json.Marshal(s); err != nil {
		return err
	}
	return client.SetState(soon(t), text)
}

// TestMachineRoams: wherever a machine is taken, it gets the address that was
// known beforehand, and is seen as those there are; home again it is as it was.
func TestMachineRoams(t *testing.T) {
	worldtest.Need(t)
	u := plan(t, road, "00000050")
	c := config(t, u)
	start(t, c)
	client := world.NewClient(c.Control)
	pub, laptop := up(t, u, "pub"), up(t, u, "laptop")
	called := netip.AddrPortFrom(pub.NIC.IPv4.Addr(), 4001)
	hears := pub.UDP(soon(t), called)
	for port, way := range []struct{ segment, as string }{
		{"cafe", "198.51.100.4"}, {"public", "203.0.113.11"}, {"island", ""}, {"home", "203.0.113.3"},
	} {
		if err := roam(t, client, "laptop", way.segment); err != nil {
			t.Fatal(err)
		}
		laptop.Unplug()
		want := seat(t, u, "laptop", way.segment)
		if got := laptop.Lease(soon(t)).ACK.YourIPAddr.String(); got != want.IPv4.Addr().String() {
			t.Errorf("in %s it is given %s, want %s", way.segment, got, want.IPv4.Addr())
		}
		if want.IPv6.IsValid() {
			if got := laptop.Autoconf(soon(t)); got != want.IPv6.Addr() {
				t.Errorf("in %s it makes itself %s, want %s", way.segment, got, want.IPv6.Addr())
			}
		}
		from := laptop.UDP(soon(t), netip.AddrPortFrom(want.IPv4.Addr(), uint16(4000+port)))
		err := from.Send(called, way.segment)
		as, ok := hears.Hears(way.segment, time.Second)
		switch {
		case way.as == "" && ok:
			t.Errorf("on the island it reaches out, as %s", as)
		case way.as != "" && (!ok || as.Addr().String() != way.as):
			t.Errorf("in %s it is seen as %s (%v), want %s", way.segment, as, err, way.as)
		}
	}
	if text, err := client.State(soon(t)); err != nil || string(text) != "{}\n" {
		t.Errorf("home again, the state is %s, %v", text, err)
	}
}

// TestRouterRoams: a site goes elsewhere with its router, under what goes on, and
// is seen as those there are.
func TestRouterRoams(t *testing.T) {
	worldtest.Need(t)
	u := plan(t, road, "00000051")
	c := config(t, u)
	start(t, c)
	client := world.NewClient(c.Control)
	pub, desk := up(t, u, "pub"), up(t, u, "desk")
	pub.Autoconf(soon(t))
	desk.Autoconf(soon(t))
	town := city{t, u, client}
	type server struct {
		socket *worldtest.Socket
		at     netip.AddrPort
	}
	var servers []server // the second finds the port mapped already
	for _, port := range []uint16{4001, 4002} {
		socket, at := town.open(pub, port)
		servers = append(servers, server{socket, at})
	}
	mine, _ := town.open(desk, 4000)
	for _, way := range []struct {
		segment, as string
		six         bool
	}{{"public", "203.0.113.3:4000", true}, {"abroad", "198.51.100.3:4000", false}, {"public", "203.0.113.3:4000", true}} {
		if err := roam(t, client, "box", way.segment); err != nil {
			t.Fatal(err)
		}
		for _, s := range servers {
			if as := town.seen(mine, s.socket, s.at); as.String() != way.as {
				t.Errorf("in %s it is seen by %s as %s, want %s", way.segment, s.at, as, way.as)
			}
		}
		if way.six {
			caller(t, desk, pub, pub.NIC.IPv6.Addr())
		} else {
			unreachable(t, desk, pub.NIC.IPv6.Addr())
		}
	}
}

// TestRoamingStays: the state holds where everybody is, so that it can be put
// back, also in a world that begins anew; who does not roam stays.
func TestRoamingStays(t *testing.T) {
	worldtest.Need(t)
	u := plan(t, road, "00000052")
	c := config(t, u)
	p := start(t, c)
	client := world.NewClient(c.Control)
	for name, segment := range map[string]string{"laptop": "cafe", "box": "abroad"} {
		if err := roam(t, client, name, segment); err != nil {
			t.Fatal(err)
		}
	}
	for _, refused := range [][3]string{
		{"desk", "cafe", `"desk" does not roam`}, {"laptop", "abroad", `laptop does not roam to "abroad"`},
	} {
		if err := roam(t, client, refused[0], refused[1]); err == nil || !strings.Contains(err.Error(), refused[2]) {
			t.Errorf("%s to %s: %v, want %s", refused[0], refused[1], err, refused[2])
		}
	}
	away, err := client.State(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"stands":{"box":"abroad","laptop":"cafe"}}` + "\n"
	if string(away) != want {
		t.Errorf("the state is %s, want %s", away, want)
	}
	laptop := worldtest.NewMachine(t, moved(t, u), "laptop")
	laptop.Up()
	cafe := seat(t, u, "laptop", "cafe")
	if got := laptop.Lease(soon(t)).ACK.YourIPAddr.String(); got != cafe.IPv4.Addr().String() {
		t.Errorf("it is given %s, want %s", got, cafe.IPv4.Addr())
	}
	remove(t, c, p)

	c.Underlay = moved(t, u)
	start(t, c)
	for _, state := range []string{"", "{}", string(away)} {
		if state != "" {
			if err := client.SetState(soon(t), json.RawMessage(state)); err != nil {
				t.Fatal(err)
			}
		}
		got, err := client.State(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		if state == "" {
			state = want // as its configuration has it
		}
		if diff := cmp.Diff(strings.TrimSpace(state), strings.TrimSpace(string(got))); diff != "" {
			t.Errorf("(-put +got):\n%s", diff)
		}
	}
}

// TestFaultsRoam: what was done to a machine goes along with it, and what was
// done to a segment stays there; undone, it is where it stands all the same.
func TestFaultsRoam(t *testing.T) {
	worldtest.Need(t)
	u := plan(t, road, "00000053")
	c := config(t, u)
	start(t, c)
	client := world.NewClient(c.Control)
	pub, laptop := up(t, u, "pub"), up(t, u, "laptop")
	town := city{t, u, client}
	hears, called := town.open(pub, 4001)
	const slow = 100 * time.Millisecond
	late := func(what string) fault.Fault {
		f, err := fault.Resolve(fault.Fault{Name: "late", Kind: fault.Delay, On: on(t, what), Delay: fault.Duration(slow)}, u)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for i, step := range []struct {
		state world.State
		slow  bool
	}{
		{world.State{Faults: []fault.Fault{late("laptop")}}, true},
		{world.State{Faults: []fault.Fault{late("laptop")}, Stands: map[string]string{"laptop": "cafe"}}, true},
		{world.State{Stands: map[string]string{"laptop": "cafe"}}, false},
		{world.State{Faults: []fault.Fault{late("segment:home")}}, true},
		{world.State{Faults: []fault.Fault{late("segment:home")}, Stands: map[string]string{"laptop": "cafe", "box": "abroad"}}, false},
		{world.State{}, false},
	} {
		state, err := json.Marshal(step.state)
		if err != nil {
			t.Fatal(err)
		}
		if err := client.SetState(soon(t), state); err != nil {
			t.Fatal(err)
		}
		laptop.Unplug()
		lease := laptop.Lease(soon(t))
		own, _ := netip.AddrFromSlice(lease.ACK.YourIPAddr.To4())
		from := laptop.UDP(soon(t), netip.AddrPortFrom(own, uint16(4100+i)))
		town.seen(from, hears, called) // who is who is asked for
		begun := time.Now()
		town.seen(from, hears, called)
		if took := time.Since(begun); took >= slow != step.slow {
			t.Errorf("step %d, %s: there and back takes %v", i, state, took)
		}
	}
}

// moved is u with the laptop in the cafe and the home abroad.
func moved(t *testing.T, u underlay.Underlay) underlay.Underlay {
	t.Helper()
	for _, to := range [][2]string{{"laptop", "cafe"}, {"box", "abroad"}} {
		var err error
		if u, err = u.Roam(to[0], to[1]); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.ContainsFunc(u.Roamers(), func(r underlay.Roamer) bool { return r.At == "cafe" }) {
		t.Fatal("nobody is in the cafe")
	}
	return u
}
