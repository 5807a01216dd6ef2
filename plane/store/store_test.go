package store_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pressly/goose/v3"
	"go.uber.org/goleak"

	"mesh/host/declaration"
	"mesh/host/identity"
	"mesh/plane/enrolment"
	"mesh/plane/planetest"
	"mesh/plane/registry"
	"mesh/plane/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, path string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestOnlyItsOwnerReadsIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plane")
	planetest.New(t, planetest.Options{Dir: dir}).Enrol(t, "web")
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v %v", info.Mode(), err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 3 {
		t.Errorf("%v: wanted a database and its log", files)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", f.Name(), info.Mode(), err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	inUse := filepath.Join(t.TempDir(), "plane.db")
	open(t, inUse)

	newer := filepath.Join(t.TempDir(), "plane.db")
	if err := open(t, newer).Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", newer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)`); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	damaged := filepath.Join(t.TempDir(), "plane.db")
	if err := os.WriteFile(damaged, []byte(strings.Repeat("not a database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ path, says string }{
		"a store in use":             {inUse, "another plane runs on this store"},
		"a store of a newer plane":   {newer, "written by a newer plane (tables of version 9999"},
		"a file that is no database": {damaged, "put a backup of it in its place"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := store.Open(t.Context(), store.Config{Path: tt.path})
			if err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), tt.path) {
				t.Errorf("got %v, want %q", err, tt.says)
			}
		})
	}
	after, err := os.ReadFile(damaged)
	if err != nil || !strings.HasPrefix(string(after), "not a database ") {
		t.Error("the damaged file was changed")
	}
}

func TestTheMeshIsMadeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plane.db")
	s := open(t, path)
	first, err := s.Mesh(t.Context(), planetest.NewMesh)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := open(t, path).Mesh(t.Context(), func() (registry.Mesh, error) { return registry.Mesh{}, errors.New("made twice") })
	if err != nil {
		t.Fatal(err)
	}
	if again.Name != first.Name || again.Epoch != first.Epoch || !again.CreatedAt.Equal(first.CreatedAt) ||
		again.LinkKey.Pin() != first.LinkKey.Pin() || again.DeclarationKey.Public() != first.DeclarationKey.Public() {
		t.Error("it is another mesh")
	}
}

// TestCaseP3 closes and opens the store: what was told to nodes is the same
// bytes, and nothing is declared anew.
func TestCaseP3RestartChangesNothing(t *testing.T) {
	dir := t.TempDir()
	before := map[string]string{}
	func() {
		sub := &subtest{TB: t}
		defer sub.end()
		p := planetest.New(sub, planetest.Options{Dir: dir, PlaneMachine: planetest.MachineID("one"), PlaneConfig: "mesh: test\n"})
		p.Enrol(sub, "one", "welcome")
		p.Enrol(sub, "two")
		for _, name := range []string{"one", "two"} {
			n := p.Node(sub, name)
			signed, err := p.Store.Signed(t.Context(), n.Key, n.Declared.Digest)
			if err != nil {
				t.Fatal(err)
			}
			before[name] = fmt.Sprintf("%d %s", n.Declared.Generation, signed)
		}
	}()
	p := planetest.New(t, planetest.Options{Dir: dir, PlaneMachine: planetest.MachineID("one"), PlaneConfig: "mesh: test\n"})
	if err := p.Declarer.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, want := range before {
		n := p.Node(t, name)
		signed, err := p.Store.Signed(t.Context(), n.Key, n.Declared.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%d %s", n.Declared.Generation, signed); got != want {
			t.Errorf("%s: declared anew: %s", name, cmp.Diff(want, got))
		}
	}
}

// subtest ends what it was given to clean up when its owner says so.
type subtest struct {
	testing.TB
	cleanups []func()
}

func (s *subtest) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *subtest) end() {
	for _, f := range s.cleanups {
		f()
	}
}

