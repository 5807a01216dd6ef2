package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"mesh/host/declaration"
	"mesh/host/store"
	"mesh/host/system"
	"mesh/host/system/systemtest"
)

const statePath = "/var/lib/mesh-host"

func now() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }

func directory(m *systemtest.Machine) store.Directory {
	return system.NewStateDirectory(m.Files, statePath)
}

func open(t *testing.T, m *systemtest.Machine) (*store.Store, store.Report) {
	t.Helper()
	s, report, err := store.Open(store.Config{Directory: directory(m), Now: now, MaxBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return s, report
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// kept closes the store and opens it again.
func kept(t *testing.T, m *systemtest.Machine, s *store.Store) store.View {
	t.Helper()
	before := s.View()
	must(t, s.Close())
	s, report := open(t, m)
	defer s.Close()
	if len(report.Notes) > 0 {
		t.Errorf("notes: %v", report.Notes)
	}
	if diff := cmp.Diff(before, s.View()); diff != "" {
		t.Errorf("opening it again changed it:\n%s", diff)
	}
	held, err := s.Held()
	must(t, err)
	if held != nil && string(held.Document) != "document" {
		t.Errorf("it holds the document %q", held.Document)
	}
	if diff := cmp.Diff(before, read(t, m)); diff != "" {
		t.Errorf("reading it gives something else:\n%s", diff)
	}
	return before
}

// read is what a reader sees, but for the document, which it has looked at.
func read(t *testing.T, m *systemtest.Machine) store.View {
	t.Helper()
	v, _, err := store.Read(directory(m), nil)
	must(t, err)
	if v.Accepted != nil {
		if document, err := v.Accepted.Received(); err != nil || string(document) != "document" {
			t.Errorf("a reader finds the document %q, %v", document, err)
		}
		v.Accepted.Record = nil
	}
	return v
}

func file(where string) store.Key { return store.Key{Kind: declaration.KindFile, Where: where} }

func intent(where string) store.Intent {
	return store.Intent{
		Key: file(where), ID: "a" + where, Epoch: 1, Generation: 2, Act: store.ActApply,
		Target: store.State{Type: "file", Digest: "d", Mode: 0o644}, Owes: []string{"x.service"}, Time: now(),
	}
}

func owned(where string) store.Owned {
	return store.Owned{Key: file(where), ID: "a" + where, Epoch: 1, Generation: 2, Made: store.State{Type: "file", Digest: "d"}, Time: now()}
}

func owed(unit, because string, generation uint64) store.Owed {
	return store.Owed{Unit: unit, ID: "a" + because, Because: file(because), Generation: generation, Time: now()}
}

func accepted(generation uint64) store.Accepted {
	return store.Accepted{Source: store.SourcePlane, Mesh: "m", Epoch: 1, Generation: generation, Digest: fmt.Sprint(generation), Document: []byte("document"), Time: now()}
}

func TestFreshStoreIsEmpty(t *testing.T) {
	m := systemtest.New()
	if v, report, err := store.Read(directory(m), nil); err != nil || !report.Fresh || !cmp.Equal(v, store.View{}) {
		t.Errorf("before there is one: %+v %+v %v", v, report, err)
	}
	s, report := open(t, m)
	if !report.Fresh || len(report.Notes) != 0 {
		t.Errorf("%+v", report)
	}
	if v := kept(t, m, s); !cmp.Equal(v, store.View{}) {
		t.Errorf("%+v", v)
	}
}

// A store that has to be there and is not is a grave loss, which no crash while
// the new one is made can hide.
func TestCaseH1ExpectedStoreIsMissing(t *testing.T) {
	expected := func() string { return "this machine is node one" }
	what := "there is none, and this machine is node one: what was owned and owed, and which declaration was the newest, is lost"
	check := func(when string, v store.View) {
		t.Helper()
		if len(v.Losses) != 1 || v.Losses[0].What != what || !v.Losses[0].Grave || v.Losses[0].File != "store" {
			t.Errorf("%s: %+v", when, v.Losses)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for k := 1; ; k++ {
		m, cut := systemtest.New(), false
		fail := systemtest.FailAt(k, unix.EIO)
		m.Hook(func(op systemtest.Op) error {
			err := fail(op)
			cut = cut || err != nil
			return err
		})
		if s, _, err := store.Open(store.Config{Directory: directory(m), Now: now, Expected: expected}); err == nil {
			must(t, s.Close())
		}
		m.Hook(nil)
		for _, loss := range systemtest.Losses(m.Pending(), random) {
			after := m.PowerCut(loss)
			v, _, err := store.Read(directory(after), expected)
			must(t, err)
			check(fmt.Sprintf("call %d fails, %s, read", k, loss.Name), v)
			s, _, err := store.Open(store.Config{Directory: directory(after), Now: now, Expected: expected})
			must(t, err)
			check(fmt.Sprintf("call %d fails, %s, opened", k, loss.Name), s.View())
			check(fmt.Sprintf("call %d fails, %s, kept", k, loss.Name), kept(t, after, s))
		}
		if !cut {
			return
		}
	}
}

func TestRecordsMakeTheView(t *testing.T) {
	m := systemtest.New()
	s, _ := open(t, m)
	must(t, s.Append(accepted(1), intent("/one"), intent("/two"), intent("/three"), intent("/four")))
	must(t, s.Append(owed("x.service", "/one", 2), owned("/one")))
	must(t, s.Append(owed("x.service", "/one", 3), owed("y.service", "/one", 3)))
	must(t, s.Append(store.Dropped{Key: file("/two"), Reason: "not done"}))
	must(t, s.Append(store.Forgotten{Key: file("/four"), ID: "a/four", Left: "it was changed by hand", Time: now()}))
	must(t, s.Append(owned("/five"), owned("/one")))
	must(t, s.Append(store.Settled{Unit: "y.service", Reason: "restarted", Time: now()}))

	v := kept(t, m, s)
	var places []string
	for _, o := range v.Owned {
		places = append(places, o.Where)
	}
	if diff := cmp.Diff([]string{"/one", "/five"}, places); diff != "" {
		t.Errorf("owned, in the order of ownership: %s", diff)
	}
	if len(v.Intents) != 1 || v.Intents[0].Where != "/three" {
		t.Errorf("open intents: %+v", v.Intents)
	}
	if len(v.Debts) != 1 || v.Debts[0].Generation != 2 {
		t.Errorf("the oldest debt stands: %+v", v.Debts)
	}
	if len(v.Left) != 1 || v.Left[0].Where != "/four" {
		t.Errorf("left behind: %+v", v.Left)
	}
	if v.Accepted == nil {
		t.Error("nothing is accepted")
	}
}

func TestLeftIsListedUntilOwnedAgain(t *testing.T) {
	s, _ := open(t, systemtest.New())
	must(t, s.Append(store.Forgotten{Key: file("/x"), Left: "changed"}))
	must(t, s.Append(owned("/x")))
	if v := s.View(); len(v.Left) != 0 || len(v.Owned) != 1 {
		t.Errorf("%+v", v)
	}
}

func TestAcceptedNeverGoesBack(t *testing.T) {
	for _, tt := range []struct {
		name  string
		held  store.Accepted
		next  store.Accepted
		older bool
	}{
		{"the next generation", accepted(4), accepted(5), false},
		{"the same again", accepted(4), accepted(4), false},
		{"an older generation", accepted(4), accepted(3), true},
		{"an older epoch", store.Accepted{Source: store.SourcePlane, Mesh: "m", Epoch: 2, Generation: 1}, accepted(9), true},
		{"a newer epoch", accepted(9), store.Accepted{Source: store.SourcePlane, Mesh: "m", Epoch: 2, Generation: 1}, false},
		{"a bundle after the plane", accepted(1), store.Accepted{Source: store.SourceBundle}, true},
		{"the plane after a bundle", store.Accepted{Source: store.SourceBundle}, accepted(1), false},
		{"a bundle after a bundle", store.Accepted{Source: store.SourceBundle, Digest: "1"}, store.Accepted{Source: store.SourceBundle, Digest: "2"}, false},
		{"another mesh", accepted(9), store.Accepted{Source: store.SourcePlane, Mesh: "n", Epoch: 1, Generation: 1}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, _ := open(t, systemtest.New())
			must(t, s.Append(tt.held))
			may := s.View().MayAccept(tt.next)
			err := s.Append(tt.next)
			if fmt.Sprint(may) != fmt.Sprint(err) {
				t.Errorf("it may: %v; it does: %v", may, err)
			}
			if errors.Is(err, store.ErrOlder) != tt.older || (err != nil) != tt.older {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestOneWriterAnyReaders(t *testing.T) {
	m := systemtest.New()
	s, _ := open(t, m)
	must(t, s.Append(owned("/x")))
	if _, _, err := store.Open(store.Config{Directory: directory(m), Now: now}); !errors.Is(err, store.ErrLocked) {
		t.Errorf("a second writer: %v", err)
	}
	if v, _, err := store.Read(directory(m), nil); err != nil || len(v.Owned) != 1 {
		t.Errorf("a reader: %+v %v", v, err)
	}
	must(t, s.Close())
	s, _ = open(t, m)
	must(t, s.Close())
}

// TestReadingNeverChangesAnything, not even a store that needs repair.
func TestReadingNeverChangesAnything(t *testing.T) {
	m := systemtest.New()
	s, _ := open(t, m)
	must(t, s.Append(owned("/x")))
	must(t, s.Close())
	journal := content(m, "journal")
	put(m, "journal", journal[:len(journal)-3])
	before := m.String()
	m.Hook(func(op systemtest.Op) error {
		if op.Changes {
			t.Errorf("a reader does %s", op)
		}
		return nil
	})
	v, report, err := store.Read(directory(m), nil)
	if err != nil || len(v.Owned) != 0 || len(report.Notes) != 1 {
		t.Errorf("%+v %+v %v", v, report, err)
	}
	if m.String() != before {
		t.Error("a reader changed the disk")
	}
}

func content(m *systemtest.Machine, name string) string {
	c, _ := m.Disk.Content(statePath + "/" + name)
	return c
}

func put(m *systemtest.Machine, name, content string) {
	m.Disk.Put(statePath+"/"+name, systemtest.Thing{Type: system.TypeFile, Mode: 0o600, Content: content})
}

// TestCompaction: the journal is emptied, nothing that lives is lost, and the
// store stays small however much is recorded.
func TestCompaction(t *testing.T) {
	m := systemtest.New()
	s, _ := open(t, m)
	must(t, s.Append(accepted(1), owned("/first"), intent("/open"), owed("x.service", "/first", 1)))
	must(t, s.Close())
	s, _ = open(t, m)
	big := strings.Repeat("x", 100<<10)
	for i := range 200 {
		o := owned(fmt.Sprintf("/%d", i%3))
		o.ID = big
		must(t, s.Append(o))
		if size := len(content(m, "journal")) + len(content(m, "snapshot")); size > 3<<20 {
			t.Fatalf("after %d records it has %d bytes", i, size)
		}
	}
	v := kept(t, m, s)
	if len(v.Owned) != 4 || v.Owned[0].Where != "/first" || len(v.Intents) != 1 || len(v.Debts) != 1 || v.Accepted == nil {
		t.Errorf("%+v", v)
	}
}

// TestCompactionReadsWhatWasAccepted again, which is not kept in memory; where that
// is not possible any more, nothing is written.
func TestCompactionReadsWhatWasAccepted(t *testing.T) {
	m := systemtest.New()
	s, _ := open(t, m)
	must(t, s.Append(accepted(1), owned("/x")))
	must(t, s.Close())
	s, _ = open(t, m)
	defer s.Close()
	journal, snapshot := content(m, "journal"), content(m, "snapshot")
	damaged := strings.Replace(journal, "ZG9jdW1lbnQ=", "ZG9jdW1lbnR=", 1)
	put(m, "journal", damaged)
	if _, err := s.Held(); err == nil {
		t.Error("it holds what cannot be read")
	}
	big := owned("/big")
	big.ID = strings.Repeat("x", 1100<<10) // does not fit into the journal there is
	if err := s.Append(big); err == nil || !strings.Contains(err.Error(), "begin a new journal") {
		t.Errorf("appended without what was accepted: %v", err)
	}
	if content(m, "journal") != damaged || content(m, "snapshot") != snapshot {
		t.Error("something was written")
	}
	put(m, "journal", journal)
	must(t, s.Append(big))
	if held, err := s.Held(); err != nil || string(held.Document) != "document" {
		t.Errorf("%+v, %v", held, err)
	}
}

func TestFullStoreRefusesAndGoesOn(t *testing.T) {
	m := systemtest.New()
	s, _, err := store.Open(store.Config{Directory: directory(m), Now: now, MaxBytes: 100 << 10})
	must(t, err)
	must(t, s.Append(owned("/x")))
	o := owned("/big")
	o.ID = strings.Repeat("x", 30<<10)
	if err := s.Append(o); !errors.Is(err, store.ErrFull) {
		t.Errorf("%v", err)
	}
	must(t, s.Append(store.Forgotten{Key: file("/x")}))
	if v := kept(t, m, s); len(v.Owned) != 0 {
		t.Errorf("%+v", v)
	}
}

// TestFailedAppend: what could not be made durable does not count, the old
// descriptor is never used again, and the next append works.
func TestFailedAppend(t *testing.T) {
	for _, call := range []string{"write", "sync"} {
		for _, errno := range []error{unix.EIO, unix.ENOSPC} {
			t.Run(fmt.Sprintf("%s %v", call, errno), func(t *testing.T) {
				m := systemtest.New()
				s, _ := open(t, m)
				must(t, s.Append(owned("/before")))
				failed := 0
				m.Hook(func(op systemtest.Op) error {
					if op.Name == call && strings.HasSuffix(op.Where, "/journal") {
						failed++
						return errno
					}
					return nil
				})
				if err := s.Append(owned("/lost")); !errors.Is(err, errno) {
					t.Fatalf("%v", err)
				}
				if v := s.View(); len(v.Owned) != 1 {
					t.Errorf("it counts all the same: %+v", v.Owned)
				}
				m.Hook(nil)
				must(t, s.Append(owned("/after")))
				if failed != 1 {
					t.Errorf("tried %d times", failed)
				}
				v := kept(t, m, s)
				if len(v.Owned) != 2 || v.Owned[1].Where != "/after" {
					t.Errorf("%+v", v.Owned)
				}
			})
		}
	}
}

// TestPassingReadErrorIsTriedAgain: a store is not moved aside for an error that
// goes away; one that stays moves it aside, loudly.
func TestPassingReadErrorIsTriedAgain(t *testing.T) {
	for times, want := range map[int]int{1: 0, 2: 1} {
		m := systemtest.New()
		s, _ := open(t, m)
		must(t, s.Append(owned("/x")))
		must(t, s.Close())
		left := times
		m.Hook(func(op systemtest.Op) error {
			if op.Name == "read" && strings.HasSuffix(op.Where, "/journal") && left > 0 {
				left--
				return unix.EIO
			}
			return nil
		})
		s, report := open(t, m)
		if len(report.Notes) != want || len(s.View().Losses) != want || len(s.View().Owned) != 1-want {
			t.Errorf("%d errors: %+v %+v", times, report, s.View())
		}
		if want == 1 && (!s.View().Losses[0].Grave || content(m, "journal.damaged") == "") {
			t.Errorf("%+v", s.View().Losses)
		}
		must(t, s.Close())
	}
}

// TestCaseH1 damages journal and snapshot, alone and together, at every byte.
func TestCaseH1EveryByte(t *testing.T) {
	m := systemtest.New()
	s, _ := open(t, m)
	must(t, s.Append(accepted(1), owned("/one"), owned("/two")))
	must(t, s.Close())
	put(m, "snapshot", "not a snapshot") // makes it write a full one
	s, _ = open(t, m)
	must(t, s.Append(owned("/three")))
	must(t, s.Append(store.Forgotten{Key: file("/one")}, owned("/four")))
	must(t, s.Append(store.Acknowledged{}))
	want := s.View()
	must(t, s.Close())
	whole := map[string]string{"journal": content(m, "journal"), "snapshot": content(m, "snapshot")}

	for name, data := range whole {
		for n := range data {
			ways := map[string]string{"cut": data[:n]}
			if n%4 == 0 {
				ways["changed"] = data[:n] + string(data[n]^1) + data[n+1:]
				ways["zero from"] = data[:n] + strings.Repeat("\x00", len(data)-n)
			}
			for what, damaged := range ways {
				for file, good := range whole {
					put(m, file, good)
				}
				put(m, name, damaged)
				s, report := open(t, m)
				v := s.View()
				must(t, s.Close())
				frameEnds := n > 0 && strings.HasPrefix(data[n:], "mhR1")
				if len(report.Notes) == 0 && !(what == "cut" && name == "journal" && frameEnds) {
					t.Errorf("%s %s at byte %d: nothing is said", name, what, n)
				}
				if invented := invents(want, v); invented != "" {
					t.Errorf("%s %s at byte %d: %s", name, what, n, invented)
				}
				again, report, err := store.Open(store.Config{Directory: directory(m), Now: now})
				must(t, err)
				if len(report.Notes) != 0 {
					t.Errorf("%s %s at byte %d is said twice: %v", name, what, n, report.Notes)
				}
				must(t, again.Close())
			}
		}
	}
}

// invents says what v holds that was never recorded.
func invents(want, v store.View) string {
	places := map[string]bool{"/one": true}
	for _, o := range want.Owned {
		places[o.Where] = true
	}
	for _, o := range v.Owned {
		if !places[o.Where] || o.Made != (store.State{Type: "file", Digest: "d"}) {
			return fmt.Sprintf("it owns %+v", o)
		}
	}
	if v.Accepted != nil && !cmp.Equal(v.Accepted, want.Accepted) {
		return fmt.Sprintf("it accepted %+v", v.Accepted)
	}
	return ""
}

// TestDamagedRecordIsLeftOutAlone, is named, and its file is kept.
func TestDamagedRecordIsLeftOutAlone(t *testing.T) {
	m := systemtest.New()
	s, _ := open(t, m)
	must(t, s.Append(owned("/one")))
	before := len(content(m, "journal"))
	must(t, s.Append(owned("/two")))
	must(t, s.Append(owned("/three")))
	must(t, s.Close())
	journal := []byte(content(m, "journal"))
	journal[before+30] ^= 1
	put(m, "journal", string(journal))

	s, report := open(t, m)
	defer s.Close()
	v := s.View()
	if len(v.Owned) != 2 || v.Owned[0].Where != "/one" || v.Owned[1].Where != "/three" || v.Owned[0].Doubtful {
		t.Errorf("%+v", v.Owned)
	}
	want := []string{fmt.Sprintf("journal: record 2 at byte %d fails its checksum and is left out", before)}
	if diff := cmp.Diff(want, report.Notes); diff != "" {
		t.Error(diff)
	}
	if len(v.Losses) != 1 || v.Losses[0].Grave || v.Losses[0].Aside != "journal.damaged" || content(m, "journal.damaged") != string(journal) {
		t.Errorf("%+v", v.Losses)
	}
}

// TestViewFollowsAModel appends random records and compares with a plain model
// of what they mean, across closing, compaction and reading.
func TestViewFollowsAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := systemtest.New()
		s, _, err := store.Open(store.Config{Directory: directory(m), Now: now, MaxBytes: 64 << 10})
		if err != nil {
			rt.Fatal(err)
		}
		ownedPlaces, open := map[string]bool{}, map[string]bool{}
		places := rapid.SampledFrom([]string{"/a", "/b", "/c"})
		rt.Repeat(map[string]func(*rapid.T){
			"own": func(rt *rapid.T) {
				p := places.Draw(rt, "place")
				ownedPlaces[p] = true
				delete(open, p)
				noError(rt, s.Append(owned(p)))
			},
			"intend": func(rt *rapid.T) {
				p := places.Draw(rt, "place")
				open[p] = true
				noError(rt, s.Append(intent(p)))
			},
			"drop": func(rt *rapid.T) {
				p := places.Draw(rt, "place")
				delete(open, p)
				noError(rt, s.Append(store.Dropped{Key: file(p)}))
			},
			"forget": func(rt *rapid.T) {
				p := places.Draw(rt, "place")
				delete(open, p)
				delete(ownedPlaces, p)
				noError(rt, s.Append(store.Forgotten{Key: file(p)}))
			},
			"open again": func(rt *rapid.T) {
				noError(rt, s.Close())
				s, _, err = store.Open(store.Config{Directory: directory(m), Now: now, MaxBytes: 64 << 10})
				noError(rt, err)
			},
			"": func(rt *rapid.T) {
				v, _, err := store.Read(directory(m), nil)
				noError(rt, err)
				if diff := cmp.Diff(s.View(), v); diff != "" {
					rt.Fatal(diff)
				}
				if len(v.Owned) != len(ownedPlaces) || len(v.Intents) != len(open) {
					rt.Fatalf("owned %v, is %+v; open %v, is %+v", ownedPlaces, v.Owned, open, v.Intents)
				}
			},
		})
	})
}

func noError(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestAnythingFollowsTheLast: once a node is retired its record takes a bundle, or
// the declarations of any mesh again, from whatever number on.
func TestAnythingFollowsTheLast(t *testing.T) {
	last := store.Accepted{Source: store.SourcePlane, Mesh: "home", Epoch: 3, Generation: 9, Digest: "last"}
	for _, next := range []store.Accepted{
		{Source: store.SourceBundle, Digest: "bundle"},
		{Source: store.SourcePlane, Mesh: "home", Epoch: 1, Generation: 1, Digest: "again"},
	} {
		for _, final := range []bool{true, false} {
			last.Final = final
			v := store.View{Accepted: &last}
			if err := v.MayAccept(next); (err == nil) != final {
				t.Errorf("final %v, %s: %v", final, next.Digest, err)
			}
		}
	}
}
