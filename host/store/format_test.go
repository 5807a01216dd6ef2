package store_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/host/store"
	"mesh/host/system/systemtest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// everything is one record of each kind.
func everything() []store.Record {
	return []store.Record{
		accepted(1), intent("/one"), owed("x.service", "/one", 2), owned("/one"), intent("/two"),
		store.Dropped{Key: file("/two"), Reason: "not done"},
		intent("/three"),
		store.Forgotten{Key: file("/four"), ID: "a/four", Epoch: 1, Generation: 2, Left: "it was changed by hand", Time: now()},
		owed("y.service", "/one", 2), store.Settled{Unit: "y.service", Reason: "restarted", Time: now()},
		store.Acknowledged{Time: now()},
		store.Loss{File: "journal", What: "it is missing", Grave: true, Time: now(), Before: 3},
	}
}

// TestCaseH11FormatOne reads the store that format 1 wrote, byte for byte. The
// golden files are never written anew for a format that machines have: what a
// host wrote must be read by the one that is put back, and by every later one.
func TestCaseH11FormatOne(t *testing.T) {
	m := systemtest.New()
	s, _ := open(t, m)
	must(t, s.Append(everything()...))
	want := s.View()
	must(t, s.Close())
	for _, name := range []string{"journal", "snapshot"} {
		golden := filepath.Join("testdata", "format1."+name)
		if *update {
			must(t, os.MkdirAll("testdata", 0o755))
			must(t, os.WriteFile(golden, []byte(content(m, name)), 0o644))
		}
		data, err := os.ReadFile(golden)
		must(t, err)
		if diff := cmp.Diff(string(data), content(m, name)); diff != "" {
			t.Errorf("%s is written otherwise now:\n%s", name, diff)
		}
		put(m, name, string(data))
	}
	_, report, err := store.Read(directory(m), nil)
	must(t, err)
	if len(report.Notes) != 0 {
		t.Errorf("%v", report.Notes)
	}
	if diff := cmp.Diff(want, read(t, m)); diff != "" {
		t.Error(diff)
	}
}

// TestCaseH11NewerRecords: members and kinds of a newer host are not understood,
// do no harm, and are still there for it afterwards.
func TestCaseH11NewerRecords(t *testing.T) {
	m := systemtest.New()
	s, _ := open(t, m)
	must(t, s.Append(owned("/one")))
	must(t, s.Close())
	newer := store.Frame(99, 0, 2, `{"of":"a newer host"}`) +
		store.Frame(5, 0, 3, `{"kind":"container","where":"web","id":"a/web","made":{"type":"container","image":"sha256:1"},"order":3,"later":true}`)
	put(m, "journal", content(m, "journal")+newer)

	s, report := open(t, m)
	if len(report.Notes) != 0 {
		t.Errorf("%v", report.Notes)
	}
	big := owned("/big")
	big.ID = strings.Repeat("x", 600<<10)
	for range 3 { // makes it begin a new journal
		must(t, s.Append(big))
	}
	must(t, s.Append(store.Forgotten{Key: file("/big")}))
	must(t, s.Close())
	all := content(m, "snapshot") + content(m, "journal")
	for _, part := range []string{`{"of":"a newer host"}`, `"image":"sha256:1"`, `"later":true`} {
		if !strings.Contains(all, part) {
			t.Errorf("%s is lost", part)
		}
	}
	if content(m, "snapshot") == "" || strings.Contains(content(m, "journal"), "a newer host") {
		t.Error("no new journal was begun, so this shows nothing")
	}
}

func TestStoreThatNeedsANewerReader(t *testing.T) {
	m := systemtest.New()
	s, _ := open(t, m)
	must(t, s.Close())
	put(m, "journal", store.Frame(1, 0, 0, `{"file":"journal","format":3,"oldest":2,"through":0}`))
	before := m.String()
	_, _, err := store.Open(store.Config{Directory: directory(m), Now: now})
	if !errors.Is(err, store.ErrNewer) || !strings.Contains(err.Error(), "install the newer mesh-host again") {
		t.Errorf("%v", err)
	}
	if _, _, err := store.Read(directory(m), nil); !errors.Is(err, store.ErrNewer) {
		t.Errorf("%v", err)
	}
	if m.String() != before {
		t.Error("it was changed")
	}
}