func TestAnErrorOfADecisionChangesNothing(t *testing.T) {
	p := planetest.New(t, planetest.Options{})
	n := p.Enrol(t, "web")
	ref := registry.Ref{Name: "web", Key: n.Key.Public()}
	errNo := errors.New("no")
	for name, tt := range map[string]struct {
		change registry.Change
		err    error
	}{
		"of the decision itself": {registry.Change{Remove: &ref}, errNo},
		"of a later part":        {registry.Change{Assign: []registry.Assignment{{Node: ref, Module: "welcome"}}, Unassign: []registry.Assignment{{Node: ref, Module: "plane"}}}, nil},
		"of a node nobody knows": {registry.Change{Assign: []registry.Assignment{{Node: ref, Module: "welcome"}, {Node: registry.Ref{Name: "x", Key: planetest.NewMachine("x").Key.Public()}, Module: "welcome"}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			err := p.Store.Update(t.Context(), func(context.Context, registry.View) (registry.Change, error) { return tt.change, tt.err })
			if err == nil || tt.err != nil && !errors.Is(err, tt.err) {
				t.Fatalf("got %v", err)
			}
			if after := p.Node(t, "web"); len(after.Modules) != 0 || after.Key != n.Key.Public() {
				t.Errorf("changed to %+v", after)
			}
		})
	}
}

// The database itself holds that an address is one node's, whatever decides.
func TestAnAddressIsHeldOnce(t *testing.T) {
	p := planetest.New(t, planetest.Options{})
	p.Enrol(t, "web")
	token := p.Token(t, enrolment.TokenRequest{})
	held := p.Node(t, "web").Addresses
	for name, addresses := range map[string][]netip.Addr{
		"the address of another":    held[:1],
		"two addresses of a family": {netip.MustParseAddr("10.77.0.9"), netip.MustParseAddr("10.77.0.10")},
	} {
		m := planetest.NewMachine("db")
		err := p.Store.Update(t.Context(), func(context.Context, registry.View) (registry.Change, error) {
			return registry.Change{Enrol: &registry.Enrolment{Token: registry.TokenID(token.ID), Node: registry.Node{
				Name: "db", Key: m.Key.Public(), Inventory: m.Inventory, Addresses: addresses,
			}}}, nil
		})
		if err == nil || !strings.Contains(err.Error(), "UNIQUE constraint failed") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestHeldStaysWithinItsRange(t *testing.T) {
	p := planetest.New(t, planetest.Options{})
	p.Enrol(t, "a")
	p.Enrol(t, "b")
	p.View(t, func(ctx context.Context, v registry.View) error {
		for prefix, want := range map[string]int{"10.77.0.0/16": 2, "10.77.0.2/31": 1, "10.78.0.0/16": 0, "fd5e:8b6f:3a21::/48": 2, "fd5e:8b6f:3a22::/48": 0, "::/0": 2} {
			held, err := v.Held(ctx, netip.MustParsePrefix(prefix))
			if err != nil || len(held) != want {
				t.Errorf("%s: %v %v, want %d", prefix, held, err, want)
			}
		}
		return nil
	})
}

// A secret that reached the disk is overwritten when it is spent or expires.
func TestSecretsAreOverwritten(t *testing.T) {
	for name, forget := range map[string]func(*planetest.Plane, identity.Token) error{
		"spent": func(p *planetest.Plane, token identity.Token) error {
			_, err := p.Enrolments.Enrol(t.Context(), planetest.NewMachine("web").With(token))
			return err
		},
		"expired": func(p *planetest.Plane, _ identity.Token) error {
			p.Advance(time.Hour)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p := planetest.New(t, planetest.Options{Dir: dir})
			token := p.Token(t, enrolment.TokenRequest{})
			for range 9 {
				p.Token(t, enrolment.TokenRequest{Lifetime: 48 * time.Hour}) // neighbours on its page
			}
			secret := token.Secret.SecretBytes()
			onDisk := func() bool {
				t.Helper()
				// Also brings what is in the log into the database.
				if err := p.Store.ForgetExpired(t.Context(), p.Now()); err != nil {
					t.Fatal(err)
				}
				files, err := filepath.Glob(filepath.Join(dir, "*"))
				if err != nil {
					t.Fatal(err)
				}
				var all []byte
				for _, f := range files {
					b, err := os.ReadFile(f)
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, b...)
				}
				return bytes.Contains(all, secret[:])
			}
			if !onDisk() {
				t.Fatal("it was never there")
			}
			if err := forget(p, token); err != nil {
				t.Fatal(err)
			}
			if onDisk() {
				t.Error("it is there still")
			}
		})
	}
}

func TestOnlyTwoGenerationsAreKept(t *testing.T) {
	p := planetest.New(t, planetest.Options{})
	m := p.Enrol(t, "web")
	digests := []string{p.Node(t, "web").Declared.Digest}
	for range 2 {
		for _, change := range []func(context.Context, string, string) error{
			func(ctx context.Context, n, m string) error { _, err := p.Declarer.Assign(ctx, n, m); return err },
			func(ctx context.Context, n, m string) error { _, err := p.Declarer.Unassign(ctx, n, m); return err },
		} {
			if err := change(t.Context(), "web", "welcome"); err != nil {
				t.Fatal(err)
			}
			digests = append(digests, p.Node(t, "web").Declared.Digest)
		}
	}
	for i, digest := range digests {
		_, err := p.Store.Signed(t.Context(), m.Key.Public(), digest)
		if kept := i >= len(digests)-2; kept != (err == nil) || err != nil && !errors.Is(err, registry.ErrUnknown) {
			t.Errorf("generation %d of %d: %v", i+1, len(digests), err)
		}
	}
	other := p.Enrol(t, "other")
	if _, err := p.Store.Signed(t.Context(), other.Key.Public(), digests[len(digests)-1]); !errors.Is(err, registry.ErrUnknown) {
		t.Errorf("a node reads the declaration of another: %v", err)
	}
}

// A store of the first release is brought up to date with what is in it.
func TestAnOlderStoreIsBroughtUpToDate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plane.db")
	first, err := os.ReadFile("migrations/00001_mesh.sql")
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	old, err := goose.NewProvider(goose.DialectSQLite3, db, fstest.MapFS{"00001_mesh.sql": {Data: first}}, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	_, upErr := old.Up(t.Context())
	_, fillErr := db.Exec(`
		INSERT INTO nodes VALUES (1, 'web', 'm', '{}', '{}', 1, 1, NULL);
		INSERT INTO keys VALUES ('nodekey:' || ?, 1, 1, NULL);
		INSERT INTO declarations VALUES (1, 1, 4, 'd', 'c', x'00', 1);
		INSERT INTO reports VALUES (1, 1, 1, 4, 'd', '{"in_sync":3}', '[]');`, strings.Repeat("0", 63)+"1")
	if err := errors.Join(upErr, fillErr, db.Close()); err != nil {
		t.Fatal(err)
	}
	s := open(t, path)
	d, err := s.Detail(t.Context(), "web")
	if err != nil || d.Acknowledged.Counts.InSync != 3 || d.Declared.Generation != 4 || d.Refused != nil {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestTheLastReportIsKept(t *testing.T) {
	p := planetest.New(t, planetest.Options{})
	m := p.Enrol(t, "web")
	inv := planetest.Inventory("web")
	inv.CPUs = 64
	for generation := range uint64(3) {
		err := p.Store.SaveReport(t.Context(), registry.Report{
			Node: m.Key.Public(), At: p.Now().Add(time.Duration(generation) * time.Second), Inventory: inv,
			Outcome: declaration.Outcome{Epoch: 1, Generation: generation, Digest: "d", Results: []declaration.Result{
				{ID: "a/b", Kind: "file", Where: "/b", Status: declaration.StatusFailed, Reason: "no space"},
				{ID: "a/c", Kind: "file", Where: "/c", Status: declaration.StatusChanged},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	d, err := p.Store.Detail(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	want := registry.Acknowledged{At: p.Now().Add(2 * time.Second), Epoch: 1, Generation: 2, Digest: "d", Counts: registry.Counts{InSync: 1, Failed: 1}}
	if diff := cmp.Diff(want, d.Acknowledged); diff != "" {
		t.Error(diff)
	}
	if len(d.Results) != 2 || d.Results[0].Reason != "no space" || d.Inventory.CPUs != 64 {
		t.Errorf("%+v", d)
	}
	if err := p.Enrolments.Remove(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	if err := p.Store.SaveReport(t.Context(), registry.Report{Node: m.Key.Public(), At: p.Now()}); err != nil {
		t.Errorf("a late report of a node that is gone: %v", err)
	}
	if _, err := p.Store.Detail(t.Context(), "web"); !errors.Is(err, registry.ErrUnknown) {
		t.Errorf("got %v", err)
	}
}

// Many who speak at once share transactions, and each hears only when its own
// words are kept.
func TestReportsAtOnce(t *testing.T) {
	p := planetest.New(t, planetest.Options{})
	var machines []planetest.Machine
	for i := range 20 {
		machines = append(machines, p.Enrol(t, fmt.Sprintf("n%02d", i)))
	}
	var wg sync.WaitGroup
	for _, m := range machines {
		for generation := uint64(1); generation <= 5; generation++ {
			wg.Go(func() {
				r := registry.Report{Node: m.Key.Public(), At: p.Now(), Inventory: m.Inventory, Outcome: declaration.Outcome{Epoch: 1, Generation: generation}}
				if err := p.Store.SaveReport(t.Context(), r); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	all, err := p.Store.Standings(t.Context())
	if err != nil || len(all) != 20 {
		t.Fatal(len(all), err)
	}
	for _, n := range all {
		if n.Acknowledged.Generation == 0 || n.Acknowledged.At.IsZero() {
			t.Errorf("%s: %+v", n.Name, n.Acknowledged)
		}
	}
}

func TestCommittedHearsInOrder(t *testing.T) {
	var heard []string
	s, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "plane.db"), Committed: func(c registry.Change) {
		heard = append(heard, c.Issue.Node) // calls come one at a time
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var decided []string
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			err := s.Update(t.Context(), func(context.Context, registry.View) (registry.Change, error) {
				name := fmt.Sprint(i)
				decided = append(decided, name) // decisions too
				return registry.Change{Issue: &registry.Token{ID: registry.TokenID{byte(i)}, Node: name}}, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if d := cmp.Diff(decided, heard); d != "" || len(heard) != 50 {
		t.Error(d)
	}
}

func TestUpdateGivesUpWhenItsCallerDoes(t *testing.T) {
	p := planetest.New(t, planetest.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Enrolments.Issue(ctx, enrolment.TokenRequest{}); err == nil {
		t.Error("issued")
	}
}
