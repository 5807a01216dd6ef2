package figures_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// document is one of the states that the files are declared to be in.
type document string

const (
	first   document = "first"
	changed document = "changed" // one file has another content
	less    document = "less"    // a tenth of them is not declared any more
)

// ground is where one program keeps files: what it is told lies in work, and the
// files in tree.
type ground struct {
	work  string
	tree  string
	files int
}

const (
	perDirectory = 100
	fileSize     = 4096
	fileMode     = 0o640
)

func (g ground) directories() (all []string) {
	all = []string{g.tree}
	for d := range (g.files + perDirectory - 1) / perDirectory {
		all = append(all, filepath.Join(g.tree, fmt.Sprintf("d%d", d)))
	}
	return all
}

func (g ground) path(i int) string {
	return filepath.Join(g.tree, fmt.Sprintf("d%d", i/perDirectory), fmt.Sprintf("f%d", i))
}

// The files that one thing happens to.
func (g ground) changes() int { return g.files / 2 }
func (g ground) drifts() int  { return g.files / 3 }
func (g ground) removed() int { return g.files / 10 }
func (g ground) kept(d document) int { // the files up to here stay
	if d == less {
		return g.files - g.removed()
	}
	return g.files
}

// content is what file i holds by a document: text of 4 KiB, its own.
func (g ground) content(d document, i int) string {
	version := 1
	if d != first && i == g.changes() {
		version = 2
	}
	line := fmt.Sprintf("file %d, version %d\n", i, version)
	return strings.Repeat(line, fileSize/len(line)+1)[:fileSize]
}

// drift changes a file by hand, size and time kept.
func (g ground) drift() error {
	p := g.path(g.drifts())
	st, err := os.Stat(p)
	if err == nil {
		err = os.WriteFile(p, []byte(strings.Repeat("x", fileSize)), fileMode)
	}
	if err == nil {
		err = os.Chtimes(p, st.ModTime(), st.ModTime())
	}
	return err
}

// whole says whether file i is as the document has it.
func (g ground) whole(d document, i int) bool {
	st, err := os.Lstat(g.path(i))
	if i >= g.kept(d) {
		return errors.Is(err, fs.ErrNotExist)
	}
	if err != nil || st.Mode() != fileMode || st.Sys().(*syscall.Stat_t).Uid != 0 {
		return false
	}
	got, err := os.ReadFile(g.path(i))
	return err == nil && string(got) == g.content(d, i)
}

// check says how many of the files from..to-1 are as the document has them.
func (g ground) check(d document, from, to int) (whole int) {
	for i := from; i < to; i++ {
		if g.whole(d, i) {
			whole++
		}
	}
	return whole
}

// phase is one thing that a program is timed at.
type phase struct {
	what     string
	from, to document // from "": nothing is there
	drifts   bool     // a file is changed by hand before
	// about says which files it changes: from the first to before the second.
	about func(g ground) (int, int)
}

func one(at func(ground) int) func(ground) (int, int) {
	return func(g ground) (int, int) { return at(g), at(g) + 1 }
}

var phases = []phase{
	{"cold", "", first, false, func(g ground) (int, int) { return 0, g.files }},
	{"unchanged", first, first, false, nil},
	{"one changed", first, changed, false, one(ground.changes)},
	{"one drifted", changed, changed, true, one(ground.drifts)},
	{"a tenth removed", changed, less, false, func(g ground) (int, int) { return g.kept(less), g.files }},
}
