package verify

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// tap moves a tap into a namespace and back, as the taps of machines are moved.
var tap = check{
	name: "tap",
	do: func(context.Context) (string, error) {
		name := "mlv" + randomHex(4)
		err := isolated(1, func(home netns.NsHandle, spaces []netns.NsHandle) error {
			away := spaces[0]
			if err := netns.Set(home); err != nil {
				return err
			}
			// Not persistent: it goes with its descriptors, whatever happens.
			link := &netlink.Tuntap{LinkAttrs: named(name), Mode: netlink.TUNTAP_MODE_TAP, NonPersist: true, Queues: 1}
			if err := netlink.LinkAdd(link); err != nil {
				return fmt.Errorf("make a tap: %w", err)
			}
			defer func() {
				for _, f := range link.Fds {
					_ = f.Close()
				}
			}()
			for _, leg := range []struct{ from, to netns.NsHandle }{{home, away}, {away, home}} {
				if err := netns.Set(leg.from); err != nil {
					return err
				}
				if err := move(name, leg.to); err != nil {
					return err
				}
			}
			if err := netns.Set(home); err != nil {
				return err
			}
			_, err := netlink.LinkByName(name)
			return err
		})
		return "a tap moved into a namespace and back", err
	},
	remedy: "the kernel needs tun and network namespaces: modprobe tun (in a container: --device /dev/net/tun, CAP_NET_ADMIN and CAP_SYS_ADMIN)",
}

// bridge sends a frame from one namespace to another across a bridge in a third.
var bridge = check{
	name: "bridge",
	do: func(ctx context.Context) (string, error) {
		err := isolated(3, func(_ netns.NsHandle, spaces []netns.NsHandle) error {
			if err := buildBridge(spaces[0], spaces[1:]); err != nil {
				return err
			}
			return sendAcross(ctx, spaces[1], spaces[2])
		})
		return "a bridge passed a frame between two namespaces", err
	},
	remedy: "the kernel needs bridge and veth: modprobe bridge veth (in a container: CAP_NET_ADMIN and CAP_SYS_ADMIN)",
}

// nat loads rules of every kind that a router has, in a namespace of their own,
// and a connection that was translated, as a restored router's.
var nat = check{
	name: "nftables NAT",
	do: func(ctx context.Context) (string, error) {
		err := isolated(1, func(_ netns.NsHandle, spaces []netns.NsHandle) error {
			if err := netns.Set(spaces[0]); err != nil {
				return err
			}
			if _, err := runInput(ctx, natRules, "nft", "-f", "-"); err != nil {
				return err
			}
			loaded, err := run(ctx, "nft", "list", "ruleset")
			if err == nil && !strings.Contains(loaded, "masquerade") {
				err = errors.New("nft loaded the rules, and does not list them")
			}
			if err != nil {
				return err
			}
			if _, err := runInput(ctx, natConnection, "conntrack", "--load-file", "-"); err != nil {
				return err
			}
			known, err := run(ctx, "conntrack", "--dump", "--output", "save")
			if err == nil && !strings.Contains(known, "-n 192.0.2.1 ") {
				err = errors.New("conntrack loaded a translated connection, and does not list it")
			}
			return err
		})
		return "nft loaded translation and stateful rules in a namespace, conntrack a connection", err
	},
	remedy: "apt-get install --no-install-recommends nftables conntrack; the kernel needs nf_tables, nft_chain_nat, nft_masq, nft_ct and nf_conntrack_netlink",
}

const natConnection = "-A -t 60 -u SEEN_REPLY,ASSURED -s 198.51.100.2 -d 203.0.113.2 -r 203.0.113.2 -n 192.0.2.1 " +
	"-p udp --sport 1000 --dport 2000 --reply-port-src 2000 --reply-port-dst 3000\n"

const natRules = `table inet mesh_verify {
	chain forward {
		type filter hook forward priority filter; policy drop;
		ct state established,related accept
		iifname "inside" accept
	}
	chain postrouting {
		type nat hook postrouting priority srcnat;
		oifname "outside" meta nfproto ipv4 masquerade
	}
}
`

