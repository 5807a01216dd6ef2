package agent_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mesh/host/agent"
	"mesh/host/apply/applytest"
	"mesh/host/bundle"
	"mesh/host/declaration"
	"mesh/host/store"
	"mesh/host/system"
	"mesh/host/system/systemtest"
)

const statePath = "/var/lib/mesh-host"

// machineHand is a hand on a machine in memory.
func machineHand(m *systemtest.Machine) (*agent.Hand, *memory, *bytes.Buffer) {
	runtime, log := newMemory(), new(bytes.Buffer)
	return &agent.Hand{
		Store:   store.Config{Directory: system.NewStateDirectory(m.Files, statePath), Now: time.Now},
		Machine: m, Runtime: runtime, Process: agent.Process{PID: 7, Start: 1}, Now: time.Now,
		Log: slog.New(slog.NewTextHandler(log, nil)),
	}, runtime, log
}

// planeResources are what a bundle raises and the plane declares afterwards.
func planeResources() []declaration.Resource {
	return []declaration.Resource{
		{ID: "plane/directory", Directory: &declaration.Directory{Path: "/etc/mesh-plane"}},
		{ID: "plane/config", File: &declaration.File{Path: "/etc/mesh-plane/plane.yaml", Content: "mesh: home\n"}},
		{ID: "plane/package", Package: &declaration.Package{Name: "mesh-plane"}},
		{ID: "plane/service", Service: &declaration.Service{Unit: "mesh-plane.service", RestartOn: []string{"plane/config", "plane/package"}}},
	}
}

func newMachine() *systemtest.Machine {
	m := systemtest.New()
	m.OfferPackage("mesh-plane", systemtest.Offer{
		Versions: []string{"1.0"}, Files: map[string]string{"/srv/mesh-plane": "program\n"},
		Units: []systemtest.Unit{{Name: "mesh-plane.service", Reads: []string{"/etc/mesh-plane/plane.yaml"}}},
	})
	return m
}

