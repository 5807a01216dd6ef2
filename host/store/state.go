package store

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// held is a live record and the frame it came in. The frame goes into the next
// snapshot as it is, so members a newer version added survive an older one.
type held[R any] struct {
	record R
	frame  frame
}

type debtKey struct {
	unit string
	key  Key
}

// state is what the records come to; the reduction is pure.
type state struct {
	last     uint64 // highest number given to a record
	accepted *held[Accepted]
	owned    map[Key]held[Owned]
	intents  map[Key]held[Intent]
	left     map[Key]held[Forgotten]
	debts    map[debtKey]held[Owed]
	losses   []held[Loss]
	copies   []held[Copied]
	unknown  []frame // kinds this build does not know
}

func newState() *state {
	return &state{
		owned:   map[Key]held[Owned]{},
		intents: map[Key]held[Intent]{},
		left:    map[Key]held[Forgotten]{},
		debts:   map[debtKey]held[Owed]{},
	}
}

// asText lets every string be in a record: the checksum says whether it is as it
// was written.
var asText = json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

// decode reads a payload leniently: a newer version may have added members.
func decode[R any](f frame) (h held[R], err error) {
	if err := json.Unmarshal(f.payload, &h.record, asText); err != nil {
		return h, fmt.Errorf("read record %d: %v", f.seq, err)
	}
	h.frame = f
	return h, nil
}

// apply adds one record. After an error the state is as it was.
func (s *state) apply(f frame) error {
	var err error
	switch f.kind {
	case kindHeader:
		return nil
	case kindAccepted:
		var h held[withoutDocument]
		if h, err = decode[withoutDocument](f); err == nil {
			h.record.Record = f.payload
			s.accepted = &held[Accepted]{h.record.Accepted, f}
		}
	case kindIntent:
		var h held[Intent]
		if h, err = decode[Intent](f); err == nil {
			s.intents[h.record.Key] = h
		}
	case kindDropped:
		var h held[Dropped]
		if h, err = decode[Dropped](f); err == nil {
			delete(s.intents, h.record.Key)
		}
	case kindOwned:
		var h held[Owned]
		if h, err = decode[Owned](f); err == nil {
			delete(s.intents, h.record.Key)
			delete(s.left, h.record.Key)
			s.owned[h.record.Key] = h
		}
	case kindForgotten:
		err = s.forget(f)
	case kindOwed, kindSettled:
		err = s.account(f)
	case kindLoss, kindAcknowledged:
		err = s.lose(f)
	case kindCopied:
		err = s.copied(f)
	default:
		s.unknown = append(s.unknown, f)
	}
	if err == nil {
		s.last = max(s.last, f.seq)
	}
	return err
}

func (s *state) forget(f frame) error {
	h, err := decode[Forgotten](f)
	if err != nil {
		return err
	}
	delete(s.intents, h.record.Key)
	delete(s.owned, h.record.Key)
	delete(s.left, h.record.Key)
	if h.record.Left != "" {
		s.left[h.record.Key] = h
	}
	return nil
}

func (s *state) account(f frame) error {
	if f.kind == kindSettled {
		h, err := decode[Settled](f)
		if err == nil {
			maps.DeleteFunc(s.debts, func(k debtKey, _ held[Owed]) bool { return k.unit == h.record.Unit })
		}
		return err
	}
	h, err := decode[Owed](f)
	if err != nil {
		return err
	}
	key := debtKey{h.record.Unit, h.record.Because}
	if _, owed := s.debts[key]; !owed { // the oldest says since when
		s.debts[key] = h
	}
	return nil
}

func (s *state) lose(f frame) error {
	if f.kind == kindAcknowledged {
		s.losses = nil
		return nil
	}
	h, err := decode[Loss](f)
	if err == nil {
		s.losses = append(s.losses, h)
	}
	return err
}

