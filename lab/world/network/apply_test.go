package network_test

import (
	"encoding/json"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"mesh/lab/world/namespace"
	"mesh/lab/world/network"
	"mesh/lab/world/worldtest"
)

func TestMain(m *testing.M) { worldtest.Main(m) }

// TestApply makes each plan stand, and a second time, which changes nothing.
func TestApply(t *testing.T) {
	worldtest.Need(t)
	for name, document := range scenarios {
		t.Run(name, func(t *testing.T) {
			p := network.NewPlan(plan(t, document))
			spaces := []string{p.World.Namespace}
			for _, r := range p.Routers {
				spaces = append(spaces, r.Namespace)
			}
			t.Cleanup(func() {
				for _, s := range spaces {
					if err := namespace.Remove(s); err != nil {
						t.Error(err)
					}
				}
			})
			if err := network.Apply(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			for _, b := range p.World.Bridges {
				addressed(t, p.World.Namespace, b.Link, b.Addrs)
				way := inside(t, p.World.Namespace, "ip", "-6", "route", "show", "table", "local", "ff00::/8", "dev", b.Link)
				six := slices.ContainsFunc(b.Addrs, func(a netip.Prefix) bool { return a.Addr().Is6() })
				if (way != "") != six {
					t.Errorf("%s: way for multicast %q, want one: %v", b.Link, way, six)
				}
			}
			for _, r := range p.Routers {
				for _, port := range r.Ports {
					addressed(t, r.Namespace, port.Link, port.Addrs)
				}
			}
			first := standing(t, spaces)
			if err := network.Apply(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(first, standing(t, spaces)); diff != "" {
				t.Errorf("a second time (-first +second):\n%s", diff)
			}
		})
	}
}

// TestMove: applied to what stands, the plan of a scenario in which a router has
// moved makes what it makes from nothing, and back home all is as it was.
func TestMove(t *testing.T) {
	worldtest.Need(t)
	u := plan(t, scenarios["town"])
	away, err := u.Roam("box", "abroad")
	if err != nil {
		t.Fatal(err)
	}
	home, moved := network.NewPlan(u), network.NewPlan(away)
	var spaces []string
	remove := func() {
		for _, s := range spaces {
			if err := namespace.Remove(s); err != nil {
				t.Error(err)
			}
		}
	}
	spaces = append(spaces, home.World.Namespace)
	for _, r := range home.Routers {
		spaces = append(spaces, r.Namespace)
	}
	t.Cleanup(remove)
	var b network.Builder
	apply := func(p network.Plan) string {
		t.Helper()
		if err := b.Apply(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		return peers.ReplaceAllString(numbers.ReplaceAllString(standing(t, spaces), ""), "$1")
	}
	first := apply(home)
	second := apply(moved)
	if diff := cmp.Diff(first, apply(home)); diff != "" {
		t.Errorf("home again (-before +after):\n%s", diff)
	}
	remove()
	b = network.Builder{}
	if diff := cmp.Diff(apply(moved), second); diff != "" {
		t.Errorf("moved (-from nothing +moved):\n%s", diff)
	}
}

// peers are the ends of routers' links at bridges; their addresses are the
// kernel's, and nobody's.
var peers = regexp.MustCompile(`(?m)^(router\S+ +)\S+`)

// numbers are those of the links' other ends: the kernel's, and higher where one
// of that name was on its way out.
var numbers = regexp.MustCompile(`@if\d+`)

// addressed checks that a link has its planned addresses, usable at once, and no
// others.
func addressed(t *testing.T, space, link string, want []netip.Prefix) {
	t.Helper()
	var got []netip.Prefix
	err := namespace.Do(space, func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return err
		}
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			addrs, err := netlink.AddrList(l, family)
			if err != nil {
				return err
			}
			for _, a := range addrs {
				if a.Flags&unix.IFA_F_TENTATIVE != 0 {
					t.Errorf("%s is not usable yet", a.IPNet)
				}
				got = append(got, netip.MustParsePrefix(a.IPNet.String()))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	text := cmp.Transformer("text", netip.Prefix.String)
	sorted := cmpopts.SortSlices(func(a, b netip.Prefix) bool { return a.Addr().Less(b.Addr()) })
	if diff := cmp.Diff(want, got, text, sorted, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s in %s (-want +got):\n%s", link, space, diff)
	}
}

// TestBridge is silent for no time at all, and keeps its address whoever joins.
func TestBridge(t *testing.T) {
	worldtest.Need(t)
	p := network.NewPlan(plan(t, scenarios["town"]))
	t.Cleanup(func() {
		for _, s := range []string{p.World.Namespace, p.Routers[0].Namespace, p.Routers[1].Namespace} {
			namespace.Remove(s)
		}
	})
	if err := network.Apply(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "tap0"}, Mode: netlink.TUNTAP_MODE_TAP}
	if err := netlink.LinkAdd(tap); err != nil {
		t.Fatal(err)
	}
	if err := network.AttachTap(p.World.Namespace, "segment1", "tap0"); err != nil {
		t.Fatal(err)
	}
	var links []struct {
		Ifname   string
		Address  string
		Flags    []string
		Linkinfo struct {
			Data struct {
				ForwardDelay  int `json:"forward_delay"`
				STPState      int `json:"stp_state"`
				McastSnooping int `json:"mcast_snooping"`
			} `json:"info_data"`
		}
	}
	said := inside(t, p.World.Namespace, "ip", "-json", "-details", "link", "show", "type", "bridge")
	if err := json.Unmarshal([]byte(said), &links); err != nil {
		t.Fatal(err)
	}
	for i, l := range links {
		if d := l.Linkinfo.Data; d.ForwardDelay != 0 || d.STPState != 0 || d.McastSnooping != 0 {
			t.Errorf("%s: %+v, want all 0", l.Ifname, d)
		}
		if want := p.World.Bridges[i].MAC; l.Address != want {
			t.Errorf("%s has %s, want %s", l.Ifname, l.Address, want)
		}
		deaf := len(p.World.Bridges[i].Addrs) == 0
		if got := slices.Contains(l.Flags, "NOARP"); got != deaf {
			t.Errorf("%s is without ARP: %v, want %v", l.Ifname, got, deaf)
		}
	}
	if len(links) != len(p.World.Bridges) {
		t.Errorf("%d bridges, want %d", len(links), len(p.World.Bridges))
	}
}

// carrier is what a link says by itself, some time after it was made.
var carrier = regexp.MustCompile(`\b(UP|DOWN|UNKNOWN|LOWERLAYERDOWN) *|NO-CARRIER,|,?LOWER_UP| (linkdown|dead)`)

// standing describes namespaces as an operator's tools show them.
func standing(t *testing.T, spaces []string) string {
	t.Helper()
	var all string
	for _, s := range spaces {
		for _, c := range [][]string{
			{"ip", "-brief", "link"}, {"ip", "-brief", "address"},
			{"ip", "-4", "route", "show", "table", "all"}, {"ip", "-6", "route", "show", "table", "all"},
			{"nft", "list", "ruleset"},
		} {
			all += inside(t, s, c[0], c[1:]...)
		}
	}
	return carrier.ReplaceAllString(all, "")
}

func inside(t *testing.T, space, program string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("needs the program %s", program)
	}
	var said []byte
	err := namespace.Do(space, func() (err error) {
		said, err = exec.CommandContext(t.Context(), program, args...).CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", program, args, err, said)
	}
	return string(said)
}
