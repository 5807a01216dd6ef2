package agent_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"mesh/host/agent"
	"mesh/host/bundle"
	"mesh/host/declaration"
	"mesh/host/store"
	"mesh/host/system"
	"mesh/host/system/systemtest"
)

// looking is an inspection of what hand works on.
func looking(hand *agent.Hand) agent.Inspection {
	return agent.Inspection{
		Identity: newMemory(), Runtime: hand.Runtime, Store: hand.Store.Directory,
		Alive: func(agent.Process) bool { return false },
	}
}

// untouched fails the test when what is done under it changes m, its record
// included, or takes a lock.
func untouched(t *testing.T, m *systemtest.Machine, do func()) {
	t.Helper()
	before := m.String()
	m.Hook(func(op systemtest.Op) error {
		if op.Changes || strings.HasPrefix(op.Name, "sync") || op.Name == "lock" {
			t.Errorf("planning does %s %s", op.Name, op.Where)
		}
		return nil
	})
	do()
	m.Hook(nil)
	if after := m.String(); after != before {
		t.Errorf("planning changed the machine:\n%s\nwas\n%s", after, before)
	}
}

// A bundle planned is the bundle then applied; before, between and after, the
// record holds the very bytes it held.
func TestPlanIsWhatThePassDoes(t *testing.T) {
	m := newMachine()
	hand, _, _ := machineHand(m)
	accepted, err := bundle.Accept(bundled(t), noon)
	if err != nil {
		t.Fatal(err)
	}
	plan := func(accept *store.Accepted, want string, changes int) {
		t.Helper()
		untouched(t, m, func() {
			follows, p, err := looking(hand).Plan(t.Context(), m, accept)
			if err != nil || follows == nil || follows.Digest != accepted.Digest || p.Digest != accepted.Digest {
				t.Fatalf("%+v, %v", follows, err)
			}
			var verbs []string
			for _, s := range p.Steps {
				verbs = append(verbs, s.ID+" "+string(s.Verb))
			}
			if got := strings.Join(verbs, ", "); got != want || p.Changes() != changes {
				t.Errorf("%d changes\n got %s\nwant %s", p.Changes(), got, want)
			}
		})
	}
	pass := func(accept *store.Accepted, want string) {
		t.Helper()
		if _, outcome, err := hand.Pass(t.Context(), accept); err != nil || statuses(outcome) != want {
			t.Errorf("%s, %v", statuses(outcome), err)
		}
	}
	const still = "plane/directory none, plane/config none, plane/package none, plane/service none"
	plan(&accepted, "plane/directory make, plane/config make, plane/package make, plane/service make", 4)
	pass(&accepted, "plane/directory changed, plane/config changed, plane/package changed, plane/service changed")
	plan(&accepted, still, 0)
	plan(nil, still, 0)
	m.Disk.Put("/etc/mesh-plane/plane.yaml", systemtest.Thing{Type: system.TypeFile, Mode: 0o644, Content: "mesh: away\n"})
	plan(nil, "plane/directory none, plane/config change, plane/package none, plane/service restart", 2)
	pass(nil, "plane/directory in_sync, plane/config changed, plane/package in_sync, plane/service changed")
	plan(nil, still, 0)
}

// Whatever state a pass, a crash or a bad disk left the record in, planning
// leaves it so; and it waits for nobody.
func TestPlanTouchesNothing(t *testing.T) {
	accepted, err := bundle.Accept(bundled(t), noon)
	if err != nil {
		t.Fatal(err)
	}
	look := func(what string, m *systemtest.Machine, hand *agent.Hand) {
		t.Helper()
		untouched(t, m, func() {
			if _, _, err := looking(hand).Plan(t.Context(), m, nil); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	for n := 1; ; n += 3 {
		m := newMachine()
		hand, _, _ := machineHand(m)
		m.Hook(systemtest.CutAt(n))
		_, _, err := hand.Pass(t.Context(), &accepted)
		m.Killed()
		look(fmt.Sprintf("stopped at %d", n), m, hand)
		if err != nil {
			continue
		}
		journal, _ := m.Disk.Content(statePath + "/journal")
		for _, length := range []int{0, 1, len(journal) / 2, len(journal) - 1} {
			m.Disk.Put(statePath+"/journal", systemtest.Thing{Type: system.TypeFile, Mode: 0o600, Content: journal[:length]})
			look(fmt.Sprintf("journal cut to %d", length), m, hand)
		}
		m.Disk.Put(statePath+"/journal", systemtest.Thing{Type: system.TypeFile, Mode: 0o600, Content: journal})
		other, _, err := store.Open(hand.Store)
		if err != nil {
			t.Fatal(err)
		}
		look("while a pass goes on", m, hand)
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		return
	}
}

func TestPlanWithNothingHeld(t *testing.T) {
	m := newMachine()
	hand, _, _ := machineHand(m)
	untouched(t, m, func() {
		follows, p, err := looking(hand).Plan(t.Context(), m, nil)
		if follows != nil || len(p.Steps) != 0 || !p.Quiet() || err != nil {
			t.Errorf("%+v, %s, %v", follows, p, err)
		}
	})
}

// What a pass would not take is refused by the plan, with the same error.
func TestPlanRefusesOlder(t *testing.T) {
	m := newMachine()
	hand, _, _ := machineHand(m)
	p := newPlane(t, 1)
	second := signed(t, p, 2, []declaration.Resource{})
	if _, _, err := hand.Pass(t.Context(), &second); err != nil {
		t.Fatal(err)
	}
	older := signed(t, p, 1, planeResources())
	raised, err := bundle.Accept(bundled(t), noon)
	if err != nil {
		t.Fatal(err)
	}
	for _, accept := range []store.Accepted{older, raised} {
		_, _, planErr := looking(hand).Plan(t.Context(), m, &accept)
		_, _, passErr := hand.Pass(t.Context(), &accept)
		if !errors.Is(planErr, store.ErrOlder) || passErr == nil || planErr.Error() != passErr.Error() {
			t.Errorf("planned: %v\n   done: %v", planErr, passErr)
		}
	}
}
