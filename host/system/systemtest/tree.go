package systemtest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"mesh/host/system"
)

// Tree is a directory of a real file system that is the root of a machine: the
// host's own way to the disk, with every call counted before it is made.
type Tree struct {
	root  string
	linux system.Linux

	mu     sync.Mutex
	before func(Op) error
	count  int
}

// NewTree is the tree at root, whose path has no link in it.
func NewTree(root string) *Tree { return &Tree{root: root} }

// Furnish makes what is on a new Disk.
func (t *Tree) Furnish() {
	for _, p := range furniture {
		t.Put(p, Thing{Type: system.TypeDirectory, Mode: 0o755})
	}
}

func (t *Tree) at(p string) string { return filepath.Join(t.root, p) }

func (t *Tree) watch(before func(Op) error) { t.before = before }

func (t *Tree) step(name, where string, changes bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count++
	if t.before == nil {
		return nil
	}
	if err := t.before(Op{N: t.count, Name: name, Where: where, Changes: changes}); err != nil {
		return &fs.PathError{Op: name, Path: where, Err: err}
	}
	return nil
}

// Put implements Storage by the standard library. A directory that is there
// stays, as where a file system is mounted.
func (t *Tree) Put(p string, thing Thing) {
	at := t.at(p)
	if thing.Type != system.TypeDirectory {
		must(os.RemoveAll(at))
	}
	defer func() { must(errors.Join(fsync(at), fsync(filepath.Dir(at)))) }()
	switch thing.Type {
	case "":
		return
	case system.TypeDirectory:
		must(os.MkdirAll(at, 0o700))
	case system.TypeFile:
		must(os.WriteFile(at, []byte(thing.Content), 0o600))
	case system.TypeFIFO:
		must(unix.Mkfifo(at, 0o600))
	case system.TypeLink:
		must(os.Symlink(thing.Content, at))
		return
	default:
		panic(fmt.Sprintf("systemtest: no way to put a %s on a real disk", thing.Type))
	}
	must(errors.Join(os.Chown(at, int(thing.UID), int(thing.GID)), unix.Chmod(at, thing.Mode)))
}

// fsync makes a file or directory durable; what is gone, or is neither, needs none.
func fsync(at string) error {
	file, err := os.OpenFile(at, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer file.Close()
	return file.Sync()
}

func must(err error) {
	if err != nil {
		panic("systemtest: " + err.Error())
	}
}

// Content implements Storage.
func (t *Tree) Content(p string) (string, bool) {
	b, err := os.ReadFile(t.at(p))
	return string(b), err == nil
}

// String implements Storage.
func (t *Tree) String() string {
	var b strings.Builder
	must(filepath.WalkDir(t.root, func(at string, _ fs.DirEntry, err error) error {
		if err != nil || at == t.root {
			return err
		}
		return t.print(&b, at)
	}))
	return b.String()
}

func (t *Tree) print(b *strings.Builder, at string) error {
	var st unix.Stat_t
	if err := unix.Lstat(at, &st); err != nil {
		return err
	}
	fmt.Fprintf(b, "%04o %d:%d %s", st.Mode&0o7777, st.Uid, st.Gid, strings.TrimPrefix(at, t.root))
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		data, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		fmt.Fprintf(b, " %s\n", shown(data))
	case unix.S_IFDIR:
		b.WriteString("/\n")
	default:
		b.WriteString(" (something else)\n")
	}
	return nil
}

// OpenDir implements system.Disk.
func (t *Tree) OpenDir(p string) (system.Dir, error) {
	if err := t.step("open directory", p, false); err != nil {
		return nil, err
	}
	d, err := t.linux.OpenDir(t.at(p))
	if err != nil {
		return nil, err
	}
	return &treeDir{Dir: d, t: t, path: p}, nil
}

// treeDir counts; Close is no call of interest.
type treeDir struct {
	system.Dir
	t    *Tree
	path string
}

func (x *treeDir) step(op, name string, changes bool) error {
	return x.t.step(op, path.Join(x.path, name), changes)
}

func (x *treeDir) Stat(name string) (system.Stat, error) {
	if err := x.step("stat", name, false); err != nil {
		return system.Stat{}, err
	}
	return x.Dir.Stat(name)
}

func (x *treeDir) Names() ([]string, error) {
	if err := x.step("list", ".", false); err != nil {
		return nil, err
	}
	names, err := x.Dir.Names()
	slices.Sort(names)
	return names, err
}

func (x *treeDir) Open(name string) (system.File, error) {
	return x.file("open", name, false, x.Dir.Open)
}

func (x *treeDir) Append(name string) (system.File, error) {
	return x.file("open to append", name, false, x.Dir.Append)
}

func (x *treeDir) Create(name string) (system.File, error) {
	return x.file("create", name, true, x.Dir.Create)
}

func (x *treeDir) file(op, name string, changes bool, open func(string) (system.File, error)) (system.File, error) {
	if err := x.step(op, name, changes); err != nil {
		return nil, err
	}
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	return &treeFile{File: f, t: x.t, path: path.Join(x.path, name)}, nil
}

func (x *treeDir) Lock(name string) (io.Closer, error) {
	if err := x.step("lock", name, true); err != nil {
		return nil, err
	}
	return x.Dir.Lock(name)
}

func (x *treeDir) Rename(from, to string) error {
	if err := x.step("rename", from, true); err != nil {
		return err
	}
	return x.Dir.Rename(from, to)
}

func (x *treeDir) one(op, name string, do func(string) error) error {
	if err := x.step(op, name, true); err != nil {
		return err
	}
	return do(name)
}

func (x *treeDir) Mkdir(name string) error  { return x.one("mkdir", name, x.Dir.Mkdir) }
func (x *treeDir) Unlink(name string) error { return x.one("unlink", name, x.Dir.Unlink) }
func (x *treeDir) Rmdir(name string) error  { return x.one("rmdir", name, x.Dir.Rmdir) }

func (x *treeDir) Chown(uid, gid uint32) error {
	if err := x.step("chown", ".", true); err != nil {
		return err
	}
	return x.Dir.Chown(uid, gid)
}

func (x *treeDir) Chmod(mode uint32) error {
	if err := x.step("chmod", ".", true); err != nil {
		return err
	}
	return x.Dir.Chmod(mode)
}

func (x *treeDir) Sync() error {
	if err := x.step("sync directory", ".", true); err != nil {
		return err
	}
	return x.Dir.Sync()
}

type treeFile struct {
	system.File
	t    *Tree
	path string
}

func (f *treeFile) Read(p []byte) (int, error) {
	if err := f.t.step("read", f.path, false); err != nil {
		return 0, err
	}
	return f.File.Read(p)
}

func (f *treeFile) Write(p []byte) (int, error) {
	if err := f.t.step("write", f.path, true); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

func (f *treeFile) Chown(uid, gid uint32) error {
	if err := f.t.step("chown", f.path, true); err != nil {
		return err
	}
	return f.File.Chown(uid, gid)
}

func (f *treeFile) Chmod(mode uint32) error {
	if err := f.t.step("chmod", f.path, true); err != nil {
		return err
	}
	return f.File.Chmod(mode)
}

func (f *treeFile) Sync() error {
	if err := f.t.step("sync", f.path, true); err != nil {
		return err
	}
	return f.File.Sync()
}
