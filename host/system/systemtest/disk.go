package systemtest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"mesh/host/system"
)

// Disk is a file system in memory that remembers what was synced and what was
// not. It is as strict as the weakest file system a host may meet: a sync of a
// file makes its bytes, owner and mode durable, a sync of a directory its
// names, and nothing else makes anything durable.
type Disk struct {
	mu      sync.Mutex
	root    *inode
	pending []*operation // changes not yet durable, oldest first
	locks   map[*inode]bool
	before  func(Op) error // nil means nothing interferes
	count   int
	swap    swap
}

// Op is one call that is about to be made; a hook may refuse it.
type Op struct {
	N       int    // counts every call of a machine, from 1
	Name    string // "write", "sync directory", "restart"
	Where   string // path, unit or package
	Changes bool   // the call changes something

	fixed bool // it is not to be put off
}

func (o Op) String() string { return fmt.Sprintf("%d: %s %s", o.N, o.Name, o.Where) }

// image is the part of an inode that a sync makes durable.
type image struct {
	uid, gid, mode uint32
	data           []byte
	entries        map[string]*inode // directory
}

func (im image) clone() image {
	im.data = slices.Clone(im.data)
	im.entries = maps.Clone(im.entries)
	return im
}

type inode struct {
	typ     system.Type
	mount   bool
	now     image // what a running system sees
	durable image // what is there after the power was cut
}

func newInode(typ system.Type, mode uint32) *inode {
	n := &inode{typ: typ, now: image{mode: mode}, durable: image{mode: mode}}
	if typ == system.TypeDirectory {
		n.now.entries, n.durable.entries = map[string]*inode{}, map[string]*inode{}
	}
	return n
}

// operation is one change that is not durable yet.
type operation struct {
	on     *inode
	data   []byte // of a write
	change func(im *image, data []byte)
}

// furniture is the directories that are on every machine.
var furniture = []string{"/etc", "/var", "/var/lib", "/run", "/srv"}

// NewDisk is a disk with the directories /etc, /var/lib, /run and /srv on it.
func NewDisk() *Disk {
	d := &Disk{root: newInode(system.TypeDirectory, 0o755), locks: map[*inode]bool{}}
	for _, p := range furniture {
		d.Put(p, Thing{Type: system.TypeDirectory, Mode: 0o755})
	}
	return d
}

// Thing is something to put on a disk by hand.
type Thing struct {
	Type     system.Type
	UID, GID uint32
	Mode     uint32
	Content  string
	Mount    bool
}

// Put places t at p, durably, whatever was there; the directory must exist. A
// Type of "" removes.
func (d *Disk) Put(p string, t Thing) {
	d.mu.Lock()
	defer d.mu.Unlock()
	parent, _, err := d.walk(path.Dir(p))
	if err != nil {
		panic(fmt.Sprintf("systemtest: put %s: %v", p, err))
	}
	name := path.Base(p)
	if t.Type == "" {
		delete(parent.now.entries, name)
		delete(parent.durable.entries, name)
		return
	}
	n := newInode(t.Type, t.Mode)
	n.mount = t.Mount
	n.now.uid, n.now.gid, n.now.data = t.UID, t.GID, []byte(t.Content)
	n.durable = n.now.clone()
	parent.now.entries[name], parent.durable.entries[name] = n, n
}

// Content returns the content of the file at p and whether there is one.
func (d *Disk) Content(p string) (string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	parent, _, err := d.walk(path.Dir(p))
	if err != nil {
		return "", false
	}
	n := parent.now.entries[path.Base(p)]
	if n == nil || n.typ != system.TypeFile {
		return "", false
	}
	return string(n.now.data), true
}

// String is the tree: a line for each name, in order.
func (d *Disk) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var b strings.Builder
	d.print(&b, "/", d.root)
	return b.String()
}

func (d *Disk) print(b *strings.Builder, at string, n *inode) {
	for _, name := range slices.Sorted(maps.Keys(n.now.entries)) {
		child, p := n.now.entries[name], path.Join(at, name)
		fmt.Fprintf(b, "%04o %d:%d %s", child.now.mode, child.now.uid, child.now.gid, p)
		switch child.typ {
		case system.TypeFile:
			fmt.Fprintf(b, " %s\n", shown(child.now.data))
		case system.TypeDirectory:
			b.WriteString("/\n")
			d.print(b, p, child)
		default:
			fmt.Fprintf(b, " (%s)\n", child.typ)
		}
	}
}

// shown is data quoted, or named by its digest if it is not text.
func shown(data []byte) string {
	if !utf8.Valid(data) || bytes.ContainsRune(data, 0) {
		return fmt.Sprintf("%d bytes, sha256:%x", len(data), sha256.Sum256(data))
	}
	return strconv.Quote(string(data))
}

// call counts a call and lets the hook refuse it, or put it off.
func (d *Disk) call(name, where string, changes bool) error {
	op := Op{Name: name, Where: where, Changes: changes}
	if err := d.catchUp(op); err != nil {
		return err
	}
	if d.swap.do != nil {
		op.fixed = true // one at a time
		return d.allow(op)
	}
	d.swap = swap{}
	err := d.allow(op)
	if late := (*putOff)(nil); errors.As(err, &late) {
		d.count-- // it counts when it is made
		d.swap = swap{op: op, wanted: true, behind: late.behind}
		return nil
	}
	return err
}

func (d *Disk) allow(op Op) error {
	d.count++
	op.N = d.count
	if d.before == nil {
		return nil
	}
	if err := d.before(op); err != nil {
		return &fs.PathError{Op: op.Name, Path: op.Where, Err: err}
	}
	return nil
}

// step implements Storage.
func (d *Disk) step(name, where string, changes bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.call(name, where, changes)
}

func (d *Disk) watch(before func(Op) error) { d.before = before }

// alter changes what the running system sees now, and what is durable later.
func (d *Disk) alter(n *inode, data []byte, change func(im *image, data []byte)) {
	if d.deferred(func() { d.alter(n, data, change) }) {
		return
	}
	change(&n.now, data)
	d.pending = append(d.pending, &operation{on: n, change: change, data: data})
}

// sync makes everything pending on n durable.
func (d *Disk) sync(n *inode) {
	if d.deferred(func() { d.sync(n) }) {
		return
	}
	d.pending = slices.DeleteFunc(d.pending, func(o *operation) bool {
		if o.on == n {
			o.change(&n.durable, o.data)
		}
		return o.on == n
	})
}

// lose makes what is pending on the file n never durable: after a failed fsync
// the kernel takes the pages for clean, and a second fsync says nothing.
func (d *Disk) lose(n *inode) {
	if n.typ == system.TypeFile {
		d.pending = slices.DeleteFunc(d.pending, func(o *operation) bool { return o.on == n })
	}
}

// walk finds the directory at p.
func (d *Disk) walk(p string) (*inode, string, error) {
	n, at := d.root, "/"
	for name := range strings.SplitSeq(strings.Trim(p, "/"), "/") {
		if name == "" {
			break
		}
		at = path.Join(at, name)
		next := n.now.entries[name]
		switch {
		case next == nil:
			return nil, "", &fs.PathError{Op: "open directory", Path: p, Err: unix.ENOENT}
		case next.typ != system.TypeDirectory:
			return nil, "", &system.InWayError{Path: p, Component: at, Type: next.typ}
		}
		n = next
	}
	return n, at, nil
}
