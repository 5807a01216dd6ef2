package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mesh/host/agent"
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
	outcome, err := bundle.Reconcile(t.Context(), bundle.Config{Hand: hand, Now: time.Now}, bundled(t))
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
	if _, err := bundle.Reconcile(t.Context(), bundle.Config{Hand: hand, Now: time.Now}, bundled(t)); err != nil {
		t.Fatal(err)
	}
	var state agent.PassState
	if err := json.Unmarshal(runtime.files["pass.json"], &state); err != nil {
		t.Fatal(err)
	}
	if state.Finished.IsZero() || len(state.Outcome.Results) != 4 || state.Process.PID != 7 || state.Activity != nil || state.Error != "" {
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
	outcome, err := bundle.Reconcile(t.Context(), bundle.Config{Hand: hand, Now: time.Now}, bundled(t))
	if err != nil || !agent.Converged(outcome) || !strings.Contains(log.String(), "status cannot be published") {
		t.Errorf("%s, %v\n%s", statuses(outcome), err, log)
	}
}