func bundled(t *testing.T) []byte {
	t.Helper()
	text, err := declaration.Bundle{Format: 1, Resources: planeResources()}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// reconcile has hand apply a bundle.
func reconcile(t *testing.T, hand *agent.Hand, text []byte) (declaration.Outcome, error) {
	t.Helper()
	accepted, err := bundle.Accept(text, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return bundle.Reconcile(t.Context(), bundle.Config{Hand: hand, Now: time.Now}, accepted)
}

func signed(t *testing.T, p *fakePlane, generation uint64, resources []declaration.Resource) store.Accepted {
	t.Helper()
	d := declaration.Declaration{Format: 1, Mesh: "home", Node: "one", Epoch: 1, Generation: generation, Resources: resources}
	document, digest, err := declaration.Sign(d, p.sign)
	if err != nil {
		t.Fatal(err)
	}
	return store.Accepted{Source: store.SourcePlane, Mesh: "home", Epoch: 1, Generation: generation, Digest: digest, Document: document}
}

func statuses(o declaration.Outcome) string {
	var words []string
	for _, r := range o.Results {
		words = append(words, r.ID+" "+string(r.Status))
	}
	return strings.Join(words, ", ")
}

// The first node's path on one machine: bundle, handover, unassign. The first
// declaration after the bundle changes nothing and removes nothing; afterwards
// what it owned is the plane's to take away.
func TestHandoverChangesNothing(t *testing.T) {
	m := newMachine()
	hand, _, _ := machineHand(m)
	outcome, err := reconcile(t, hand, bundled(t))
	if err != nil || !agent.Converged(outcome) {
		t.Fatalf("%s, %v", statuses(outcome), err)
	}
	apart := func() string { // everything but the record
		var kept []string
		for line := range strings.Lines(m.String()) {
			if !strings.Contains(line, statePath) {
				kept = append(kept, line)
			}
		}
		return strings.Join(kept, "")
	}
	before, restarts := apart(), m.Restarts("mesh-plane.service")
	p := newPlane(t, 1)
	first := signed(t, p, 1, planeResources())
	held, outcome, err := hand.Pass(t.Context(), &first)
	if err != nil || held.Source != store.SourcePlane {
		t.Fatalf("%+v, %v", held, err)
	}
	const want = "plane/directory in_sync, plane/config in_sync, plane/package in_sync, plane/service in_sync"
	if got := statuses(outcome); got != want {
		t.Errorf("the handover did something:\n got %s\nwant %s", got, want)
	}
	if after := apart(); after != before || m.Restarts("mesh-plane.service") != restarts {
		t.Errorf("the machine changed:\n%s\n%s", before, after)
	}
	empty := signed(t, p, 2, []declaration.Resource{})
	_, outcome, err = hand.Pass(t.Context(), &empty)
	if err != nil || statuses(outcome) != "plane/service removed, plane/package removed, plane/config removed, plane/directory removed" {
		t.Errorf("after it was unassigned: %s, %v", statuses(outcome), err)
	}
}

// A declaration is durable before the machine is touched: cut at any change of
// a pass, the machine comes back and applies the rest without the plane.
func TestPassPersistsBeforeItActs(t *testing.T) {
	p := newPlane(t, 1)
	for n := 1; ; n++ {
		m := newMachine()
		hand, _, _ := machineHand(m)
		first := signed(t, p, 1, planeResources())
		m.Hook(systemtest.CutAt(n))
		_, _, err := hand.Pass(t.Context(), &first)
		m = m.PowerCut(systemtest.Loss{Keeps: func(int, int) bool { return false }})
		hand, _, _ = machineHand(m)
		held, outcome, againErr := hand.Pass(t.Context(), nil)
		if againErr != nil {
			t.Fatalf("cut at %d: %v", n, againErr)
		}
		_, touched := m.Disk.Content("/etc/mesh-plane/plane.yaml")
		if touched && held == nil {
			t.Fatalf("cut at %d: the machine was touched before the declaration was durable", n)
		}
		if held != nil && !agent.Converged(outcome) {
			t.Fatalf("cut at %d: the rest was not applied: %s", n, statuses(outcome))
		}
		if err == nil {
			if n < 20 {
				t.Fatalf("only %d changes were cut at", n)
			}
			return
		}
	}
}

// TestRetiredMachineTakesABundle: the last declaration takes everything away, in
// reverse order and each reported; then the machine is anybody's.
func TestRetiredMachineTakesABundle(t *testing.T) {
	m := newMachine()
	hand, _, _ := machineHand(m)
	before := applytest.World(m)
	p := newPlane(t, 1)
	first := signed(t, p, 1, planeResources())
	if _, _, err := hand.Pass(t.Context(), &first); err != nil {
		t.Fatal(err)
	}
	document, digest, err := declaration.Sign(final(2), p.sign)
	if err != nil {
		t.Fatal(err)
	}
	last := store.Accepted{Source: store.SourcePlane, Mesh: "home", Epoch: 1, Generation: 2, Digest: digest, Document: document, Final: true}
	_, outcome, err := hand.Pass(t.Context(), &last)
	if err != nil || statuses(outcome) != "plane/service removed, plane/package removed, plane/config removed, plane/directory removed" {
		t.Errorf("%s, %v", statuses(outcome), err)
	}
	if after := applytest.World(m); after != before {
		t.Errorf("the machine is not as it was:\n%s\n%s", after, before)
	}
	handed, err := bundle.Accept(bundled(t), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if held, outcome, err := hand.Pass(t.Context(), &handed); err != nil || held.Source != store.SourceBundle || !agent.Converged(outcome) {
		t.Errorf("%+v, %s, %v", held, statuses(outcome), err)
	}
}

func TestPassRefusesOlder(t *testing.T) {
	m := newMachine()
	hand, _, _ := machineHand(m)
	p := newPlane(t, 1)
	second := signed(t, p, 2, planeResources())
	if _, _, err := hand.Pass(t.Context(), &second); err != nil {
		t.Fatal(err)
	}
	older := signed(t, p, 1, nil)
	held, _, err := hand.Pass(t.Context(), &older)
	if !errors.Is(err, store.ErrOlder) || held == nil || held.Generation != 2 {
		t.Errorf("%+v, %v", held, err)
	}
	if _, ok := m.Disk.Content("/etc/mesh-plane/plane.yaml"); !ok {
		t.Error("something was removed")
	}
	if _, _, err := hand.Pass(t.Context(), &second); err != nil { // the very one that is held
		t.Error(err)
	}
}

func TestPassWithNothingHeld(t *testing.T) {
	hand, _, _ := machineHand(newMachine())
	held, outcome, err := hand.Pass(t.Context(), nil)
	if held != nil || len(outcome.Results) != 0 || err != nil {
		t.Errorf("%+v, %+v, %v", held, outcome, err)
	}
}

// While another process makes its pass this one waits, says so once, and gives
// up only with its context.
func TestPassTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand, _, _ := machineHand(newMachine())
		waits := 0
		hand.Waiting = func() { waits++ }
		other, _, err := store.Open(hand.Store)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, _, err := hand.Pass(ctx, nil); !errors.Is(err, store.ErrLocked) || !errors.Is(err, context.DeadlineExceeded) || waits != 1 {
			t.Errorf("%v after %d notes", err, waits)
		}
		time.AfterFunc(time.Minute, func() { _ = other.Close() })
		if _, _, err := hand.Pass(t.Context(), nil); err != nil || waits != 2 {
			t.Errorf("%v after %d notes", err, waits)
		}
	})
}