// TestUnfinishedAppendAndDamage tells them apart: what was appended in one go
// and never confirmed is cut from its first hole on, what others were written
// behind is damage.
func TestUnfinishedAppendAndDamage(t *testing.T) {
	one, two, three := store.Frame(5, 0, 1, `{"a":1}`), store.Frame(5, 1, 2, `{"b":2}`), store.Frame(5, 2, 3, `{"c":3}`)
	next := store.Frame(5, 0, 4, `{"d":4}`)
	hole := func(s string) string { return strings.Repeat("\x00", len(s)) }
	for _, tt := range []struct {
		name            string
		data            string
		good, bad, torn int
	}{
		{"whole", one + two + three + next, 4, 0, 0},
		{"the end is missing", one + two + three[:5], 2, 0, 5},
		{"a hole in the last append", one + hole(two) + three, 1, 0, len(two) + len(three)},
		{"its beginning is a hole", next + hole(one) + two + three, 1, 0, len(one) + len(two) + len(three)},
		{"a hole in an earlier append", one + hole(two) + three + next, 3, 1, 0},
		{"a payload of the last append", one + two[:25] + "X" + two[26:] + three, 1, 0, len(two) + len(three)},
		{"a payload of an earlier one", one + two[:25] + "X" + two[26:] + three + next, 3, 1, 0},
		{"a header of an earlier one", one + "X" + two[1:] + next, 2, 1, 0},
		{"nothing but zeros", hole(one), 0, 0, len(one)},
		{"nothing", "", 0, 0, 0},
	} {
		good, bad, torn, _ := store.Scanned([]byte(tt.data))
		if good != tt.good || bad != tt.bad || torn != tt.torn {
			t.Errorf("%s: good %d, bad %d, torn %d", tt.name, good, bad, torn)
		}
	}
}

// FuzzRead: whatever the two files hold, nothing panics, every byte is
// accounted for, the store opens, and what it says once it does not say again.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"format1.journal", "format1.snapshot"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, data)
		f.Add(data[:len(data)/2], data)
		f.Add(append(data[:len(data)/2:len(data)/2], data...), []byte{})
	}
	f.Add([]byte(store.Frame(5, 0, 1, "{}")+store.Frame(5, 1, 1<<63, "null")), []byte("mhR1"))
	f.Fuzz(func(t *testing.T, journal, snapshot []byte) {
		if _, _, _, total := store.Scanned(journal); total != len(journal) {
			t.Fatalf("%d of %d bytes are accounted for", total, len(journal))
		}
		m := systemtest.New()
		s, _ := open(t, m)
		must(t, s.Close())
		put(m, "journal", string(journal))
		put(m, "snapshot", string(snapshot))
		s, _, err := store.Open(store.Config{Directory: directory(m), Now: now})
		if errors.Is(err, store.ErrNewer) || errors.Is(err, store.ErrFull) {
			return
		}
		must(t, err)
		v := s.View()
		must(t, s.Append(owned("/new")))
		must(t, s.Close())
		s, report, err := store.Open(store.Config{Directory: directory(m), Now: now})
		must(t, err)
		if len(report.Notes) != 0 {
			t.Fatalf("said again: %v", report.Notes)
		}
		if got := s.View(); len(got.Losses) != len(v.Losses) || got.Owned[len(got.Owned)-1].Where != "/new" && !has(v, "/new") {
			t.Fatalf("%+v, was %+v", got, v)
		}
		must(t, s.Close())
	})
}

func has(v store.View, where string) bool {
	for _, o := range v.Owned {
		if o.Where == where {
			return true
		}
	}
	return false
}