// Bounds on copies: the newest are kept.
const (
	maxCopies     = 200
	maxCopiedSize = 128 << 20 // bytes of all of them
)

func (s *state) copied(f frame) error {
	h, err := decode[Copied](f)
	if err != nil {
		return err
	}
	s.copies = append(s.copies, h)
	size, first := int64(0), len(s.copies)
	for first > 0 && len(s.copies)-first < maxCopies && size+s.copies[first-1].record.Bytes <= maxCopiedSize {
		first--
		size += s.copies[first].record.Bytes
	}
	s.copies = slices.Clone(s.copies[first:])
	return nil
}

// ordered gives o its place in the order of ownership.
func (s *state) ordered(o Owned, seq uint64) Owned {
	if before, ok := s.owned[o.Key]; ok {
		o.Order = before.record.Order
	}
	if o.Order == 0 {
		o.Order = seq
	}
	return o
}

// heldNow is the declaration followed; nil for none.
func (s *state) heldNow() *Accepted {
	if s.accepted == nil {
		return nil
	}
	return &s.accepted.record
}

// frames are the live records, oldest first.
func (s *state) frames() []frame {
	all := slices.Clone(s.unknown)
	if s.accepted != nil {
		all = append(all, s.accepted.frame)
	}
	all = collect(all, s.owned)
	all = collect(all, s.intents)
	all = collect(all, s.left)
	all = collect(all, s.debts)
	for _, h := range s.losses {
		all = append(all, h.frame)
	}
	for _, h := range s.copies {
		all = append(all, h.frame)
	}
	slices.SortFunc(all, func(a, b frame) int { return cmp.Compare(a.seq, b.seq) })
	return all
}

func collect[K comparable, R any](to []frame, from map[K]held[R]) []frame {
	for _, h := range from {
		to = append(to, h.frame)
	}
	return to
}

// view copies the state out.
func (s *state) view() View {
	v := View{Owned: slices.Grow([]Owned(nil), len(s.owned))}
	if s.accepted != nil {
		a := s.accepted.record
		v.Accepted = &a
	}
	var doubt uint64
	for _, h := range s.losses {
		v.Losses = append(v.Losses, h.record)
		if h.record.Grave {
			doubt = max(doubt, h.record.Before)
		}
	}
	for _, h := range s.owned {
		o := h.record
		o.Doubtful = h.frame.seq < doubt
		v.Owned = append(v.Owned, o)
	}
	slices.SortFunc(v.Owned, func(a, b Owned) int { return cmp.Compare(a.Order, b.Order) })
	for _, h := range s.copies {
		v.Copies = append(v.Copies, h.record)
	}
	v.Intents = records(s.intents)
	v.Debts = records(s.debts)
	v.Left = records(s.left)
	return v
}

// records lists what m holds, oldest first.
func records[K comparable, R any](m map[K]held[R]) []R {
	all := slices.SortedFunc(maps.Values(m), func(a, b held[R]) int { return cmp.Compare(a.frame.seq, b.frame.seq) })
	out := slices.Grow([]R(nil), len(all))
	for _, h := range all {
		out = append(out, h.record)
	}
	return out
}

// fileHeader is the first record of each file.
type fileHeader struct {
	File    string    `json:"file"`    // "journal" or "snapshot"
	Format  int       `json:"format"`  // of the writer
	Oldest  int       `json:"oldest"`  // format of the oldest reader that understands it
	Through uint64    `json:"through"` // snapshot: it holds every record up to this one; journal: it begins behind this one
	Records int       `json:"records"` // snapshot: how many follow
	Time    time.Time `json:"time"`
}

// Format is the version of the store this build writes; oldestReader is the
// oldest one that can read what it writes, which must stay Format-1 or less
// until Format is known to be good. History:
//
//	1  2026-11-30  header, accepted, intent, dropped, owned, forgotten, owed, settled, loss, acknowledged
const (
	Format       = 1
	oldestReader = 1
)
