// Package reach is the way from the lab machine to a port of a machine inside a
// scenario.
//
// A Way is a namespace without a name and a cable from it into each segment that
// the machine stands in. There it speaks to the machine by IPv6 link-local
// addresses alone (RFC 4291, section 2.5.6), which no scenario declares, routes
// or translates. The lab machine's own namespace has no part in it, and nothing
// is left when the process ends, however it ends.
//
// It reaches machines only, never what a scenario forbids them: a machine's own
// firewall decides what it answers. Only cmd/lab imports it. It needs root.
package reach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"mesh/lab/underlay"
	"mesh/lab/world/namespace"
)

// ErrRefused means that the machine answered, and that nothing listens at the
// port. Match with errors.Is.
var ErrRefused = errors.New("nothing listens there")

// ErrSilent means that the machine answered at none of its interfaces. Match
// with errors.Is.
var ErrSilent = errors.New("the machine does not answer")

// answerLimit is how long a machine may take to answer at one interface. An
// emulated one under load needs seconds.
const answerLimit = 10 * time.Second

// Way is an open way to one machine. Make it with Open. Safe for concurrent use.
type Way struct {
	near   *namespace.Nameless
	cables []cable
}

// cable ends at one interface of the machine.
type cable struct {
	zone int        // number of this end's link, in the near namespace
	far  netip.Addr // the machine's link-local address
}

// Open lays a cable to each interface of a machine: there where it is joined
// now, wherever it was declared. An interface that is joined to nothing is left
// out; a machine without any other is an error. Close ends it.
func Open(world string, m underlay.Machine) (*Way, error) {
	near, err := namespace.New()
	if err != nil {
		return nil, fmt.Errorf("open a way to machine %s: %w", m.Name, err)
	}
	w := &Way{near: near}
	if err := w.lay(world, m); err != nil {
		_ = near.Close() // the first failure tells more
		return nil, fmt.Errorf("open a way to machine %s: %w", m.Name, err)
	}
	return w, nil
}

// Close gives the way up. Connections that are open work on.
func (w *Way) Close() error { return w.near.Close() }

// Dial connects with a TCP port of the machine, at the first of its interfaces
// that answers. ErrRefused, ErrSilent, or ctx's cause.
func (w *Way) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	var problems []error
	for _, c := range w.cables {
		conn, err := w.dial(ctx, c, port)
		switch {
		case err == nil:
			return conn, nil
		case ended(ctx):
			return nil, context.Cause(ctx)
		case errors.Is(err, syscall.ECONNREFUSED):
			return nil, fmt.Errorf("port %d: %w", port, ErrRefused)
		}
		problems = append(problems, err)
	}
	return nil, fmt.Errorf("port %d: %w: %v", port, ErrSilent, errors.Join(problems...))
}

// ended tells whether ctx has come to its end, also where only whoever waited by
// its deadline knows yet.
func ended(ctx context.Context) bool {
	if deadline, limited := ctx.Deadline(); limited && !time.Now().Before(deadline) {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}

func (w *Way) dial(ctx context.Context, c cable, port uint16) (conn net.Conn, err error) {
	// A zone by its number, since the resolver remembers names of other namespaces.
	to := net.JoinHostPort(c.far.WithZone(strconv.Itoa(c.zone)).String(), strconv.Itoa(int(port)))
	dialer := net.Dialer{Timeout: answerLimit}
	err = w.near.Do(func() error {
		conn, err = dialer.DialContext(ctx, "tcp6", to)
		return err
	})
	return conn, err
}

func (w *Way) lay(world string, m underlay.Machine) error {
	if err := w.near.Do(settle); err != nil {
		return fmt.Errorf("prepare a namespace: %w", err)
	}
	for _, nic := range m.NICs {
		mac, err := net.ParseMAC(nic.MAC)
		if err != nil {
			return err
		}
		port := portName()
		joined := false
		err = namespace.Do(world, func() error {
			joined, err = join(nic.Tap, port, w.near.Descriptor())
			return err
		})
		if err != nil {
			return err
		}
		if !joined {
			continue
		}
		c := cable{far: linkLocal(mac)}
		err = w.near.Do(func() error {
			c.zone, err = raise(port)
			return err
		})
		if err != nil {
			return err
		}
		w.cables = append(w.cables, c)
	}
	if len(w.cables) == 0 {
		return errors.New("none of its interfaces is joined to a segment; is it running?")
	}
	return nil
}

// settle makes links of the calling thread's namespace take no address by
// themselves and ask for none, so that a machine sees nothing of them until it is
// spoken to.
func settle() error {
	return set("conf/default", map[string]string{
		"disable_ipv6": "0", "addr_gen_mode": "1", "accept_ra": "0", "router_solicitations": "0",
	})
}

// set changes settings of IPv6 in the namespace of the calling thread.
//
// https://www.kernel.org/doc/Documentation/networking/ip-sysctl.rst
func set(of string, values map[string]string) error {
	for name, value := range values {
		if err := os.WriteFile("/proc/sys/net/ipv6/"+of+"/"+name, []byte(value), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// ways numbers the ports of this process.
var ways atomic.Int64

// portName is a name that no other link of a world has: not one of another
// process, and not one of this process.
func portName() string {
	return fmt.Sprintf("mr%d-%d", os.Getpid(), ways.Add(1)) // ≤ 15 bytes: proc(5), pid_max has 7 digits
}

// join makes a cable whose one end, port, joins the bridge that tap is joined to
// and whose other end, of the same name, is in another namespace. It tells
// whether tap is joined to any.
func join(tap, port string, near int) (bool, error) {
	var missing netlink.LinkNotFoundError
	link, err := netlink.LinkByName(tap)
	if errors.As(err, &missing) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for link %s: %w", tap, err)
	}
	if link.Attrs().MasterIndex == 0 {
		return false, nil
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = port, link.Attrs().MTU
	attrs.MasterIndex = link.Attrs().MasterIndex
	err = netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: port, PeerNamespace: netlink.NsFd(near)})
	if err != nil {
		return false, fmt.Errorf("lay a cable beside %s: %w", tap, err)
	}
	made, err := netlink.LinkByName(port)
	if err == nil {
		err = netlink.LinkSetUp(made)
	}
	if err != nil {
		return false, fmt.Errorf("lay a cable beside %s: %w", tap, err)
	}
	return true, nil
}

// raise sets this end up and gives its number, once it can be spoken from.
func raise(port string) (int, error) {
	// A new port of a bridge loses its first frames; the kernel would ask for the
	// machine again only after a second.
	err := set("neigh/"+port, map[string]string{"retrans_time_ms": "100", "mcast_solicit": "80"})
	var link netlink.Link
	if err == nil {
		link, err = netlink.LinkByName(port)
	}
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		return 0, fmt.Errorf("set cable %s up: %w", port, err)
	}
	// At once, without asking whether another has it: it follows from a random MAC.
	own := netlink.Addr{
		IPNet: &net.IPNet{IP: linkLocal(link.Attrs().HardwareAddr).AsSlice(), Mask: net.CIDRMask(64, 128)},
		Flags: unix.IFA_F_NODAD,
	}
	if err := netlink.AddrAdd(link, &own); err != nil {
		return 0, fmt.Errorf("give cable %s an address: %w", port, err)
	}
	return link.Attrs().Index, nil
}

// linkLocal is the address that a card gives itself: RFC 4291, appendix A.
func linkLocal(mac net.HardwareAddr) netip.Addr {
	a := netip.MustParseAddr("fe80::").As16()
	copy(a[8:], []byte{mac[0] ^ 0x02, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
	return netip.AddrFrom16(a)
}