// What a pass came to is there to be looked at.
func TestPassIsPublished(t *testing.T) {
	m := newMachine()
	hand, runtime, _ := machineHand(m)
	if _, err := reconcile(t, hand, bundled(t)); err != nil {
		t.Fatal(err)
	}
	var state agent.PassState
	if err := json.Unmarshal(runtime.files["pass.json"], &state); err != nil {
		t.Fatal(err)
	}
	var outcome declaration.Outcome
	if err := json.Unmarshal(runtime.files["outcome.json"], &outcome); err != nil {
		t.Fatal(err)
	}
	if state.Finished.IsZero() || len(outcome.Results) != 4 || state.Process.PID != 7 || state.Activity != nil || state.Error != "" {
		t.Errorf("%+v", state)
	}
	i := agent.Inspection{
		Identity: newMemory(), Runtime: runtime, Store: hand.Store.Directory,
		Alive: func(agent.Process) bool { return false },
	}
	s, err := i.Status()
	if err != nil || !s.Converged || len(s.Resources) != 4 || s.Resources[0].Owned == nil {
		t.Errorf("%+v, %v", s, err)
	}
}

// A pass that cannot write its status still applies.
func TestPassGoesOnUnseen(t *testing.T) {
	m := newMachine()
	hand, runtime, log := machineHand(m)
	runtime.broken = errors.New("read-only file system")
	outcome, err := reconcile(t, hand, bundled(t))
	if err != nil || !agent.Converged(outcome) || !strings.Contains(log.String(), "status cannot be published") {
		t.Errorf("%s, %v\n%s", statuses(outcome), err, log)
	}
}

// A member of a mesh whose record is gone says so, in its journal and its status,
// goes on, and removes nothing it cannot know of.
func TestRecordLost(t *testing.T) {
	m := newMachine()
	hand, runtime, log := machineHand(m)
	p, identity := newPlane(t, 1), newMemory()
	hand.Store.Expected, hand.Store.Log = agent.RecordExpected(identity), hand.Log
	made := 0
	e := agent.Enrolment{Identity: identity, Facts: facts, Random: rand.Reader, Now: time.Now, EnsureRecord: func() error {
		made++
		record, _, err := store.Open(hand.Store)
		if err != nil {
			return err
		}
		return record.Close()
	}}
	if _, err := e.Run(t.Context(), p.token("one", loopback(t, p)).Encode()); err != nil || made != 1 {
		t.Fatalf("%v, record made %d times", err, made)
	}
	looks := agent.Inspection{Identity: identity, Runtime: runtime, Store: hand.Store.Directory, Alive: func(agent.Process) bool { return false }}
	first := signed(t, p, 1, planeResources())
	if _, _, err := hand.Pass(t.Context(), &first); err != nil {
		t.Fatal(err)
	}
	if s, err := looks.Status(); err != nil || len(s.Losses) != 0 || log.Len() > 0 && strings.Contains(log.String(), "not whole") {
		t.Fatalf("before anything is lost: %+v, %v\n%s", s.Losses, err, log)
	}
	state, err := m.Disk.OpenDir(statePath)
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	if err := errors.Join(state.Unlink("journal"), state.Unlink("snapshot")); err != nil {
		t.Fatal(err)
	}
	const want = "store: there is none, and this machine is node one of mesh home: "
	lost := func(when string) {
		t.Helper()
		s, err := looks.Status()
		if err != nil || len(s.Losses) != 1 || !s.Losses[0].Grave || !strings.HasPrefix(s.Losses[0].What, want) {
			t.Errorf("%s: %+v, %v", when, s.Losses, err)
		}
	}
	lost("while nothing runs")
	second := signed(t, p, 2, planeResources()[:1])
	for range 2 {
		_, outcome, err := hand.Pass(t.Context(), &second)
		if err != nil || statuses(outcome) != "plane/directory in_sync" {
			t.Errorf("%s, %v", statuses(outcome), err)
		}
		lost("after a pass")
	}
	if got := strings.Count(log.String(), want); got != 1 {
		t.Errorf("said %d times:\n%s", got, log)
	}
	if !strings.Contains(m.String(), "/etc/mesh-plane/plane.yaml") || m.Restarts("mesh-plane.service") != 0 {
		t.Errorf("something was touched:\n%s", m)
	}
}

// What keeps failing is logged when it begins and when its reason changes, not
// with every try; a new process says it once more.
func TestFailureIsLoggedOnce(t *testing.T) {
	m := systemtest.New()
	hand, _, log := machineHand(m)
	text, err := declaration.Bundle{Format: 1, Resources: planeResources()[2:3]}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	pass := func() (lines int) {
		t.Helper()
		log.Reset()
		if outcome, err := reconcile(t, hand, text); err != nil || agent.Converged(outcome) {
			t.Fatalf("%s, %v", statuses(outcome), err)
		}
		return strings.Count(log.String(), "\n")
	}
	if pass() == 0 || !strings.Contains(log.String(), "level=WARN msg=failed resource=plane/package") {
		t.Errorf("at first: %q", log)
	}
	if pass() != 0 {
		t.Errorf("the second time: %q", log)
	}
	again, _, _ := machineHand(m)
	again.Process.Start, again.Runtime, again.Log = hand.Process.Start+1, hand.Runtime, hand.Log
	hand = again
	if pass() == 0 {
		t.Error("a new process does not say it")
	}
}
