package system_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mesh/host/system"
	"mesh/host/system/systemtest"
)

// opened is a disk that counts the files that are opened.
type opened struct {
	system.Disk
	files int
}

type openedDir struct {
	system.Dir
	of *opened
}

func (o *opened) OpenDir(p string) (system.Dir, error) {
	dir, err := o.Disk.OpenDir(p)
	return openedDir{dir, o}, err
}

func (d openedDir) Open(name string) (system.File, error) {
	d.of.files++
	return d.Dir.Open(name)
}

// TestLookAll says of each path what looking at it alone says, in any order.
func TestLookAll(t *testing.T) {
	root := base(t)
	var paths []string
	for i := range 300 {
		p := fmt.Sprintf("%s/%d/%d", root, i%3, i)
		paths = append(paths, p, fmt.Sprintf("%s/nowhere/%d", root, i))
		if err := os.MkdirAll(path.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		place(t, p, []systemtest.Thing{
			{Type: system.TypeFile, Content: p, Mode: 0o600}, {Type: system.TypeDirectory, Mode: 0o700},
			{Type: system.TypeLink, Content: "/etc/passwd"}, {Type: system.TypeFIFO, Mode: 0o600}, {},
		}[i%5])
		paths = append(paths, p+"/below")
	}
	rand.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
	for _, workers := range []int{1, 16} {
		files := system.NewFiles(&system.Linux{}, workers)
		for i, got := range files.LookAll(paths) {
			want, err := files.Look(paths[i])
			if diff := cmp.Diff(want, got.Entry); diff != "" || fmt.Sprint(err) != fmt.Sprint(got.Err) {
				t.Errorf("%s: %v instead of %v %s", paths[i], got.Err, err, diff)
			}
		}
	}
}

// TestMemory reads a file again whenever it may have changed, and else not.
func TestMemory(t *testing.T) {
	now := time.Now().Add(time.Minute)
	disk := &opened{Disk: &system.Linux{}}
	files := system.NewFiles(disk, 1)
	files.Remember(system.NewMemory(func() time.Time { return now }))
	p := filepath.Join(base(t), "f")
	write := func(content string) {
		place(t, p, systemtest.Thing{Type: system.TypeFile, Content: content, Mode: 0o600})
	}
	write("hello")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// change does something between two looks; then the file is read, or is not.
	change := func(what string, reads int, do func()) {
		t.Helper()
		tick(t)
		do()
		before := disk.files
		got := files.LookAll([]string{p})[0]
		if n := disk.files - before; n != reads {
			t.Errorf("%s: it is read %d times instead of %d", what, n, reads)
		}
		want, err := system.NewFiles(&system.Linux{}, 1).Look(p)
		if diff := cmp.Diff(system.Looked{Entry: want, Err: err}, got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	nothing := func() {}
	change("the first time", 1, nothing)
	change("the second time", 0, nothing)
	change("in place, size and time kept", 1, func() {
		st, err := os.Stat(p)
		must(err)
		must(os.WriteFile(p, []byte("jello"), 0o600))
		must(os.Chtimes(p, time.Time{}, st.ModTime()))
	})
	change("after that", 0, nothing)
	change("another mode", 1, func() { must(os.Chmod(p, 0o640)) })
	change("replaced", 1, func() { write("other") })
	change("removed", 0, func() { must(os.Remove(p)) })
	change("made again", 1, func() { write("other") })
	change("its directory removed", 0, func() { must(os.RemoveAll(filepath.Dir(p))) })
	change("its directory made again", 1, func() {
		must(os.Mkdir(filepath.Dir(p), 0o755))
		write("other")
	})
	change("an hour later", 1, func() { now = now.Add(time.Hour) })
	change("and then", 0, nothing)
	change("the clock set back, behind the change", 1, func() { now = now.Add(-2 * time.Hour) })
	change("as long as it stays so", 1, nothing)
	change("changed a moment ago", 1, func() {
		now = time.Now()
		write("new")
	})
	change("and it may change once more at this very time", 1, nothing)
	change("settled", 1, func() { now = now.Add(41 * time.Second) })
	change("from then on", 0, nothing)
}
