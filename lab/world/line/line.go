// Package line delays frames between a port of a bridge and the bridge, on every
// kernel: the port is taken off the bridge, a tap of this process is put in its
// place, and this process is the wire between the two.
//
// Frames keep their order unless they are meant to overtake. What the sender left
// to its card to do, checksums and cutting up, is left to the next one. At most
// some MiB wait in each direction; beyond that frames are lost, as in any queue.
// When the process ends, the wire is cut: Join puts the ports back.
//
// Only lab/world imports it.
package line

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"mesh/lab/world/impairment"
	"mesh/lab/world/namespace"
)

// Lines are the delay lines of one namespace. Make it with New. Safe for
// concurrent use.
type Lines struct {
	space string
	log   *slog.Logger

	mu    sync.Mutex
	want  []impairment.Line
	wires map[string]*wire // by port; guarded by mu
}

// New makes the lines of a namespace, none yet.
func New(space string, log *slog.Logger) *Lines {
	return &Lines{space: space, log: log, wires: map[string]*wire{}}
}

// Set makes exactly these lines be there. A line whose port is not there waits
// for it: see Run. On an error some of the lines are as they were before.
func (l *Lines) Set(lines []impairment.Line) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.want = slices.Clone(lines)
	return l.settleLocked()
}

// Close takes all lines away.
func (l *Lines) Close() error { return l.Set(nil) }

// Run lays lines for ports that come, come back or are put back on their bridge,
// until ctx is done, which is no error; then it takes all lines away.
func (l *Lines) Run(ctx context.Context) error {
	changes, done := make(chan netlink.LinkUpdate, 64), make(chan struct{})
	defer func() {
		close(done)
		for range changes { // it is closed once the subscription has ended
		}
	}()
	ns, err := netns.GetFromName(l.space)
	if err != nil {
		return fmt.Errorf("open namespace %s: %v", l.space, err)
	}
	defer ns.Close()
	err = netlink.LinkSubscribeWithOptions(changes, done, netlink.LinkSubscribeOptions{Namespace: &ns})
	if err != nil {
		close(changes)
		return fmt.Errorf("watch links: %v", err)
	}
	for {
		select {
		case <-ctx.Done():
			return l.Close()
		case change, open := <-changes:
			if !open {
				changes = make(chan netlink.LinkUpdate)
				close(changes)
				return errors.Join(errors.New("watch links: the kernel ended the subscription"), l.Close())
			}
			l.changed(change.Attrs())
		}
	}
}

// changed looks after the line of a port that is not as its line left it.
func (l *Lines) changed(port *netlink.LinkAttrs) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wanted := slices.ContainsFunc(l.want, func(w impairment.Line) bool { return w.Port == port.Name })
	if w := l.wires[port.Name]; !wanted || w != nil && w.port == port.Index && port.MasterIndex == 0 {
		return
	}
	if err := l.settleLocked(); err != nil {
		l.log.Warn("delay line is not laid", "port", port.Name, "err", err)
	}
}

// settleLocked makes wires be as wanted.
func (l *Lines) settleLocked() error {
	return namespace.Do(l.space, func() error {
		var problems []error
		for port, w := range l.wires {
			if !slices.ContainsFunc(l.want, func(line impairment.Line) bool { return line.Port == port && line.Bridge == w.line.Bridge }) {
				problems = append(problems, l.liftLocked(w))
			}
		}
		for _, line := range l.want {
			if err := l.layLocked(line); err != nil {
				problems = append(problems, fmt.Errorf("lay delay line at %s: %w", line.Port, err))
			}
		}
		return errors.Join(problems...)
	})
}

// layLocked makes a line stand as it is wanted, if its port is there.
func (l *Lines) layLocked(line impairment.Line) error {
	port, err := netlink.LinkByName(line.Port)
	if missing := (netlink.LinkNotFoundError{}); errors.As(err, &missing) {
		if w := l.wires[line.Port]; w != nil {
			w.close()
			delete(l.wires, line.Port)
		}
		return nil
	}
	if err != nil {
		return err
	}
	if w := l.wires[line.Port]; w != nil {
		if w.port == port.Attrs().Index && port.Attrs().MasterIndex == 0 {
			w.set(line)
			return nil
		}
		w.close() // of a port that was there before, or joined to its bridge anew
		delete(l.wires, line.Port)
	}
	if port.Attrs().MasterIndex == 0 {
		return nil // it is not joined yet, or moves; its joining is seen by Run
	}
	w, err := open(line, port)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetNoMaster(port); err != nil {
		w.close()
		return fmt.Errorf("take it off its bridge: %v", err)
	}
	l.wires[line.Port] = w
	w.start()
	return nil
}

// liftLocked takes a line away and puts its port back, if that is there.
func (l *Lines) liftLocked(w *wire) error {
	w.close()
	delete(l.wires, w.line.Port)
	return Join(map[string]string{w.line.Port: w.line.Bridge})
}

// Join joins ports (by name, to bridges) that are in the calling thread's
// namespace and on no bridge.
func Join(ports map[string]string) error {
	var problems []error
	for name, bridge := range ports {
		port, err := netlink.LinkByName(name)
		if missing := (netlink.LinkNotFoundError{}); errors.As(err, &missing) || err == nil && port.Attrs().MasterIndex != 0 {
			continue
		}
		var master netlink.Link
		if err == nil {
			master, err = netlink.LinkByName(bridge)
		}
		if err == nil {
			err = netlink.LinkSetMaster(port, master)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("join %s to %s: %v", name, bridge, err))
		}
	}
	return errors.Join(problems...)
}
