package capture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// flushAfter is how long a frame may wait before others can read it.
const flushAfter = 500 * time.Millisecond

// Capture is what is seen on one bridge. Make it with Open.
type Capture struct {
	socket *os.File
	ring   *Ring
}

// Open begins to see every frame that a bridge of the calling thread's namespace
// passes on, and keeps the last of them at path, at most limit bytes. Run must be
// called.
func Open(bridge, path string, limit int64) (*Capture, error) {
	link, err := netlink.LinkByName(bridge)
	if err != nil {
		return nil, fmt.Errorf("capture on %s: %v", bridge, err)
	}
	all := uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8) // in network order: packet(7)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("capture on %s: %v", bridge, err)
	}
	// A bridge shows what is not for itself only to whom it is promiscuous for.
	err = unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
		&unix.PacketMreq{Ifindex: int32(link.Attrs().Index), Type: unix.PACKET_MR_PROMISC})
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Attrs().Index})
	}
	var ring *Ring
	if err == nil {
		ring, err = NewRing(path, limit)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("capture on %s: %v", bridge, err)
	}
	return &Capture{os.NewFile(uintptr(fd), bridge), ring}, nil
}

// Run keeps frames until ctx is done, which is no error.
func (c *Capture) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { c.socket.Close() })()
	defer c.socket.Close()
	raw, err := c.socket.SyscallConn()
	if err != nil {
		return errors.Join(err, c.ring.Close())
	}
	frame := make([]byte, snapLength)
	for ctx.Err() == nil {
		var length int
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			length, _, failed = unix.Recvfrom(int(fd), frame, unix.MSG_TRUNC)
			return !errors.Is(failed, unix.EAGAIN)
		})
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = errors.Join(c.ring.Flush(), c.socket.SetReadDeadline(time.Time{}))
		case ctx.Err() != nil, errors.Is(failed, unix.ENETDOWN): // the bridge may come up again
			err = nil
		case err == nil && failed == nil:
			if !c.ring.Buffered() {
				c.socket.SetReadDeadline(time.Now().Add(flushAfter)) // where it is closed, that is seen above
			}
			err = c.ring.Add(time.Now(), frame[:min(length, len(frame))], length)
		case err == nil:
			err = failed
		}
		if err != nil {
			return errors.Join(fmt.Errorf("capture on %s: %v", c.socket.Name(), err), c.ring.Close())
		}
	}
	return c.ring.Close()
}
