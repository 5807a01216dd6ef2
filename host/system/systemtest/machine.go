// Package systemtest is a machine in memory: files with what is synced and what
// is not, packages, units, containers, accounts. It is strict, prints its world as text, and
// can be cut at any call, with any part of what was not synced lost. Conformance
// is the suite that it and the real machine both pass.
//
// Only tests import it.
package systemtest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"mesh/host/system"
)

// ErrCut is what every call returns once the machine is cut.
var ErrCut = errors.New("the machine is off")

// errDeleted makes a sync do nothing and say that it did.
var errDeleted = errors.New("this sync was deleted")

// Machine is a whole machine. It implements resource.Machine.
type Machine struct {
	*system.Files
	*system.Contents
	*Packages
	*Services
	*Podman
	Disk Storage
	// Programs are what Try runs, by their path; they are given the content of the
	// file that is the last argument.
	Programs  map[string]func(content string) error
	promising uint64 // promised once the next call is made: one that is put off has said that it was done
	promised  uint64
	cut       bool
	hook      func(Op) error
}

// Promise notes, beside the machine where nothing is lost, that the host has
// called a generation accepted.
func (m *Machine) Promise(generation uint64) { m.promising = generation }

// Promised is the newest generation that the host has called accepted; 0: none.
func (m *Machine) Promised() uint64 { return m.promised }

// Storage is a disk that a test looks at, and puts things on, by other means
// than the host's: Disk in memory, or Tree on a real file system.
type Storage interface {
	system.Disk
	Put(p string, t Thing)           // durably, whatever was there; a Type of "" removes
	Content(p string) (string, bool) // of the file at p, and whether there is one
	String() string                  // a line for each name, in order

	step(name, where string, changes bool) error // a call is made; a hook may refuse it
	watch(before func(Op) error)                 // asked before every call
}

// ContentPath is where every machine keeps what is named by its digest.
const ContentPath = "/var/lib/mesh-host/content"

// New is a machine with nothing on it.
func New() *Machine { return On(NewDisk()) }

// On is a machine with nothing but what is on its disk.
func On(d Storage) *Machine { return assemble(d, newPackages(), newServices(), newPodman()) }

func assemble(d Storage, p *Packages, u *Services, c *Podman) *Machine {
	files := system.NewFiles(d, 1)
	m := &Machine{Files: files, Contents: system.NewContents(files, ContentPath), Packages: p, Services: u, Podman: c, Disk: d}
	d.watch(m.interfere)
	p.m, u.m, c.m = m, m, m
	return m
}

// Hook lets f see, and refuse, every call before it is made; nil takes it away.
func (m *Machine) Hook(f func(Op) error) { m.hook = f }

func (m *Machine) interfere(op Op) error {
	if m.cut {
		return ErrCut
	}
	if !op.fixed {
		m.promised = max(m.promised, m.promising)
	}
	if m.hook == nil {
		return nil
	}
	err := m.hook(op)
	if errors.Is(err, ErrCut) {
		m.cut = true
	}
	return err
}

// CutAt is a hook that cuts the machine before its nth changing call from now.
func CutAt(n int) func(Op) error {
	return func(op Op) error {
		if op.Changes {
			n--
		}
		if n == 0 {
			return ErrCut
		}
		return nil
	}
}

// CutBehind is a hook that cuts the machine before the change behind the calls of
// these names at one place, once they were made in this order.
func CutBehind(where string, names ...string) func(Op) error {
	return func(op Op) error {
		switch {
		case len(names) == 0 && op.Changes:
			return ErrCut
		case len(names) > 0 && op.Where == where && op.Name == names[0]:
			names = names[1:]
		}
		return nil
	}
}

// FailAt is a hook under which the nth call from now fails with err, once.
func FailAt(n int, err error) func(Op) error {
	return func(Op) error {
		if n--; n == 0 {
			return err
		}
		return nil
	}
}

// WithoutSync is a hook under which the syncs made at the places in the program
// that match do nothing, as if they had been left out of it, on top of what next
// does.
func WithoutSync(match func(place string) bool, next func(Op) error) func(Op) error {
	return func(op Op) error {
		if err := next(op); err != nil {
			return err
		}
		if strings.HasPrefix(op.Name, "sync") && match(place()) {
			return errDeleted
		}
		return nil
	}
}

