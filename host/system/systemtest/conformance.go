package systemtest

import (
	"errors"
	"io/fs"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"mesh/host/system"
)

// Ground is a disk to try things on.
type Ground struct {
	Disk system.Disk
	Base string // an empty directory on it, of the caller's own
	// Place puts something at a path by other means than the disk's own.
	Place func(t *testing.T, p string, thing Thing)
	UID   uint32 // of the caller
	GID   uint32
}

// Conformance is what a system.Disk, and the files on it, must do. It runs each
// part on a ground of its own.
func Conformance(t *testing.T, ground func(t *testing.T) Ground) {
	for name, part := range map[string]func(*testing.T, Ground){
		"a file is replaced":               replaces,
		"many files in many directories":   replacesMany,
		"what is in the way is named":      refuses,
		"nothing goes through a link":      noLinks,
		"a file is removed if unchanged":   removes,
		"a directory is made with access":  makesDirectory,
		"a directory is removed if empty":  removesDirectory,
		"a crash's leftovers are cleared":  clears,
		"the state directory keeps a lock": locks,
		"errors are those of the kernel":   errnos,
	} {
		t.Run(name, func(t *testing.T) { part(t, ground(t)) })
	}
}

func (g Ground) files() *system.Files  { return system.NewFiles(g.Disk, 4) }
func (g Ground) at(name string) string { return path.Join(g.Base, name) }

func (g Ground) access(mode uint32) system.Access {
	return system.Access{UID: g.UID, GID: g.GID, Mode: mode}
}

func (g Ground) write(t *testing.T, name, content string, mode uint32) {
	t.Helper()
	w := system.Write{Path: g.at(name), Content: []byte(content), Access: g.access(mode)}
	if err := g.files().Replace([]system.Write{w})[0]; err != nil {
		t.Fatal(err)
	}
}

func (g Ground) look(t *testing.T, name string) system.Entry {
	t.Helper()
	e, err := g.files().Look(g.at(name))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// names lists the base, which must hold nothing else.
func (g Ground) names(t *testing.T, want ...string) {
	t.Helper()
	dir, err := g.Disk.OpenDir(g.Base)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	got, err := dir.Names()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, name := range got {
		seen[name] = true
	}
	for _, name := range want {
		if !seen[name] {
			t.Errorf("%s is missing", name)
		}
		delete(seen, name)
	}
	if len(seen) > 0 {
		t.Errorf("there is more: %v", seen)
	}
}

const sumOfHello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" // printf hello | sha256sum

func replaces(t *testing.T, g Ground) {
	g.write(t, "f", "hello", 0o640)
	want := system.Entry{Type: system.TypeFile, Digest: sumOfHello, UID: g.UID, GID: g.GID, Mode: 0o640}
	if diff := cmp.Diff(want, g.look(t, "f")); diff != "" {
		t.Error(diff)
	}
	g.write(t, "f", "other", 0o4755)
	if e := g.look(t, "f"); e.Mode != 0o4755 || e.Digest == sumOfHello {
		t.Errorf("after a second write: %+v", e)
	}
	g.names(t, "f")
}

func replacesMany(t *testing.T, g Ground) {
	for _, dir := range []string{"a", "b"} {
		if err := g.files().MakeDirectory(g.at(dir), g.access(0o755)); err != nil {
			t.Fatal(err)
		}
	}
	var writes []system.Write
	for _, name := range []string{"a/1", "b/1", "nowhere/1", "a/2", "b/2", "a/3"} {
		writes = append(writes, system.Write{Path: g.at(name), Content: []byte(name), Access: g.access(0o600)})
	}
	for i, err := range g.files().Replace(writes) {
		if missing := i == 2; missing != errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", writes[i].Path, err)
		}
	}
	for i, w := range writes {
		if e, err := g.files().Look(w.Path); i != 2 && (err != nil || e.Type != system.TypeFile) {
			t.Errorf("%s: %+v %v", w.Path, e, err)
		}
	}
}

