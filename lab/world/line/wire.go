package line

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"mesh/lab/fault"
	"mesh/lab/world/impairment"
)

const (
	// header is virtio_net_hdr, which says what is left to the card: linux/virtio_net.h.
	header = 10
	// frameLimit is a frame that is yet to be cut up, with its header.
	frameLimit = 64<<10 + 256
	// waitingBytes and waitingFrames are how much waits in one direction, at most.
	waitingBytes  = 16 << 20
	waitingFrames = 16 << 10
)

// wire is one line that is laid.
type wire struct {
	line impairment.Line
	port int      // index of the port's link
	side *os.File // the port, as a packet socket
	tap  *os.File // what stands for it on the bridge

	out, in atomic.Pointer[impairment.Lag]
	ended   sync.WaitGroup
	done    chan struct{}
}

// open makes both ends of a wire, in the calling thread's namespace.
func open(line impairment.Line, port netlink.Link) (*wire, error) {
	w := &wire{line: line, port: port.Attrs().Index, done: make(chan struct{})}
	w.set(line)
	var err error
	if w.tap, err = openTap(line.Link); err != nil {
		return nil, err
	}
	if w.side, err = openPort(w.port); err == nil {
		err = joinTap(line, port.Attrs().MTU)
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// openTap makes a tap that passes what is left to cards; it ends with the file.
func openTap(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %v", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make tap %s: %v", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openPort opens a link for what it receives and for what is to be sent by it.
func openPort(index int) (*os.File, error) {
	all := uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8) // in network order: packet(7)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open packet socket: %v", err)
	}
	err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index})
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("open packet socket: %v", err)
	}
	return os.NewFile(uintptr(fd), "port"), nil
}

func joinTap(line impairment.Line, mtu int) error {
	tap, err := netlink.LinkByName(line.Link)
	if err == nil {
		err = netlink.LinkSetMTU(tap, mtu)
	}
	var bridge netlink.Link
	if err == nil {
		bridge, err = netlink.LinkByName(line.Bridge)
	}
	if err == nil {
		err = netlink.LinkSetMaster(tap, bridge)
	}
	if err == nil {
		err = netlink.LinkSetUp(tap)
	}
	if err != nil {
		return fmt.Errorf("join tap %s to bridge %s: %v", line.Link, line.Bridge, err)
	}
	return nil
}

// set changes how late frames come, those that wait already excepted.
func (w *wire) set(line impairment.Line) {
	w.line = line
	w.out.Store(&line.Out)
	w.in.Store(&line.In)
}

// start begins to pass frames, until close.
func (w *wire) start() {
	w.pass(w.side, w.tap, &w.out)
	w.pass(w.tap, w.side, &w.in)
}

// close ends both ends and waits for all that passes frames.
func (w *wire) close() {
	close(w.done)
	for _, f := range []*os.File{w.side, w.tap} {
		if f != nil {
			f.Close()
		}
	}
	w.ended.Wait()
}

// late is a frame and when it is due.
type late struct {
	due   time.Time
	frame []byte
}

// pass passes frames of one direction.
func (w *wire) pass(from, to *os.File, lag *atomic.Pointer[impairment.Lag]) {
	queue := make(chan late, waitingFrames)
	var waiting atomic.Int64
	w.ended.Go(func() { // reads
		defer close(queue)
		buffer := make([]byte, frameLimit)
		var last, free time.Time // when the last frame is due; when the rate lets another one begin
		for {
			n, err := from.Read(buffer)
			if errors.Is(err, os.ErrClosed) {
				return
			}
			if err != nil || n <= header {
				if errors.Is(err, unix.EBADFD) { // the tap's link was deleted
					return
				}
				continue // the port went down; more may come
			}
			now, by := time.Now(), *lag.Load()
			if fault.Share(rand.Int64N(int64(fault.Whole))) < by.Reorder {
				to.Write(buffer[:n]) // a frame that cannot be sent is lost, as on any wire
				continue
			}
			passed := now
			if by.Rate > 0 {
				if free.Before(now) {
					free = now
				}
				if free.Sub(now) > queued(by.Rate) {
					continue // lost: there is no room before a slow link either
				}
				free = free.Add(time.Duration(n-header) * 8 * time.Second / time.Duration(by.Rate))
				passed = free
			}
			due := passed.Add(span(by))
			if due.Before(last) {
				due = last // frames keep their order
			}
			if waiting.Load()+int64(n) > waitingBytes {
				continue
			}
			select {
			case queue <- late{due, append([]byte(nil), buffer[:n]...)}:
				waiting.Add(int64(n))
				last = due
			default: // lost: the queue is full
			}
		}
	})
	w.ended.Go(func() { // writes
		timer := time.NewTimer(time.Hour)
		defer timer.Stop()
		for next := range queue {
			timer.Reset(time.Until(next.due))
			select {
			case <-timer.C:
				to.Write(next.frame)
			case <-w.done:
			}
			waiting.Add(-int64(len(next.frame)))
		}
	})
}

// queued is how long a frame waits for a slow link at most: as long as 32 KiB
// take, and no less than a tenth of a second.
func queued(r fault.Rate) time.Duration {
	return max(100*time.Millisecond, 32<<10*8*time.Second/time.Duration(r))
}

// span is how late one frame comes, beside what its rate makes of it.
func span(by impairment.Lag) time.Duration {
	if by.Jitter <= 0 {
		return by.Delay
	}
	return max(0, by.Delay-by.Jitter+rand.N(2*by.Jitter+1))
}
