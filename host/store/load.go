package store

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
)

const (
	journalName  = "journal"
	snapshotName = "snapshot"
	lockName     = "lock"
	asideSuffix  = ".damaged"
	wholeStore   = "store" // in a Loss: journal and snapshot
)

// Report says what opening the store found, for logs and people.
type Report struct {
	Fresh bool     // there was no store
	Notes []string // one line for each thing that was cut, left out, moved aside or lost
}

// file is one of the store's files as it was read.
type file struct {
	name       string
	data       []byte
	missing    bool
	unreadable error // the disk does not give it back
	header     *fileHeader
	scanned
}

// useless says that not one record of the file can be read.
func (f *file) useless() bool { return !f.missing && len(f.frames) == 0 }

// contradicts says whether a record of that kind, which is lost, may have said that
// something recorded before it is not the host's any more. 0 is of any kind.
func (f *file) contradicts(kind uint16) bool {
	return f.name == journalName && (kind == kindForgotten || kind == 0)
}

func read(dir Directory, name string) (*file, error) {
	f := &file{name: name}
	var err error
	f.data, err = dir.Read(name)
	if errors.Is(err, syscall.EIO) { // once more: moving a store aside is not for a passing fault
		f.data, err = dir.Read(name)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.missing = true
		return f, nil
	case errors.Is(err, syscall.EIO):
		f.unreadable = err
		return f, nil
	case err != nil:
		return nil, fmt.Errorf("read the store's %s: %w", name, err)
	}
	f.scanned = scan(f.data)
	for _, fr := range f.frames {
		if fr.kind != kindHeader || f.header != nil {
			continue
		}
		var h fileHeader
		if json.Unmarshal(fr.payload, &h, asText) != nil || h.File != name {
			continue
		}
		if h.Oldest > Format {
			return nil, fmt.Errorf("read the store's %s: %w (it needs a reader of format %d, this one is of format %d): install the newer mesh-host again",
				name, ErrNewer, h.Oldest, Format)
		}
		f.header = &h
	}
	return f, nil
}

// loaded is the whole store as it was read.
type loaded struct {
	state    *state
	snapshot *file
	journal  *file
	losses   []Loss   // found now; not recorded yet
	notes    []string // one line each
	fresh    bool
}

// clean says that the files can be used as they are.
func (l *loaded) clean() bool {
	return !l.snapshot.missing && !l.journal.missing && len(l.notes) == 0
}

// load reads the store and judges its damage; it writes nothing. The journal is
// read first: a writer replaces the snapshot before it empties the journal, so
// a reader without a lock never misses a record.
func load(dir Directory, now time.Time, expected func() string) (*loaded, error) {
	l := &loaded{state: newState()}
	var err error
	if l.journal, err = read(dir, journalName); err != nil {
		return nil, err
	}
	if l.snapshot, err = read(dir, snapshotName); err != nil {
		return nil, err
	}
	l.fresh = l.journal.missing && l.snapshot.missing
	if l.fresh {
		if expected != nil {
			l.expect(expected(), now)
		}
		return l, nil
	}
	var through uint64
	if h := l.snapshot.header; h != nil {
		through = h.Through
	}
	l.replay(l.snapshot, 0, now)
	l.state.last = max(l.state.last, through)
	l.replay(l.journal, through, now)
	l.judgeSnapshot(now)
	l.judgeJournal(now)
	return l, nil
}

// replay applies the records of f numbered above through.
func (l *loaded) replay(f *file, through uint64, now time.Time) {
	for _, fr := range f.frames {
		if fr.kind != kindHeader && fr.seq <= through {
			continue
		}
		if err := l.state.apply(fr); err != nil {
			l.lose(f, Loss{Time: now, Grave: f.contradicts(fr.kind), What: fmt.Sprintf("a record cannot be understood and is left out: %v", err)})
		}
	}
	for _, s := range f.bad {
		l.state.last = max(l.state.last, s.seq)
		l.lose(f, Loss{Time: now, Grave: f.contradicts(s.kind), What: fmt.Sprintf("%s fails its checksum and is left out", s)})
	}
}

func (l *loaded) judgeSnapshot(now time.Time) {
	f, began := l.snapshot, l.journal.header
	switch {
	case f.missing && began != nil && began.Through == 0:
		// The journal holds everything from the first record on: the machine
		// stopped while the store was made.
	case f.missing:
		l.lose(f, Loss{Time: now, What: "it is missing; what was recorded before the journal began is lost"})
	case f.unreadable != nil:
		l.lose(f, Loss{Time: now, What: fmt.Sprintf("it cannot be read (%v); what it held is lost", f.unreadable)})
	case f.useless():
		l.lose(f, Loss{Time: now, What: fmt.Sprintf("its %d bytes hold not one record; what it held is lost", len(f.data))})
	case f.torn > 0:
		what := fmt.Sprintf("its last %d bytes are no record", f.torn)
		if f.header != nil {
			what += fmt.Sprintf("; %d of %d records are lost", f.header.Records+1-len(f.frames)-len(f.bad), f.header.Records)
		}
		l.lose(f, Loss{Time: now, What: what})
	case f.header != nil && len(f.frames)+len(f.bad) < f.header.Records+1:
		l.lose(f, Loss{Time: now, What: fmt.Sprintf("it is cut short; %d of %d records are lost", f.header.Records+1-len(f.frames)-len(f.bad), f.header.Records)})
	}
}

func (l *loaded) judgeJournal(now time.Time) {
	f, since := l.journal, ""
	if h := l.snapshot.header; h != nil {
		since = " since " + h.Time.UTC().Format(time.RFC3339)
	}
	switch {
	case f.missing:
		l.lose(f, Loss{Time: now, Grave: true, What: "it is missing; everything recorded" + since + " is lost"})
	case f.unreadable != nil:
		l.lose(f, Loss{Time: now, Grave: true, What: fmt.Sprintf("it cannot be read (%v); everything recorded%s is lost", f.unreadable, since)})
	case f.useless():
		l.lose(f, Loss{Time: now, Grave: true, What: fmt.Sprintf("its %d bytes hold not one record; everything recorded%s is lost", len(f.data), since)})
	case f.torn > 0:
		l.notes = append(l.notes, fmt.Sprintf("journal: its last %d bytes are a record that was never finished; they are cut off", f.torn))
	}
}

// expect takes a store that is not there for lost, where why says that there has
// to be one.
func (l *loaded) expect(why string, now time.Time) {
	if why == "" {
		return
	}
	what := "there is none, and " + why + ": what was owned and owed, and which declaration was the newest, is lost"
	l.losses = append(l.losses, Loss{File: wholeStore, What: what, Grave: true, Time: now})
	l.notes = append(l.notes, wholeStore+": "+what)
}

func (l *loaded) lose(f *file, loss Loss) {
	loss.File = f.name
	if !f.missing {
		loss.Aside = f.name + asideSuffix
	}
	l.losses = append(l.losses, loss)
	l.notes = append(l.notes, f.name+": "+loss.What)
}
