// Package store is the host's own record: the declaration it follows, what it
// owns, what it was about to do, and the restarts it owes.
//
// It is a journal of checksummed records, only ever appended to, and a snapshot
// that is replaced as a whole. Append returns when its records are durable. A
// damaged record is left out alone and named; a file that cannot be read is
// moved aside and named; neither ever makes what was recorded before look as if
// it had never been. One process writes; any number read without waiting.
//
// It reaches the disk only through Directory. host/resource, host/system,
// host/apply, host/bundle, host/agent and cmd/host may import it.
package store

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Directory is the place on disk that holds the store. Names have no slash.
type Directory interface {
	// Read returns a whole file; the error matches fs.ErrNotExist when it is absent.
	Read(name string) ([]byte, error)
	// Replace durably puts data at name: the old or the new, never between.
	Replace(name string, data []byte) error
	// Append opens an existing file for appending.
	Append(name string) (Appender, error)
	// Rename durably gives a file another name, replacing what is there.
	Rename(from, to string) error
	// Lock makes the directory if it is absent and takes the writer's lock in
	// the file name; the error matches ErrLocked when another process has it. What
	// names are in the directory then, last.
	Lock(name string) (io.Closer, error)
}

// Marker is a Directory that tells states of its files apart.
type Marker interface {
	// Mark changes whenever the file is appended to or replaced; empty: not known.
	Mark(name string) (string, error)
}

// Stamp tells one content of the store from every other, without reading it or
// taking a lock; empty: not known.
func Stamp(dir Directory) string {
	marker, ok := dir.(Marker)
	if !ok {
		return ""
	}
	var all string
	for _, name := range []string{journalName, snapshotName} {
		mark, err := marker.Mark(name)
		if err != nil || mark == "" {
			return ""
		}
		all += mark + "\n"
	}
	return all
}

// Appender is a file open for appending.
type Appender interface {
	io.Writer
	Sync() error
	Close() error
}

// States in which the store cannot be used; errors of Open and Append match them.
var (
	ErrLocked = errors.New("the store is in use by another process")
	ErrNewer  = errors.New("the store was written by a newer mesh-host that says this one cannot read it")
	ErrFull   = errors.New("the store is at its size limit")
	ErrOlder  = errors.New("the declaration is older than the one held")
	errClosed = errors.New("the store is closed")
)

// Config is what a store needs.
type Config struct {
	Directory Directory
	Now       func() time.Time // wall clock, for the times in records
	Log       *slog.Logger     // nil means discard
	MaxBytes  int64            // cap on journal, snapshot and what replacing them needs; 0 means 512 MiB

	// Expected is asked when there is no store at all: why there has to be one, as
	// a clause; its absence is then recorded as a Loss. Nothing, which is also the
	// answer of nil, means that this is the first.
	Expected func() string

	Ahead *Ahead // of Directory: what is read already; nil: nothing
}

// View is the store's content at one moment. The reader may keep it, and must not
// write to what it holds.
type View struct {
	Accepted *Accepted   // nil: no declaration was ever accepted
	Owned    []*Owned    // in the order of ownership
	Intents  []Intent    // open ones, oldest first
	Debts    []Owed      // oldest first
	Left     []Forgotten // places given up with something left behind, oldest first
	Losses   []Loss      // not acknowledged, oldest first
	Copies   []Copied    // of what others wrote, oldest first; the newest that fit
}

// Bounds. Journal, snapshot, the two damaged files kept aside and one temporary
// file share the cap, so one of them may have a fifth.
const (
	defaultMaxBytes = 512 << 20
	shares          = 5
	compactAbove    = 1 << 20 // the journal is not emptied below this size
)

// Store is the store, open for writing. Safe for concurrent use.
type Store struct {
	dir   Directory
	now   func() time.Time
	log   *slog.Logger
	limit int64 // of journal and snapshot together

	mu           sync.Mutex
	state        *state
	viewed       *View // of the state; nil: not made yet
	lock         io.Closer
	journal      Appender // nil after a failed write: the next one begins a new journal
	closed       bool
	journalSize  int64
	snapshotSize int64
}

// Open takes the writer's lock, reads the store, repairs what a crash or a
// damaged disk left, and says in the report what it found. The error matches
// ErrLocked or ErrNewer where that is the cause; then nothing was changed.
func Open(cfg Config) (*Store, Report, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = defaultMaxBytes
	}
	lock, err := cfg.Directory.Lock(lockName)
	if err != nil {
		return nil, Report{}, fmt.Errorf("open the store: %w", err)
	}
	s := &Store{dir: cfg.Directory, now: cfg.Now, log: cfg.Log, limit: cfg.MaxBytes / shares, lock: lock}
	report, err := s.open(cfg)
	if err != nil {
		_ = lock.Close()
		return nil, Report{}, fmt.Errorf("open the store: %w", err)
	}
	for _, note := range report.Notes {
		s.log.Warn("the record of this machine was not whole", "what", note)
	}
	return s, report, nil
}