func refuses(t *testing.T, g Ground) {
	for _, typ := range []system.Type{system.TypeLink, system.TypeFIFO, system.TypeDirectory} {
		g.Place(t, g.at("x"), Thing{Type: typ, Mode: 0o700, Content: "nowhere"})
		if e := g.look(t, "x"); e.Type != typ || e.Digest != "" {
			t.Errorf("%s is seen as %+v", typ, e)
		}
		err := g.files().Replace([]system.Write{{Path: g.at("x"), Access: g.access(0o600)}})[0]
		var inWay *system.InWayError
		if !errors.As(err, &inWay) || inWay.Type != typ || inWay.Component != g.at("x") {
			t.Errorf("written over a %s: %v", typ, err)
		}
		if err := g.files().Remove([]system.Removal{{Path: g.at("x")}})[0]; !errors.Is(err, system.ErrChanged) {
			t.Errorf("removed a %s: %v", typ, err)
		}
		g.names(t, "x")
		g.Place(t, g.at("x"), Thing{})
	}
}

func noLinks(t *testing.T, g Ground) {
	g.Place(t, g.at("link"), Thing{Type: system.TypeLink, Content: g.Base})
	g.Place(t, g.at("file"), Thing{Type: system.TypeFile, Mode: 0o600})
	for component, typ := range map[string]system.Type{"link": system.TypeLink, "file": system.TypeFile} {
		p := g.at(component + "/below/it")
		var inWay *system.InWayError
		if _, err := g.files().Look(p); !errors.As(err, &inWay) || inWay.Component != g.at(component) || inWay.Type != typ {
			t.Errorf("looked through a %s: %v", typ, err)
		}
		if err := g.files().Replace([]system.Write{{Path: p}})[0]; !errors.As(err, &inWay) || inWay.Component != g.at(component) {
			t.Errorf("wrote through a %s: %v", typ, err)
		}
		if err := g.files().MakeDirectory(p, g.access(0o700)); !errors.As(err, &inWay) {
			t.Errorf("made a directory through a %s: %v", typ, err)
		}
		if err := g.files().RemoveDirectory(p); !errors.As(err, &inWay) {
			t.Errorf("removed through a %s: %v", typ, err)
		}
	}
	g.names(t, "link", "file")
}

func removes(t *testing.T, g Ground) {
	g.write(t, "same", "hello", 0o600)
	g.write(t, "changed", "by hand", 0o600)
	errs := g.files().Remove([]system.Removal{
		{Path: g.at("same"), Digest: sumOfHello}, {Path: g.at("changed"), Digest: sumOfHello}, {Path: g.at("gone"), Digest: sumOfHello},
	})
	if errs[0] != nil || !errors.Is(errs[1], system.ErrChanged) || errs[2] != nil {
		t.Errorf("%v", errs)
	}
	g.names(t, "changed")
}

func makesDirectory(t *testing.T, g Ground) {
	if err := g.files().MakeDirectory(g.at("d"), g.access(0o2750)); err != nil {
		t.Fatal(err)
	}
	want := system.Entry{Type: system.TypeDirectory, UID: g.UID, GID: g.GID, Mode: 0o2750}
	if diff := cmp.Diff(want, g.look(t, "d")); diff != "" {
		t.Error(diff)
	}
	if err := g.files().SetDirectory(g.at("d"), g.access(0o700)); err != nil {
		t.Fatal(err)
	}
	if e := g.look(t, "d"); e.Mode != 0o700 {
		t.Errorf("mode %o", e.Mode)
	}
	if err := g.files().MakeDirectory(g.at("none/d"), g.access(0o700)); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "declare it before this") {
		t.Errorf("without its parent: %v", err)
	}
	g.names(t, "d")
}

func removesDirectory(t *testing.T, g Ground) {
	if err := g.files().MakeDirectory(g.at("d"), g.access(0o700)); err != nil {
		t.Fatal(err)
	}
	g.write(t, "d/f", "hello", 0o600)
	if err := g.files().RemoveDirectory(g.at("d")); !errors.Is(err, system.ErrNotEmpty) {
		t.Errorf("with a file in it: %v", err)
	}
	if err := g.files().RemoveDirectory(g.at("d/f")); !errors.Is(err, system.ErrChanged) {
		t.Errorf("a file: %v", err)
	}
	if err := g.files().Remove([]system.Removal{{Path: g.at("d/f"), Digest: sumOfHello}})[0]; err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it is gone already
		if err := g.files().RemoveDirectory(g.at("d")); err != nil {
			t.Error(err)
		}
	}
	g.names(t)
}

