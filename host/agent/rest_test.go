package agent_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mesh/host/agent"
	"mesh/host/declaration"
	"mesh/host/store"
	"mesh/host/system"
	"mesh/host/system/systemtest"
)

// resting is a machine on a real file system, which tells states of files apart,
// after a first pass.
type resting struct {
	*testing.T
	m    *systemtest.Machine
	hand *agent.Hand
	now  time.Time

	wholes int // passes that said that they are whole ones
}

func newResting(t *testing.T) *resting {
	if os.Getuid() != 0 {
		t.Skip("the files it makes belong to root")
	}
	tree := systemtest.NewTree(t.TempDir())
	tree.Furnish()
	r := &resting{T: t, m: systemtest.On(tree), now: time.Now()}
	r.m.OfferPackage("mesh-plane", systemtest.Offer{
		Versions: []string{"1.0"}, Files: map[string]string{"/srv/mesh-plane": "program\n"}, Users: map[string]uint32{"mesh": 900},
		Units: []systemtest.Unit{{Name: "mesh-plane.service", Reads: []string{"/etc/mesh-plane/plane.yaml"}}},
	})
	r.m.OfferPackage("other", systemtest.Offer{Versions: []string{"1.0"}, Users: map[string]uint32{"other": 901}})
	r.hand, _, _ = machineHand(r.m)
	r.hand.Whole = func() { r.wholes++ }
	r.hand.Now = func() time.Time { r.now = r.now.Add(time.Second); return r.now }
	if outcome, err := reconcile(t, r.hand, bundled(t)); err != nil || !agent.Converged(outcome) {
		t.Fatal(statuses(outcome), err)
	}
	r.pass(whole) // after one that changed something
	return r
}

const (
	glance = false
	whole  = true
)

// pass makes a pass, which is a whole one or a glance, after which all is well.
func (r *resting) pass(want bool) declaration.Outcome {
	r.Helper()
	before := r.wholes
	held, outcome, err := r.hand.Pass(r.Context(), nil)
	if said := r.wholes > before; said != want {
		r.Errorf("it said that it is a whole pass: %t", said)
	}
	if err != nil || held == nil || !agent.Converged(outcome) {
		r.Fatalf("%s, %v", statuses(outcome), err)
	}
	if got := held.HasDocument(); got != want {
		r.Errorf("it was a whole pass: %t", got)
	}
	return outcome
}

const inSync = "plane/directory in_sync, plane/config in_sync, plane/package in_sync, plane/service in_sync"