func (s *Store) open(cfg Config) (Report, error) {
	var err error
	l := cfg.Ahead.take(s.dir)
	if l == nil {
		l, err = load(s.dir, s.now(), cfg.Expected)
	}
	if err != nil {
		return Report{}, err
	}
	s.state = l.state
	report := Report{Fresh: l.fresh, Notes: l.notes}
	if l.clean() {
		s.state.release()
		s.snapshotSize, s.journalSize = int64(len(l.snapshot.data)), int64(len(l.journal.data))
		if s.journal, err = s.dir.Append(journalName); err != nil {
			return report, err
		}
		if err := s.journal.Sync(); err != nil { // what was read is not yet durable
			return report, errors.Join(err, s.journal.Close())
		}
		return report, nil
	}
	for _, f := range []*file{l.snapshot, l.journal} {
		if err := s.aside(f, l.losses); err != nil {
			return Report{}, err
		}
	}
	journal := s.header(journalName, 0) // where there is none
	for _, loss := range l.losses {
		loss.Before = s.state.last + 1
		f, err := encode(loss, s.state.last+1)
		if err != nil {
			return Report{}, err
		}
		if err := s.state.apply(f); err != nil {
			return Report{}, err
		}
		journal = appendFrame(journal, f)
	}
	if l.fresh {
		// The journal first: from now on one that is missing was lost.
		if err := s.dir.Replace(journalName, journal); err != nil {
			return Report{}, err
		}
	}
	return report, s.compact()
}

// aside keeps a file that losses are about under another name, in place of an
// earlier one.
func (s *Store) aside(f *file, losses []Loss) error {
	lost := slices.ContainsFunc(losses, func(l Loss) bool { return l.File == f.name })
	switch {
	case !lost, f.missing:
		return nil
	case f.unreadable != nil:
		return s.dir.Rename(f.name, f.name+asideSuffix)
	}
	return s.dir.Replace(f.name+asideSuffix, f.data)
}

// Read reads the store without taking a lock and without changing anything; it
// never waits for the process that writes. expected is as in Config.
func Read(dir Directory, expected func() string) (View, Report, error) {
	l, err := load(dir, time.Time{}, expected)
	if err != nil {
		return View{}, Report{}, err
	}
	v := l.state.view()
	if v.Accepted != nil {
		v.Accepted.Record = l.state.accepted.came
	}
	for _, loss := range l.losses {
		v.Losses = append(v.Losses, loss)
		for i := range v.Owned {
			v.Owned[i].Doubtful = v.Owned[i].Doubtful || loss.Grave
		}
	}
	return v, Report{Fresh: l.fresh, Notes: l.notes}, nil
}

// View returns the content as of the last Append, without the document, see Held.
func (s *Store) View() View {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.viewed == nil {
		v := s.state.view()
		s.viewed = &v
	}
	return *s.viewed
}

// Held is what is accepted, with its document; nil for nothing.
func (s *Store) Held() (*Accepted, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.accepted == nil {
		return nil, nil
	}
	a := s.state.accepted.record
	var err error
	if a.Record, err = s.recall(); err == nil {
		a.Document, err = a.Received()
	}
	if err != nil {
		return nil, fmt.Errorf("read the declaration in the store: %w", err)
	}
	a.Record = nil
	return &a, nil
}

// recall reads the record of what is accepted, which is there: large, and of use to
// few, it is not kept in memory once it was read.
func (s *Store) recall() ([]byte, error) {
	h := s.state.accepted
	if h.came != nil {
		return h.came, nil
	}
	for _, name := range []string{snapshotName, journalName} {
		f, err := read(s.dir, name)
		if err != nil {
			return nil, err
		}
		for _, fr := range f.frames {
			if fr.kind == kindAccepted && fr.seq == h.seq {
				return fr.payload, nil
			}
		}
	}
	return nil, fmt.Errorf("record %d, which was in it, cannot be read any more", h.seq)
}

// Close gives up the lock. Everything appended is durable already. Of an Append that
// failed something may be in the journal, which the next reader would take for
// recorded: a new one is begun.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var err error
	if s.journal == nil {
		err = s.compact()
	}
	if s.journal != nil {
		_ = s.journal.Close()
		s.journal = nil
	}
	return errors.Join(err, s.lock.Close())
}