func clears(t *testing.T, g Ground) {
	// The names of temporaries follow from the names they are for: a write that
	// is cut leaves one, and Settle and the next write find it.
	dir, err := g.Disk.OpenDir(g.Base)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for _, again := range []func() error{
		func() error { return g.files().Settle(g.at("f")) },
		func() error { return g.files().Replace([]system.Write{{Path: g.at("f"), Access: g.access(0o600)}})[0] },
		func() error { return g.files().MakeDirectory(g.at("f"), g.access(0o700)) },
	} {
		for _, directory := range []bool{false, true} {
			g.Place(t, g.at("f"), Thing{})
			leave(t, dir, system.Temporary("f"), directory)
			if err := again(); err != nil {
				t.Error(err)
			}
			if _, err := dir.Stat(system.Temporary("f")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a leftover stays: %v", err)
			}
		}
	}
}

func leave(t *testing.T, dir system.Dir, name string, directory bool) {
	t.Helper()
	if directory {
		if err := dir.Mkdir(name); err != nil {
			t.Fatal(err)
		}
		return
	}
	f, err := dir.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close()); err != nil {
		t.Fatal(err)
	}
}

func locks(t *testing.T, g Ground) {
	state := system.NewStateDirectory(g.files(), g.at("state"))
	if _, err := state.Read("x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read before there is anything: %v", err)
	}
	base, err := g.Disk.OpenDir(g.Base)
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close()
	leave(t, base, "state", true)
	leave(t, base, system.Temporary("state"), true) // begun before it, and come back
	first, err := state.Lock("lock")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := state.Lock("lock"); err == nil {
		t.Error("two have the lock")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	g.names(t, "state")
	again, err := state.Lock("lock")
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := state.Replace("x", []byte("one")); err != nil {
		t.Fatal(err)
	}
	appender, err := state.Append("x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := appender.Write([]byte(" two")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(appender.Sync(), appender.Close(), state.Rename("x", "y")); err != nil {
		t.Fatal(err)
	}
	if got, err := state.Read("y"); err != nil || string(got) != "one two" {
		t.Errorf("%q %v", got, err)
	}
}

func errnos(t *testing.T, g Ground) {
	dir, err := g.Disk.OpenDir(g.Base)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	leave(t, dir, "f", false)
	leave(t, dir, "d", true)
	leave(t, dir, "full", true)
	g.write(t, "full/f", "x", 0o600)
	create := func(name string) error { _, err := dir.Create(name); return err }
	open := func(name string) error { _, err := dir.Open(name); return err }
	for what, tt := range map[string]struct{ got, want error }{
		"create twice":              {create("f"), unix.EEXIST},
		"open none":                 {open("none"), unix.ENOENT},
		"make a directory twice":    {dir.Mkdir("d"), unix.EEXIST},
		"unlink none":               {dir.Unlink("none"), unix.ENOENT},
		"unlink a directory":        {dir.Unlink("d"), unix.EISDIR},
		"rmdir none":                {dir.Rmdir("none"), unix.ENOENT},
		"rmdir a file":              {dir.Rmdir("f"), unix.ENOTDIR},
		"rmdir a full one":          {dir.Rmdir("full"), unix.ENOTEMPTY},
		"rename none":               {dir.Rename("none", "f"), unix.ENOENT},
		"file over directory":       {dir.Rename("f", "d"), unix.EISDIR},
		"directory over file":       {dir.Rename("d", "f"), unix.ENOTDIR},
		"directory over a full one": {dir.Rename("d", "full"), unix.ENOTEMPTY},
	} {
		if !errors.Is(tt.got, tt.want) {
			t.Errorf("%s: %v, want %v", what, tt.got, tt.want)
		}
	}
}
