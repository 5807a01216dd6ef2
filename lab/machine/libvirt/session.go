package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"syscall"
	"time"

	rpc "github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"

	"mesh/lab/machine"
)

// sockets are where a local daemon for QEMU listens: the one daemon for
// everything, and the modular one (https://libvirt.org/daemons.html).
var sockets = []string{"/run/libvirt/libvirt-sock", "/run/libvirt/virtqemud-sock"}

const (
	// callTime bounds a call whose context has no deadline of its own.
	callTime = 60 * time.Second
	// openTime bounds the opening of a session.
	openTime = 20 * time.Second
	// sweepTime bounds the undoing of a call that was given up.
	sweepTime = 15 * time.Second
)

// errNoDaemon means that no daemon answers on any socket.
var errNoDaemon = errors.New("no libvirt daemon answers on " + sockets[0] + "; start one (`lab verify` shows what is missing)")

// connect opens a session with the first daemon that listens, within limit. When
// ctx ends the connection is closed, which ends whatever runs on it. The caller
// hangs up.
func connect(ctx context.Context, sockets []string, limit time.Duration) (c *rpc.Libvirt, hangUp func(), err error) {
	conn, err := dial(ctx, sockets)
	if err != nil {
		return nil, nil, err
	}
	o := newOpening(&streams{Conn: conn})
	c = rpc.NewWithDialer(dialers.NewAlreadyConnected(o))
	within, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the daemon does not answer within %s", limit))
	stop := context.AfterFunc(within, func() { _ = conn.Close() }) // a deadline would make the library read on and on
	err = c.ConnectToURI(rpc.QEMUSystem)
	o.opened()
	if !stop() && err == nil {
		err = net.ErrClosed
	}
	if err != nil && within.Err() != nil {
		err = context.Cause(within)
	}
	cancel()
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
	return c, func() {
		stop()
		_ = c.Disconnect() // polite; it fails where the connection is closed already
		_ = conn.Close()
		<-c.Disconnected()
	}, nil
}

// dial connects to the first socket that somebody listens on.
func dial(ctx context.Context, sockets []string) (net.Conn, error) {
	var d net.Dialer
	for _, path := range sockets {
		conn, err := d.DialContext(ctx, "unix", path)
		switch {
		case err == nil:
			return conn, nil
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
			continue
		}
		return nil, err
	}
	return nil, errNoDaemon
}

// call runs f on a connection of its own, within ctx. Errors begin with what.
func (h *Hypervisor) call(ctx context.Context, what string, f func(c *rpc.Libvirt) error) error {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTime)
		defer cancel()
	}
	c, hangUp, err := connect(ctx, h.sockets, openTime)
	if err == nil {
		defer hangUp()
		err = f(c)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil: // the connection was closed under f: its own error says nothing
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
	return fmt.Errorf("%s: %w", what, err)
}

// with is call for one existing domain.
func (h *Hypervisor) with(ctx context.Context, what, name string, f func(c *rpc.Libvirt, d rpc.Domain) error) error {
	return h.call(ctx, what, func(c *rpc.Libvirt) error {
		d, err := c.DomainLookupByName(name)
		if err == nil {
			err = f(c, d)
		}
		if is(err, rpc.ErrNoDomain) {
			return machine.ErrAbsent
		}
		return err
	})
}

// is tells whether libvirt answered with that error number.
func is(err error, number rpc.ErrorNumber) bool {
	var e rpc.Error
	return errors.As(err, &e) && e.Code == uint32(number)
}

// text writes a UUID as specs do.
func text(u rpc.UUID) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}
