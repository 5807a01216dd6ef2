package apply_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"mesh/host/apply/applytest"
	"mesh/host/system/systemtest"
)

// brought runs the scenario on a new machine under hook until a pass fails or
// the machine is cut, and returns that pass; len(Passes) when none did.
func brought(t *testing.T, s applytest.Scenario, hook func(systemtest.Op) error) (*systemtest.Machine, int) {
	t.Helper()
	m := s.Machine()
	m.Hook(hook)
	for i, d := range s.Passes {
		if _, err := applytest.Pass(context.Background(), m, d); err != nil {
			if !errors.Is(err, systemtest.ErrCut) {
				t.Fatalf("pass %d: %v", i+1, err)
			}
			return m, i
		}
	}
	return m, len(s.Passes)
}

// TestL0PowerCut cuts the power before every changing call of the scenario,
// with nothing, everything and parts of what was not synced lost, and checks
// the machine then, after recovery, and when it is given up instead.
func TestL0PowerCut(t *testing.T) {
	s := applytest.Demo()
	check := checker(t, s)
	random := rand.New(rand.NewPCG(1, 2))
	cuts, crashes := 0, 0
	seen := map[string]bool{}
	for k := 1; ; k++ {
		m, pass := brought(t, s, systemtest.CutAt(k))
		if pass == len(s.Passes) {
			break
		}
		cuts++
		for _, loss := range systemtest.Losses(m.Pending(), random) {
			up := m.PowerCut(loss)
			world := string(rune('0'+pass)) + up.String()
			if seen[world] {
				continue
			}
			seen[world] = true
			crashes++
			if err := check.crash(m, pass, loss, random); err != nil {
				t.Fatalf("cut before change %d, in pass %d, %s: %v", k, pass+1, loss.Name, err)
			}
		}
	}
	t.Logf("%d cuts, %d different machines came up", cuts, crashes)
	if cuts < 100 || crashes < 300 {
		t.Errorf("%d cuts and %d crashes: the scenario has become too small to show anything", cuts, crashes)
	}
}

type crashChecker struct {
	*applytest.Checker
}

func checker(t *testing.T, s applytest.Scenario) crashChecker {
	t.Helper()
	c, err := applytest.NewChecker(s)
	if err != nil {
		t.Fatal(err)
	}
	return crashChecker{c}
}

// crash checks one way in which m came down, and a second crash on top of it.
func (c crashChecker) crash(m *systemtest.Machine, pass int, loss systemtest.Loss, random *rand.Rand) error {
	if err := c.Cut(m.PowerCut(loss), pass); err != nil {
		return err
	}
	if err := c.Recovered(m.PowerCut(loss), pass); err != nil {
		return err
	}
	if err := c.Abandoned(m.PowerCut(loss), pass); err != nil {
		return err
	}
	again := m.PowerCut(loss)
	again.Hook(systemtest.CutAt(1 + random.IntN(40)))
	if c.Recovered(again, pass) == nil {
		return nil // it was through before the second cut
	}
	losses := systemtest.Losses(again.Pending(), random)
	up := again.PowerCut(losses[random.IntN(len(losses))])
	reached, err := applytest.Generation(up)
	if err != nil {
		return err
	}
	if from := int(reached) - 1; from > pass {
		pass = from
	}
	if err := c.Recovered(up, pass); err != nil {
		return errors.Join(errors.New("after a second cut"), err)
	}
	return nil
}

// TestL0Kill kills the host alone before every changing call: nothing is lost,
// and nothing is done twice.
func TestL0Kill(t *testing.T) {
	s := applytest.Demo()
	check := checker(t, s)
	for k := 1; ; k++ {
		m, pass := brought(t, s, systemtest.CutAt(k))
		if pass == len(s.Passes) {
			return
		}
		m.Killed()
		if err := check.Recovered(m, pass); err != nil {
			t.Fatalf("killed before change %d, in pass %d: %v", k, pass+1, err)
		}
		if err := check.RestartedMore(m, len(s.Passes), 0); err != nil {
			t.Fatalf("killed before change %d, in pass %d: %v", k, pass+1, err)
		}
	}
}
