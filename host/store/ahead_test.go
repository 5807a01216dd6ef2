package store_test

import (
	"sync/atomic"
	"testing"

	"mesh/host/store"
	"mesh/host/system/systemtest"
)

// marked is a directory that tells states of its files apart, and counts what is read.
type marked struct {
	store.Directory
	machine *systemtest.Machine
	reads   atomic.Int32
}

func (d *marked) Mark(name string) (string, error) { return name + content(d.machine, name), nil }

func (d *marked) Read(name string) ([]byte, error) {
	d.reads.Add(1)
	return d.Directory.Read(name)
}

// TestReadAhead: what was read counts once, and only of a store that is whole and
// was not written since.
func TestReadAhead(t *testing.T) {
	for _, tc := range []struct {
		name  string
		then  func(t *testing.T, m *systemtest.Machine)
		reads int32 // of Open
		owned int
	}{
		{"nothing happened", func(*testing.T, *systemtest.Machine) {}, 0, 1},
		{"written since", func(t *testing.T, m *systemtest.Machine) {
			s, _ := open(t, m)
			must(t, s.Append(owned("/y")))
			must(t, s.Close())
		}, 2, 2},
		{"damaged since", func(_ *testing.T, m *systemtest.Machine) {
			journal := content(m, "journal")
			put(m, "journal", journal[:len(journal)-1])
		}, 2, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := systemtest.New()
			s, _ := open(t, m)
			must(t, s.Append(owned("/x")))
			must(t, s.Close())

			dir := &marked{Directory: directory(m), machine: m}
			cfg := store.Config{Directory: dir, Now: now, Ahead: store.ReadAhead(dir)}
			store.Await(cfg.Ahead)
			dir.reads.Store(0)
			tc.then(t, m)
			s, _, err := store.Open(cfg)
			must(t, err)
			if got := dir.reads.Load(); got != tc.reads {
				t.Errorf("%d files were read by Open, want %d", got, tc.reads)
			}
			if got := len(s.View().Owned); got != tc.owned {
				t.Errorf("%d are owned, want %d", got, tc.owned)
			}
			must(t, s.Close())

			dir.reads.Store(0)
			s, _, err = store.Open(cfg)
			must(t, err)
			defer s.Close()
			if got := dir.reads.Load(); got != 2 {
				t.Errorf("the second time %d files were read, want 2: what was read ahead is used up", got)
			}
		})
	}
}

// TestReadAheadOfNoUse: of a store that is damaged or not there Open says what it
// says without.
func TestReadAheadOfNoUse(t *testing.T) {
	m := systemtest.New()
	dir := &marked{Directory: directory(m), machine: m}
	ahead := func() (*store.Store, store.Report) {
		cfg := store.Config{Directory: dir, Now: now, Ahead: store.ReadAhead(dir), Expected: func() string { return "a test has to have one" }}
		store.Await(cfg.Ahead)
		s, report, err := store.Open(cfg)
		must(t, err)
		return s, report
	}
	s, report := ahead()
	if lost := s.View().Losses; !report.Fresh || len(lost) != 1 {
		t.Errorf("there was none: %+v, losses %+v", report, lost)
	}
	must(t, s.Close())

	put(m, "journal", "nonsense")
	s, _ = ahead()
	defer s.Close()
	if lost := s.View().Losses; len(lost) != 2 || lost[1].Time != now() {
		t.Errorf("it was damaged: losses %+v", lost)
	}
}
