package store

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// held is a live record. One that says more than this build knows, because a newer
// version added members, is kept as it came, and goes into the next snapshot so.
type held[R Record] struct {
	record R
	seq    uint64
	came   []byte // payload; nil where record says all of it
}

// frame is what the next snapshot has of it.
func (h *held[R]) frame() (frame, error) {
	if h.came != nil {
		return frame{kind: h.record.kind(), seq: h.seq, payload: h.came}, nil
	}
	return encode(h.record, h.seq)
}

// encode makes the frame of a record.
func encode(r Record, seq uint64) (frame, error) {
	payload, err := json.Marshal(r, asText)
	if err != nil {
		return frame{}, fmt.Errorf("write record for the store: %v", err)
	}
	if len(payload) > maxPayload {
		return frame{}, fmt.Errorf("write record for the store: %w: %d bytes, at most %d in one record", ErrFull, len(payload), maxPayload)
	}
	return frame{kind: r.kind(), seq: seq, payload: payload}, nil
}

type debtKey struct {
	unit string
	key  Key
}

// state is what the records come to; the reduction is pure.
type state struct {
	last     uint64 // highest number given to a record
	accepted *held[Accepted]
	owned    map[Key]*held[Owned]
	intents  map[Key]*held[Intent]
	left     map[Key]*held[Forgotten]
	debts    map[debtKey]*held[Owed]
	losses   []*held[Loss]
	copies   []*held[Copied]
	unknown  []frame // kinds this build does not know
}

func newState() *state {
	return &state{
		owned:   map[Key]*held[Owned]{},
		intents: map[Key]*held[Intent]{},
		left:    map[Key]*held[Forgotten]{},
		debts:   map[debtKey]*held[Owed]{},
	}
}

// asText lets every string be in a record: the checksum says whether it is as it
// was written.
var asText = json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

// decode reads a payload leniently: a newer version may have added members.
func decode[R Record](f frame) (*held[R], error) {
	h := &held[R]{seq: f.seq}
	err := json.Unmarshal(f.payload, &h.record, asText, json.RejectUnknownMembers(true))
	if errors.Is(err, json.ErrUnknownName) {
		h = &held[R]{seq: f.seq, came: bytes.Clone(f.payload)}
		err = json.Unmarshal(f.payload, &h.record, asText)
	}
	if err != nil {
		return nil, fmt.Errorf("read record %d: %v", f.seq, err)
	}
	return h, nil
}

// accept reads an Accepted without its document, which comes last: it may be large,
// and most who look at a record do without. No string holds these bytes, since the
// quotes in one are escaped.
func (s *state) accept(f frame) error {
	h := &held[Accepted]{seq: f.seq, came: f.payload}
	rest, _, cut := bytes.Cut(f.payload, []byte(`,"document":`))
	if cut {
		rest = append(slices.Clip(rest), '}')
	}
	if err := json.Unmarshal(rest, &h.record, asText); err != nil {
		return fmt.Errorf("read record %d: %v", f.seq, err)
	}
	h.record.Document = nil
	s.accepted = h
	return nil
}

// release lets go of the payload of what is accepted, which is in a file.
func (s *state) release() {
	if s.accepted != nil {
		s.accepted.came = nil
	}
}

// apply adds one record. Of the payload it keeps nothing, but for an Accepted, whose
// document is most of the file it came from. After an error the state is as it was.
func (s *state) apply(f frame) error {
	var err error
	switch f.kind {
	case kindHeader:
		return nil
	case kindAccepted:
		err = s.accept(f)
	case kindIntent:
		var h *held[Intent]
		if h, err = decode[Intent](f); err == nil {
			s.intents[h.record.Key] = h
		}
	case kindDropped:
		var h *held[Dropped]
		if h, err = decode[Dropped](f); err == nil {
			delete(s.intents, h.record.Key)
		}
	case kindOwned:
		var h *held[Owned]
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
		f.payload = bytes.Clone(f.payload)
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
			maps.DeleteFunc(s.debts, func(k debtKey, _ *held[Owed]) bool { return k.unit == h.record.Unit })
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

// Bounds on copies: the newest are kept, and of no file so many that there is no
// room for those of others.
const (
	maxCopies     = 200
	maxCopiesOfIt = 10        // of one file
	maxCopiedSize = 128 << 20 // bytes of all of them
)

func (s *state) copied(f frame) error {
	h, err := decode[Copied](f)
	if err != nil {
		return err
	}
	var kept []*held[Copied]
	size, of := int64(0), map[Key]int{}
	for _, c := range slices.Backward(append(s.copies, h)) {
		again := c != h && c.record.Key == h.record.Key && c.record.Digest == h.record.Digest
		if again || of[c.record.Key] == maxCopiesOfIt {
			continue
		}
		if len(kept) == maxCopies || size+c.record.Bytes > maxCopiedSize {
			break
		}
		of[c.record.Key]++
		size += c.record.Bytes
		kept = append(kept, c)
	}
	slices.Reverse(kept)
	s.copies = kept
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

// live is a record for the next snapshot.
type live interface {
	number() uint64
	frame() (frame, error)
}

func (h *held[R]) number() uint64 { return h.seq }

// unread is a record of a kind that this build does not know.
type unread frame

func (u unread) number() uint64        { return u.seq }
func (u unread) frame() (frame, error) { return frame(u), nil }

// live are the records for the next snapshot, oldest first.
func (s *state) live() []live {
	var all []live
	for _, f := range s.unknown {
		all = append(all, unread(f))
	}
	if s.accepted != nil {
		all = append(all, s.accepted)
	}
	all = collect(all, maps.Values(s.owned))
	all = collect(all, maps.Values(s.intents))
	all = collect(all, maps.Values(s.left))
	all = collect(all, maps.Values(s.debts))
	all = collect(all, slices.Values(s.losses))
	all = collect(all, slices.Values(s.copies))
	slices.SortFunc(all, func(a, b live) int { return cmp.Compare(a.number(), b.number()) })
	return all
}

func collect[R Record](to []live, from iter.Seq[*held[R]]) []live {
	for h := range from {
		to = append(to, h)
	}
	return to
}

// view is the state as it is now; what it holds is not written to any more.
func (s *state) view() View {
	v := View{Owned: slices.Grow([]*Owned(nil), len(s.owned))}
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
		o := &h.record
		if h.seq < doubt {
			doubtful := *o
			doubtful.Doubtful = true
			o = &doubtful
		}
		v.Owned = append(v.Owned, o)
	}
	slices.SortFunc(v.Owned, func(a, b *Owned) int { return cmp.Compare(a.Order, b.Order) })
	for _, h := range s.copies {
		v.Copies = append(v.Copies, h.record)
	}
	v.Intents = records(s.intents)
	v.Debts = records(s.debts)
	v.Left = records(s.left)
	return v
}

// records lists what m holds, oldest first.
func records[K comparable, R Record](m map[K]*held[R]) []R {
	all := slices.SortedFunc(maps.Values(m), func(a, b *held[R]) int { return cmp.Compare(a.seq, b.seq) })
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
