package store

import (
	"fmt"
	"math"

	"github.com/go-json-experiment/json"
)

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
	if s.closed {
		return errClosed // the lock may be somebody else's by now
	}
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
	s.viewed = nil
	for _, f := range frames {
		if err := s.state.apply(f); err != nil {
			return err // cannot be: it was written by this build a moment ago
		}
	}
	s.state.release()
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
			if err := mayFollow(s.state.heldNow(), r); err != nil {
				return nil, nil, err
			}
		case Owned:
			record = s.state.ordered(r, seq)
		}
		f, err := encode(record, seq)
		if err != nil {
			return nil, nil, err
		}
		f.index = uint16(min(i, math.MaxUint16))
		frames = append(frames, f)
		buffer = appendFrame(buffer, f)
	}
	return frames, buffer, nil
}

// MayAccept says why Append would refuse a after what v holds; the error matches
// ErrOlder.
func (v View) MayAccept(a Accepted) error { return mayFollow(v.Accepted, a) }

// mayFollow refuses a declaration that would take the node back.
func mayFollow(held *Accepted, a Accepted) error {
	switch {
	case held == nil, held.Final:
		return nil
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
	if h := s.state.accepted; h != nil && h.came == nil {
		var err error
		if h.came, err = s.recall(); err != nil {
			return err
		}
		defer s.state.release()
	}
	all := s.state.live()
	snapshot := append(make([]byte, 0, s.snapshotSize+s.journalSize), s.header(snapshotName, len(all))...)
	for _, record := range all {
		f, err := record.frame()
		if err != nil {
			return err
		}
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
	}, asText)
	if err != nil {
		panic(fmt.Sprintf("store: write header of %s: %v", name, err)) // a struct of numbers, a name and a time
	}
	return appendFrame(nil, frame{kind: kindHeader, seq: s.state.last, payload: payload})
}
