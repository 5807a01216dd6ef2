package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	rpc "github.com/digitalocean/go-libvirt"
	"golang.org/x/sys/unix"

	"mesh/lab/machine"
)

const (
	// stateDir is where libvirt keeps the numbers of its QEMU processes.
	stateDir = "/run/libvirt/qemu"
	// grace is how long the daemon may take to say why a process has ended. It
	// says so only when init has taken note of the end, which may be seconds.
	grace = 500 * time.Millisecond
)

// Wait is machine.Hypervisor's. It polls nothing: kernel and daemon tell.
func (h *Hypervisor) Wait(ctx context.Context, name string) (machine.Death, error) {
	seen, err := h.waitEnd(ctx, name)
	if err != nil {
		return machine.Death{}, fmt.Errorf("wait for the end of machine %s: %w", name, err)
	}
	l, err := readLog(name)
	if err != nil {
		return machine.Death{}, fmt.Errorf("read how machine %s ended: %w", name, err)
	}
	return machine.Death{Cause: cause(seen, l), Stderr: l.stderr, Command: l.command}, nil
}

// waitEnd returns nil once no domain of that name exists or its process has
// ended; seen is what the daemon said of the cause, Unknown if nothing.
func (h *Hypervisor) waitEnd(ctx context.Context, name string) (seen machine.Cause, err error) {
	seen = machine.Unknown
	c, hangUp, err := connect(ctx, h.sockets, openTime)
	if err != nil {
		return seen, ended(ctx, err)
	}
	// Subscribed before looking, so that no end falls between the two; and until
	// the connection ends, which is the end of the subscription, too: a daemon that
	// is still at one when the other comes may read a list that is gone (libvirt 9.0
	// does, and all that is asked of it then fails).
	listening, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	events, err := c.LifecycleEvents(listening)
	if err != nil {
		hangUp()
		return seen, ended(ctx, err)
	}
	defer func() {
		hangUp()
		stop()             // the connection may have ended before the library knew of the subscription
		for range events { // its sender does not look whether anybody hears it
		}
	}()
	exit, release := watchProcess(name)
	defer release()
	d, err := c.DomainLookupByName(name)
	if is(err, rpc.ErrNoDomain) {
		return seen, nil
	}
	if err != nil {
		return seen, ended(ctx, err)
	}
	var late <-chan time.Time
	for {
		select {
		case <-exit:
			exit, late = nil, time.After(grace)
			continue
		case e, open := <-events:
			switch {
			case !open && late != nil:
				return seen, nil
			case !open:
				return seen, ended(ctx, errors.New("the libvirt daemon hung up"))
			case heard(e, d, &seen):
				return seen, nil
			}
			continue
		case <-late:
		}
		for { // on a busy machine the daemon's word may be there, unheard
			select {
			case e, open := <-events:
				if open && !heard(e, d, &seen) {
					continue
				}
			default:
			}
			return seen, nil
		}
	}
}

// heard notes what an event says of the cause of d's end, and tells whether it
// is the end.
func heard(e rpc.DomainEventLifecycleMsg, d rpc.Domain, seen *machine.Cause) bool {
	if e.Dom.UUID != d.UUID {
		return false
	}
	switch rpc.DomainEventType(e.Event) {
	case rpc.DomainEventStopped:
		return true
	case rpc.DomainEventCrashed:
		*seen = machine.Panicked
	case rpc.DomainEventShutdown:
		// The daemon may announce it for a signal of its own, too.
		if rpc.DomainEventShutdownDetailType(e.Detail) != rpc.DomainEventShutdownHost {
			*seen = machine.ShutDown
		}
	}
	return false
}

// cause makes one of what the daemon announced and what the log holds.
func cause(seen machine.Cause, l processLog) machine.Cause {
	switch {
	case l.killer == killedByOther:
		return machine.Failed
	case seen != machine.Unknown:
		return seen
	case l.reason == "" && l.command == "":
		return machine.Unknown
	case l.reason == "" && l.killer == killedByDaemon:
		return machine.Destroyed // and init has not noticed yet
	case l.reason == "":
		return machine.Failed
	case l.reason == "crashed" && l.killer == killedByDaemon:
		return machine.Panicked // a process that fails needs no killing
	}
	if known, ok := reasons[l.reason]; ok {
		return known
	}
	return machine.Unknown
}

// watchProcess returns a channel that is closed when the machine's process
// ends. Where its number cannot be learnt, the channel stays open. The process
// is that of the domain that has the name at some moment after the call.
func watchProcess(name string) (exit <-chan struct{}, release func()) {
	ended := make(chan struct{})
	text, err := os.ReadFile(filepath.Join(stateDir, filepath.Base(name)+".pid"))
	if err != nil {
		return ended, func() {}
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return ended, func() {}
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return ended, func() {}
	}
	process := os.NewFile(uintptr(fd), "pidfd")
	done := make(chan struct{})
	go func() {
		defer close(done)
		if awaitReadable(process) {
			close(ended)
		}
	}()
	return ended, func() {
		_ = process.Close()
		<-done
	}
}

// awaitReadable returns true when a descriptor of a process says that it has
// ended (pidfd_open(2)), false when the file is closed before.
func awaitReadable(process *os.File) bool {
	conn, err := process.SyscallConn()
	if err != nil {
		return false
	}
	err = conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return err == nil && n > 0
	})
	return err == nil
}

// ended prefers ctx's reason to what its end broke.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
