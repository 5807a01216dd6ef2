// Package store is the host's own record: the declaration it follows, what it
// owns, what it was about to do, and the restarts it owes.
//
// It is a journal of checksummed records, only ever appended to, and a snapshot
// that is replaced as a whole. Append returns when its records are durable. A
// damaged record is left out alone and named; a file that cannot be read is
// moved aside and named; neither ever makes what was recorded before look as if
// it had never been. One process writes; any number read without waiting.
//
// It reaches the disk only through Directory. host/apply, host/agent and cmd/host
// may import it.
package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
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
	// the file name; the error matches ErrLocked when another process has it.
	Lock(name string) (io.Closer, error)
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
)

// Config is what a store needs.
type Config struct {
	Directory Directory
	Now       func() time.Time // wall clock, for the times in records
	Log       *slog.Logger     // nil means discard
	MaxBytes  int64            // cap on journal, snapshot and what replacing them needs; 0 means 512 MiB
}

// View is the store's content at one moment. It is a copy; the reader may keep it.
type View struct {
	Accepted *Accepted   // nil: no declaration was ever accepted
	Owned    []Owned     // in the order of ownership
	Intents  []Intent    // open ones, oldest first
	Debts    []Owed      // oldest first
	Left     []Forgotten // places given up with something left behind, oldest first
	Losses   []Loss      // not acknowledged, oldest first
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
	limit int64 // of journal and snapshot together, before and after emptying

	mu           sync.Mutex
	state        *state
	lock         io.Closer
	journal      Appender // nil after a failed write: the next one begins a new journal
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
	report, err := s.open()
	if err != nil {
		_ = lock.Close()
		return nil, Report{}, fmt.Errorf("open the store: %w", err)
	}
	for _, note := range report.Notes {
		s.log.Warn("the store was damaged", "what", note)
	}
	return s, report, nil
}