// place names the functions of the host that led to this call, innermost first.
func place() string {
	var names []string
	pc := make([]uintptr, 64)
	frames := runtime.CallersFrames(pc[:runtime.Callers(1, pc)])
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		for _, pkg := range []string{"mesh/host/system.", "mesh/host/store."} {
			if name, ok := strings.CutPrefix(f.Function, pkg); ok {
				names = append(names, name)
			}
		}
	}
	return strings.Join(names, " < ")
}

// Killed is the machine after the host alone was killed: nothing is lost but what
// it was about to say.
func (m *Machine) Killed() {
	m.cut, m.hook, m.promising = false, nil, m.promised
	if d, ok := m.Disk.(*Disk); ok {
		d.conclude()
		d.locks = map[*inode]bool{} // a kernel does that by itself
	}
}

// Off says whether the machine is cut.
func (m *Machine) Off() bool { return m.cut }

// Pending is the number of changes that are not synced. The disk has to be a
// Disk, for PowerCut too.
func (m *Machine) Pending() int {
	d := m.Disk.(*Disk)
	d.conclude()
	return len(d.pending)
}

// PowerCut is the machine as it comes up after the power was cut: a new one,
// with what loss leaves. m itself is not changed.
func (m *Machine) PowerCut(loss Loss) *Machine { return m.Rebooted(m.Disk.(*Disk).crash(loss)) }

// Rebooted is the machine as it comes up with what is on a disk: a new one. m
// itself is not changed.
func (m *Machine) Rebooted(on Storage) *Machine {
	up := assemble(on, m.Packages.clone(), m.Services.rebooted(), m.Podman.clone())
	up.Programs, up.promised = m.Programs, m.promised
	up.generate()
	for _, unit := range up.sorted() {
		if unit.Enabled == "enabled" || unit.Enabled == "generated" {
			_ = up.start(unit) // as systemd starts it: one that fails is seen to have
		}
	}
	return up
}

func (d *Disk) crash(loss Loss) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conclude()
	images := map[*inode]image{}
	for i, op := range d.pending {
		if !loss.Keeps(i, len(d.pending)) {
			continue
		}
		im, touched := images[op.on]
		if !touched {
			im = op.on.durable.clone()
		}
		data := op.data
		if loss.Torn != nil && len(data) > 0 {
			data = loss.Torn(data)
		}
		op.change(&im, data)
		images[op.on] = im
	}
	copied := map[*inode]*inode{}
	var copyOf func(n *inode) *inode
	copyOf = func(n *inode) *inode {
		if c := copied[n]; c != nil {
			return c
		}
		im, touched := images[n]
		if !touched {
			im = n.durable.clone()
		}
		c := &inode{typ: n.typ, mount: n.mount, now: im}
		copied[n] = c
		for name, child := range c.now.entries {
			c.now.entries[name] = copyOf(child)
		}
		c.durable = c.now.clone()
		return c
	}
	return &Disk{root: copyOf(d.root), locks: map[*inode]bool{}}
}

// Accounts implements resource.Accounts: root, and what packages brought.
func (m *Machine) Accounts() (system.Accounts, error) {
	if m.cut {
		return system.Accounts{}, ErrCut
	}
	a := system.Accounts{Users: map[string]uint32{"root": 0}, Groups: map[string]uint32{"root": 0}}
	for name := range m.Packages.installed {
		for user, id := range m.Packages.offers[name].Users {
			a.Users[user], a.Groups[user] = id, id
		}
	}
	return a, nil
}

// Try implements resource.Programs.
func (m *Machine) Try(_ context.Context, argv []string) error {
	if err := m.call("run", strings.Join(argv, " "), false); err != nil {
		return err
	}
	program, there := m.Programs[argv[0]]
	if !there {
		return fmt.Errorf("%s: no such program", argv[0])
	}
	content, _ := m.Disk.Content(argv[len(argv)-1])
	return program(content)
}

// String is the world: files, packages, units, images, containers.
func (m *Machine) String() string {
	return m.Disk.String() + m.Packages.String() + m.Services.String() + m.Podman.String()
}

// call is a call that is not about files.
func (m *Machine) call(name, where string, changes bool) error {
	if err := m.Disk.step(name, where, changes); err != nil {
		return fmt.Errorf("%s %s: %w", name, where, err)
	}
	return nil
}