// TestRest: on a machine on which nothing changed neither the record is read nor
// the declaration, and it is published that it was looked at.
func TestRest(t *testing.T) {
	r := newResting(t)
	published := func() (p agent.PassState) {
		t.Helper()
		text, err := r.hand.Runtime.Read("pass.json")
		if err == nil {
			err = json.Unmarshal(text, &p)
		}
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	before := published()
	var touched []string
	r.m.Hook(func(op systemtest.Op) error {
		if op.Changes || strings.Contains(op.Name, "open ") && op.Name != "open directory" || op.Name == "read" && strings.HasPrefix(op.Where, statePath) {
			touched = append(touched, op.String())
		}
		return nil
	})
	for range 3 {
		if got := statuses(r.pass(glance)); got != inSync {
			t.Error(got)
		}
	}
	if len(touched) > 0 {
		t.Errorf("a glance does more than look:\n%s", strings.Join(touched, "\n"))
	}
	after := published()
	if !after.Started.After(before.Finished) || !after.Finished.After(after.Started) {
		t.Errorf("published before:\n%+v\nand after:\n%+v", before, after)
	}
}

// TestRestEnds: whatever changes is seen by the next pass, which is a whole one.
func TestRestEnds(t *testing.T) {
	const config = "/etc/mesh-plane/plane.yaml"
	for name, tc := range map[string]struct {
		change func(r *resting)
		want   string // of the next pass; "" for everything in sync
	}{
		"a file's content": {func(r *resting) {
			r.m.Disk.Put(config, systemtest.Thing{Type: system.TypeFile, Mode: 0o644, Content: "mesh: away\n"})
		}, "plane/directory in_sync, plane/config changed, plane/package in_sync, plane/service changed"},
		"a file's mode": {func(r *resting) {
			r.m.Disk.Put(config, systemtest.Thing{Type: system.TypeFile, Mode: 0o600, Content: "mesh: home\n"})
		}, "plane/directory in_sync, plane/config changed, plane/package in_sync, plane/service changed"},
		"a file is gone": {func(r *resting) { r.m.Disk.Put(config, systemtest.Thing{}) },
			"plane/directory in_sync, plane/config changed, plane/package in_sync, plane/service changed"},
		"a package is gone": {func(r *resting) {
			if err := r.m.Uninstall(r.Context(), "mesh-plane", func(string) {}); err != nil {
				r.Fatal(err)
			}
		}, "plane/directory in_sync, plane/config in_sync, plane/package changed, plane/service changed"},
		"a service was stopped": {func(r *resting) {
			if err := r.m.Stop(r.Context(), "mesh-plane.service"); err != nil {
				r.Fatal(err)
			}
		}, "plane/directory in_sync, plane/config in_sync, plane/package in_sync, plane/service changed"},
		"a service was restarted": {func(r *resting) {
			if err := r.m.Restart(r.Context(), "mesh-plane.service"); err != nil {
				r.Fatal(err)
			}
		}, ""},
		"a new account": {func(r *resting) {
			if err := r.m.Install(r.Context(), "other", "", func(string) {}); err != nil {
				r.Fatal(err)
			}
		}, ""},
		"somebody else wrote to the record": {func(r *resting) {
			s, _, err := store.Open(r.hand.Store)
			if err != nil {
				r.Fatal(err)
			}
			defer s.Close()
			left := store.Forgotten{Key: store.Key{Kind: declaration.KindFile, Where: "/etc/x"}, Left: "by hand"}
			if err := s.Append(left); err != nil {
				r.Fatal(err)
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newResting(t)
			r.pass(glance)
			tc.change(r)
			want := tc.want
			if want == "" {
				want = inSync
			}
			if got := statuses(r.pass(whole)); got != want {
				t.Errorf("\n got %s\nwant %s", got, want)
			}
			if want != inSync {
				r.pass(whole) // what was made is seen
			}
			r.pass(glance)
		})
	}
}

// TestNoRest: as long as something is left undone, every pass tries it, and what
// is handed over is always looked into.
func TestNoRest(t *testing.T) {
	r := newResting(t)
	r.m.Disk.Put("/etc/mesh-plane/plane.yaml", systemtest.Thing{Type: system.TypeLink, Content: "elsewhere"})
	for range 3 {
		held, outcome, err := r.hand.Pass(t.Context(), nil)
		if err != nil || agent.Converged(outcome) || !held.HasDocument() {
			t.Errorf("%s, %v, whole: %t", statuses(outcome), err, held.HasDocument())
		}
	}
	r.m.Disk.Put("/etc/mesh-plane/plane.yaml", systemtest.Thing{})
	r.pass(whole)
	r.pass(whole)
	r.pass(glance)
	first := signed(t, newPlane(t, 1), 1, planeResources())
	held, _, err := r.hand.Pass(t.Context(), &first)
	if err != nil || held.Source != store.SourcePlane {
		t.Errorf("%+v, %v", held, err)
	}
	r.pass(glance)
	r.m.Disk.Put(statePath+"/journal", systemtest.Thing{})
	if held, _, err := r.hand.Pass(t.Context(), nil); err != nil || held != nil {
		t.Errorf("with its record lost it holds %+v, %v", held, err)
	}
}

// passes is a Passer that had to read what is held in its first pass only.
type passes struct {
	n    int
	over chan struct{} // closed in the third
}

func (p *passes) Pass(context.Context, *store.Accepted) (*store.Accepted, declaration.Outcome, error) {
	held := &store.Accepted{Source: store.SourceBundle}
	if p.n++; p.n == 1 {
		held.Document = []byte("{}")
	}
	if p.n == 3 {
		close(p.over)
	}
	return held, declaration.Outcome{}, nil
}

// What a pass took is given back after it, and not after each glance.
func TestSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand, spent := &passes{over: make(chan struct{})}, 0
		a := agent.New(agent.Config{Identity: newMemory(), Runtime: newMemory(), Hand: hand, Facts: facts, Spent: func() { spent++ }})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx) }()
		<-hand.over
		cancel()
		if err := <-ended; err != nil || spent != 1 {
			t.Errorf("%v; spent %d times in %d passes", err, spent, hand.n)
		}
	})
}