func (s *Store) open() (Report, error) {
	now := s.now()
	l, err := load(s.dir, now)
	if err != nil {
		return Report{}, err
	}
	s.state = l.state
	report := Report{Fresh: l.fresh, Notes: l.notes}
	if l.clean() {
		s.snapshotSize, s.journalSize = int64(len(l.snapshot.data)), int64(len(l.journal.data))
		if s.journal, err = s.dir.Append(journalName); err != nil {
			return report, err
		}
		return report, s.journal.Sync() // what was read is not yet durable
	}
	if l.fresh {
		// The journal first: from now on one that is missing was lost.
		if err := s.dir.Replace(journalName, s.header(journalName, 0)); err != nil {
			return Report{}, err
		}
	}
	for _, f := range []*file{l.snapshot, l.journal} {
		if err := s.aside(f, l.losses); err != nil {
			return Report{}, err
		}
	}
	for _, loss := range l.losses {
		loss.Before = s.state.last + 1
		f, err := s.frame(loss, s.state.last+1)
		if err != nil {
			return Report{}, err
		}
		if err := s.state.apply(f); err != nil {
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
// never waits for the process that writes.
func Read(dir Directory) (View, Report, error) {
	l, err := load(dir, time.Time{})
	if err != nil {
		return View{}, Report{}, err
	}
	v := l.state.view()
	for _, loss := range l.losses {
		v.Losses = append(v.Losses, loss)
		for i := range v.Owned {
			v.Owned[i].Doubtful = v.Owned[i].Doubtful || loss.Grave
		}
	}
	return v, Report{Fresh: l.fresh, Notes: l.notes}, nil
}

// View returns the content as of the last Append.
func (s *Store) View() View {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.view()
}

// Append records, in order. When it returns nil they are durable. After an
// error none of them counts, whatever reached the disk; what was recorded before
// stands, and a later Append begins a new journal. The error matches ErrOlder
// for an Accepted that would go back, ErrFull at the size limit.
func (s *Store) Append(records ...Record) error {
	if len(records) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	frames, buffer, err := s.framesLocked(records)
	if err != nil {
		return err
	}
	if err := s.makeRoomLocked(int64(len(buffer))); err != nil {
		return err
	}
	if err := write(s.journal, buffer); err != nil {
		// The descriptor is done with: a second fsync on it could succeed
		// without having written what the first one lost.
		_ = s.journal.Close()
		s.journal = nil
		s.state.last = frames[len(frames)-1].seq
		return fmt.Errorf("record in the store's journal: %w", err)
	}
	s.journalSize += int64(len(buffer))
	for _, f := range frames {
		if err := s.state.apply(f); err != nil {
			return err // cannot be: it was written by this build a moment ago
		}
	}
	return nil
}

func write(w Appender, b []byte) error {
	if _, err := w.Write(b); err != nil {
		return err
	}
	return w.Sync()
}

func (s *Store) framesLocked(records []Record) (frames []frame, buffer []byte, err error) {
	for i, record := range records {
		seq := s.state.last + 1 + uint64(i)
		switch r := record.(type) {
		case Accepted:
			if err := s.state.mayAccept(r); err != nil {
				return nil, nil, err
			}
		case Owned:
			record = s.state.ordered(r, seq)
		}
		f, err := s.frame(record, seq)
		if err != nil {
			return nil, nil, err
		}
		f.index = uint16(min(i, math.MaxUint16))
		frames = append(frames, f)
		buffer = appendFrame(buffer, f)
	}
	return frames, buffer, nil
}

func (s *Store) frame(r Record, seq uint64) (frame, error) {
	payload, err := json.Marshal(r)
	if err != nil {
		return frame{}, fmt.Errorf("write record for the store: %v", err)
	}
	if len(payload) > maxPayload {
		return frame{}, fmt.Errorf("write record for the store: %w: %d bytes, at most %d in one record", ErrFull, len(payload), maxPayload)
	}
	return frame{kind: r.kind(), seq: seq, payload: payload}, nil
}

// mayAccept refuses a declaration that would take the node back.
func (s *state) mayAccept(a Accepted) error {
	if s.accepted == nil {
		return nil
	}
	held := s.accepted.record
	switch {
	case held.Source == SourcePlane && a.Source == SourceBundle:
		return fmt.Errorf("accept bundle: %w: this node follows the plane of mesh %s (epoch %d, generation %d)",
			ErrOlder, held.Mesh, held.Epoch, held.Generation)
	case held.Source == a.Source && held.Mesh == a.Mesh &&
		(a.Epoch < held.Epoch || a.Epoch == held.Epoch && a.Generation < held.Generation):
		return fmt.Errorf("accept declaration of epoch %d, generation %d: %w, which is epoch %d, generation %d",
			a.Epoch, a.Generation, ErrOlder, held.Epoch, held.Generation)
	}
	return nil
}

// makeRoomLocked sees to it that there is a journal with room for n bytes.
func (s *Store) makeRoomLocked(n int64) error {
	full := s.snapshotSize+s.journalSize+n > s.limit
	if s.journal == nil || full || s.journalSize+n > compactAbove+s.snapshotSize {
		if err := s.compact(); err != nil {
			return fmt.Errorf("begin a new journal of the store: %w", err)
		}
	}
	if s.snapshotSize+s.journalSize+n > s.limit {
		return fmt.Errorf("record in the store: %w of %d bytes", ErrFull, s.limit)
	}
	return nil
}

// compact writes what lives into a new snapshot and begins a new journal. A
// crash between the two leaves a journal whose records the snapshot holds
// already; their numbers say so.
func (s *Store) compact() error {
	if s.journal != nil {
		_ = s.journal.Close()
		s.journal = nil
	}
	live := s.state.frames()
	snapshot := s.header(snapshotName, len(live))
	for _, f := range live {
		f.index = 0
		snapshot = appendFrame(snapshot, f)
	}
	if err := s.dir.Replace(snapshotName, snapshot); err != nil {
		return err
	}
	journal := s.header(journalName, 0)
	if err := s.dir.Replace(journalName, journal); err != nil {
		return err
	}
	s.snapshotSize, s.journalSize = int64(len(snapshot)), int64(len(journal))
	var err error
	s.journal, err = s.dir.Append(journalName)
	return err
}

func (s *Store) header(name string, records int) []byte {
	payload, err := json.Marshal(fileHeader{
		File: name, Format: Format, Oldest: oldestReader,
		Through: s.state.last, Records: records, Time: s.now().UTC(),
	})
	if err != nil {
		panic(fmt.Sprintf("store: write header of %s: %v", name, err)) // a struct of numbers, a name and a time
	}
	return appendFrame(nil, frame{kind: kindHeader, seq: s.state.last, payload: payload})
}

// Close gives up the lock. Everything appended is durable already.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.journal != nil {
		_ = s.journal.Close()
		s.journal = nil
	}
	return s.lock.Close()
}
