package reach_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"mesh/lab/reach"
	"mesh/lab/scenario"
	"mesh/lab/underlay"
	"mesh/lab/world/namespace"
	"mesh/lab/world/network"
	"mesh/lab/world/worldtest"
)

func TestMain(m *testing.M) { worldtest.Main(m) }

// town has a machine that nothing outside can reach, and one of each kind.
const town = `
name: town
segments:
  public: {kind: public, ipv4: 203.0.113.0/24, ipv6: 2001:db8:113::/64}
  home: {kind: site, ipv4: 192.168.1.0/24}
  island: {kind: site, ipv4: 10.9.0.0/24, ipv6: 2001:db8:116::/64}
routers:
  box: {inside: home, outside: public, nat: easy}
machines:
  pub: {segments: [public]}
  in: {segments: [home]}
  robin: {segments: [island]}
`

// raise makes the network of town stand, as run, until the test ends.
func raise(t *testing.T, run string) underlay.Underlay {
	t.Helper()
	worldtest.Need(t)
	s, err := scenario.Parse("test.yaml", strings.NewReader(town))
	if err != nil {
		t.Fatal(err)
	}
	u, err := underlay.Plan(s, run)
	if err != nil {
		t.Fatal(err)
	}
	if err := network.Apply(t.Context(), network.NewPlan(*u)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, name := range append([]string{u.Namespace}, routers(*u)...) {
			if err := namespace.Remove(name); err != nil {
				t.Error(err)
			}
		}
	})
	return *u
}

func routers(u underlay.Underlay) (names []string) {
	for _, r := range u.Routers {
		names = append(names, r.Namespace)
	}
	return names
}

// machine stands where a virtual one would, up.
func machine(t *testing.T, u underlay.Underlay, name string) (*worldtest.Machine, underlay.Machine) {
	t.Helper()
	m := worldtest.NewMachine(t, u, name)
	m.Up()
	for _, declared := range u.Machines {
		if declared.Name == name {
			return m, declared
		}
	}
	t.Fatalf("no machine %s", name)
	return nil, underlay.Machine{}
}

// greet listens on a machine and says its name to whoever connects.
func greet(t *testing.T, m *worldtest.Machine, says string) {
	t.Helper()
	var l net.Listener
	m.Must(func() (err error) {
		l, err = net.Listen("tcp6", "[::]:7000")
		return err
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(conn, says)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-ended })
}

func open(t *testing.T, u underlay.Underlay, m underlay.Machine) *reach.Way {
	t.Helper()
	w, err := reach.Open(u.Namespace, m)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// heard is what a port says.
func heard(t *testing.T, w *reach.Way) string {
	t.Helper()
	conn, err := w.Dial(t.Context(), 7000)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	said, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(said)
}

// TestReach: each machine, wherever it stands, and of two scenarios with the same
// addresses inside that of the one that is meant.
func TestReach(t *testing.T) {
	for _, run := range []string{"0000000a", "0000000b"} {
		u := raise(t, run)
		for _, name := range []string{"pub", "in", "robin"} {
			m, declared := machine(t, u, name)
			greet(t, m, run+name)
			w := open(t, u, declared)
			defer w.Close()
			if got := heard(t, w); got != run+name {
				t.Errorf("%s of %s says %q", name, run, got)
			}
		}
	}
}

// TestRefused: a machine that answers, at a port where nothing listens.
func TestRefused(t *testing.T) {
	u := raise(t, "0000000a")
	_, declared := machine(t, u, "pub")
	w := open(t, u, declared)
	defer w.Close()
	if _, err := w.Dial(t.Context(), 7001); !errors.Is(err, reach.ErrRefused) {
		t.Errorf("got %v, want ErrRefused", err)
	}
}

// TestGivenUp: whoever waits for a machine that says nothing can stop waiting.
func TestGivenUp(t *testing.T) {
	u := raise(t, "0000000a")
	m := worldtest.NewMachine(t, u, "pub") // its IPv6 is off
	w := open(t, u, underlay.Machine{Name: "pub", NICs: []underlay.NIC{m.NIC}})
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := w.Dial(ctx, 7000); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want that time is up", err)
	}
}

// TestNowhere: a machine that is off has no link to follow.
func TestNowhere(t *testing.T) {
	u := raise(t, "0000000a")
	before := links(t, u.Namespace)
	if _, err := reach.Open(u.Namespace, u.Machines[0]); err == nil {
		t.Error("a way to a machine that does not stand")
	}
	if _, err := reach.Open("ml-absent", u.Machines[0]); err == nil {
		t.Error("a way into a world that does not stand")
	}
	if diff := cmp.Diff(before, links(t, u.Namespace)); diff != "" {
		t.Errorf("left behind (-before +after):\n%s", diff)
	}
}

// TestRoams: a machine is found in the segment that it is joined to now.
func TestRoams(t *testing.T) {
	u := raise(t, "0000000a")
	m, declared := machine(t, u, "in")
	greet(t, m, "it is me")
	err := namespace.Do(u.Namespace, func() error {
		tap, err := netlink.LinkByName(declared.NICs[0].Tap)
		if err != nil {
			return err
		}
		bridge, err := netlink.LinkByName(u.Segments[0].Bridge)
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(tap, bridge)
	})
	if err != nil {
		t.Fatal(err)
	}
	w := open(t, u, declared)
	defer w.Close()
	if got := heard(t, w); got != "it is me" {
		t.Errorf("it says %q", got)
	}
}

// TestLeavesNothing: once a way and its connections are closed, the world has the
// links it had; and the lab machine's own namespace never gets one.
func TestLeavesNothing(t *testing.T) {
	u := raise(t, "0000000a")
	m, declared := machine(t, u, "pub")
	greet(t, m, "hello")
	here, inside := links(t, ""), links(t, u.Namespace)
	w := open(t, u, declared)
	if got := heard(t, w); got != "hello" {
		t.Errorf("it says %q", got)
	}
	if diff := cmp.Diff(here, links(t, "")); diff != "" {
		t.Errorf("on the lab machine (-before +during):\n%s", diff)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	// The kernel ends a namespace in its own time.
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		diff := cmp.Diff(inside, links(t, u.Namespace))
		if diff == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("in the world (-before +after):\n%s", diff)
		}
	}
}

// links lists a namespace's; empty means the test's own.
func links(t *testing.T, space string) (names []string) {
	t.Helper()
	list := func() error {
		all, err := netlink.LinkList()
		for errors.Is(err, netlink.ErrDumpInterrupted) { // something changed meanwhile
			all, err = netlink.LinkList()
		}
		for _, l := range all {
			names = append(names, l.Attrs().Name)
		}
		return err
	}
	do := list
	if space != "" {
		do = func() error { return namespace.Do(space, list) }
	}
	if err := do(); err != nil {
		t.Fatal(err)
	}
	return names
}