// impairments loads what drops frames between machines. Delays and rates need
// nothing beside taps: the world's own process makes them.
var impairments = check{
	name:     "impairments",
	optional: true,
	do: func(ctx context.Context) (string, error) {
		err := isolated(1, func(_ netns.NsHandle, spaces []netns.NsHandle) error {
			if err := netns.Set(spaces[0]); err != nil {
				return err
			}
			_, err := runInput(ctx, lossRules, "nft", "-f", "-")
			return err
		})
		return "nft loaded a loss of frames between ports of a bridge", err
	},
	remedy: "apt-get install --no-install-recommends nftables; the kernel needs nf_tables_bridge and nft_numgen; until then faults that drop frames do not work",
}

const lossRules = `table bridge mesh_verify {
	chain passing {
		type filter hook forward priority 0; policy accept;
		iifname "one" oifname "two" numgen random mod 1000000 < 300000 drop
	}
}
`

// buildBridge makes a bridge in middle with a veth to each of ends.
func buildBridge(middle netns.NsHandle, ends []netns.NsHandle) error {
	if err := netns.Set(middle); err != nil {
		return err
	}
	br := &netlink.Bridge{LinkAttrs: named("bridge")}
	if err := netlink.LinkAdd(br); err != nil {
		return fmt.Errorf("make a bridge: %w", err)
	}
	if err := netlink.LinkSetUp(br); err != nil {
		return err
	}
	for i, end := range ends {
		port := &netlink.Veth{LinkAttrs: named(fmt.Sprintf("port%d", i)), PeerName: "end"}
		if err := netlink.LinkAdd(port); err != nil {
			return fmt.Errorf("make a veth: %w", err)
		}
		if err := errors.Join(netlink.LinkSetMaster(port, br), netlink.LinkSetUp(port), move("end", end)); err != nil {
			return err
		}
	}
	for i, end := range ends {
		if err := netns.Set(end); err != nil {
			return err
		}
		link, err := netlink.LinkByName("end")
		if err != nil {
			return err
		}
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: endAddr(i), Mask: net.CIDRMask(24, 32)}}
		if err := errors.Join(netlink.AddrAdd(link, addr), netlink.LinkSetUp(link)); err != nil {
			return err
		}
	}
	return nil
}

// endAddr is an address for documentation, RFC 5737; it is seen by nobody.
func endAddr(i int) net.IP { return net.IPv4(192, 0, 2, byte(i+1)) }

// sendAcross sends a datagram; before it frames of ARP have crossed both ways.
func sendAcross(ctx context.Context, from, to netns.NsHandle) error {
	const word = "mesh"
	if err := netns.Set(to); err != nil {
		return err
	}
	receiver, err := net.ListenUDP("udp4", &net.UDPAddr{IP: endAddr(1)})
	if err != nil {
		return err
	}
	defer receiver.Close()
	if err := netns.Set(from); err != nil {
		return err
	}
	sender, err := new(net.Dialer).DialContext(ctx, "udp4", receiver.LocalAddr().String())
	if err != nil {
		return err
	}
	defer sender.Close()
	if _, err := sender.Write([]byte(word)); err != nil {
		return err
	}
	if err := receiver.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	got := make([]byte, 16)
	n, _, err := receiver.ReadFrom(got)
	if err != nil || string(got[:n]) != word {
		return fmt.Errorf("no frame crossed the bridge: %q, %w", got[:n], err)
	}
	return nil
}

// isolated calls f on a thread of its own, which ends with it, with that many
// new namespaces. They have no name, so that nothing of them can be left.
func isolated(spaces int, f func(home netns.NsHandle, spaces []netns.NsHandle) error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the runtime ends the thread
		result <- func() error {
			home, err := netns.Get()
			if err != nil {
				return fmt.Errorf("find the own network namespace: %w", err)
			}
			defer home.Close()
			var made []netns.NsHandle
			for range spaces {
				ns, err := netns.New()
				if err != nil {
					return fmt.Errorf("make a network namespace: %w", err)
				}
				defer ns.Close()
				made = append(made, ns)
			}
			return f(home, made)
		}()
	}()
	return <-result
}

// move moves a link of the thread's namespace into another.
func move(name string, to netns.NsHandle) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	if err := netlink.LinkSetNsFd(link, int(to)); err != nil {
		return fmt.Errorf("move link %s into another namespace: %w", name, err)
	}
	return nil
}

func named(name string) netlink.LinkAttrs {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	return attrs
}

// randomHex is n random bytes in hex.
func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
