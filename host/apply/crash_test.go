package apply_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"mesh/host/apply/applytest"
	"mesh/host/system"
	"mesh/host/system/systemtest"
)

// hook is what systemtest.Machine.Hook takes.
type hook = func(systemtest.Op) error

// mutant is the program with a mistake at some places, on top of what interferes
// with it; nil is the program as it is.
type mutant func(next hook) hook

// under is what next does to a machine on which this program runs.
func (m mutant) under(next hook) hook {
	if m == nil {
		return next
	}
	return m(next)
}

// proof is one scenario, put to every kind of crash.
type proof struct {
	scenario applytest.Scenario
	check    *applytest.Checker
	program  mutant
	thorough bool // everyKill tries more moments, and more losses at each, than fit into a minute for each mutant
	random   *rand.Rand
	seen     map[string]bool // machines that were checked
	crashes  int             // machines that were not the same as another
	last     string          // where the last change was before stopped stopped
}

func newProof(t *testing.T, program mutant) *proof {
	t.Helper()
	s := applytest.Demo()
	check, err := applytest.NewChecker(s)
	if err != nil {
		t.Fatal(err)
	}
	return &proof{scenario: s, check: check, program: program, random: rand.New(rand.NewPCG(1, 2)), seen: map[string]bool{}}
}

// stopped runs the scenario on a new machine that is cut before its kth change,
// and says in which pass it stopped; len(Passes) when it ran to the end.
func (p *proof) stopped(k int) (*systemtest.Machine, int) {
	m := p.scenario.Machine()
	cut := systemtest.CutAt(k)
	m.Hook(p.program.under(func(op systemtest.Op) error {
		err := cut(op)
		if err == nil && op.Changes {
			p.last = op.Where
		}
		return err
	}))
	return m, p.goOn(m, 0)
}

// keeping tells whether the last change before stopped was one of content that
// is kept: of its directory, or in it.
func (p *proof) keeping() bool {
	parent, name := path.Split(systemtest.ContentPath)
	return p.last == path.Join(parent, system.Temporary(name)) || strings.HasPrefix(p.last, systemtest.ContentPath)
}

// goOn runs the passes from the given one until one does not end.
func (p *proof) goOn(m *systemtest.Machine, from int) int {
	for i := from; i < len(p.scenario.Passes); i++ {
		if _, err := applytest.Pass(context.Background(), m, p.scenario.Passes[i]); err != nil || m.Off() {
			return i
		}
	}
	return len(p.scenario.Passes)
}

// powerCut checks everything that a power cut can make of m, which stopped in
// the given pass.
func (p *proof) powerCut(m *systemtest.Machine, pass int, losses []systemtest.Loss) error {
	for _, loss := range losses {
		world := fmt.Sprint(pass, m.Promised(), m.PowerCut(loss))
		if p.seen[world] {
			continue
		}
		p.seen[world] = true
		p.crashes++
		if err := p.crash(m, pass, loss); err != nil {
			return fmt.Errorf("in pass %d, %s: %w", pass+1, loss.Name, err)
		}
	}
	return nil
}

// crash checks the machine that comes up: as it is, when it goes on, when it is
// given up, and when the power is cut once more while it goes on.
func (p *proof) crash(m *systemtest.Machine, pass int, loss systemtest.Loss) error {
	if pass == len(p.scenario.Passes) {
		pass-- // it ran to the end; does that last?
	}
	if err := p.check.Cut(m.PowerCut(loss), pass); err != nil {
		return err
	}
	if err := p.check.Recovered(m.PowerCut(loss), pass); err != nil {
		return err
	}
	if err := p.check.Abandoned(m.PowerCut(loss), pass); err != nil {
		return err
	}
	again := m.PowerCut(loss)
	again.Hook(p.program.under(systemtest.CutAt(1 + p.random.IntN(40))))
	pass = p.goOn(again, pass)
	if pass == len(p.scenario.Passes) {
		return nil
	}
	losses := systemtest.Losses(again.Pending(), p.random)
	if err := p.check.Recovered(again.PowerCut(losses[p.random.IntN(len(losses))]), pass); err != nil {
		return fmt.Errorf("cut again in pass %d: %w", pass+1, err)
	}
	return nil
}

// everyPowerCut cuts the power before every change of the scenario, with
// nothing, everything and parts of what was not synced lost.
func (p *proof) everyPowerCut() (cuts int, err error) {
	for k := 1; ; k += stride {
		m, pass := p.stopped(k)
		if err := p.powerCut(m, pass, systemtest.Losses(m.Pending(), p.random)); err != nil {
			return k, fmt.Errorf("cut before change %d, %w", k, err)
		}
		if pass == len(p.scenario.Passes) {
			return k - 1, nil
		}
	}
}

// everyKill kills the host alone before every change, lets it go on, and cuts
// the power while it recovers: what it sees then is not yet durable.
func (p *proof) everyKill() error {
	for k := 1; ; k += stride {
		_, pass := p.stopped(k)
		if pass == len(p.scenario.Passes) {
			return nil
		}
		for _, then := range p.moments(k) {
			m, pass := p.stopped(k)
			m.Killed()
			m.Hook(p.program.under(then.cut))
			if pass = p.goOn(m, pass); pass == len(p.scenario.Passes) {
				continue
			}
			if err := p.powerCut(m, pass, p.losses(m.Pending())); err != nil {
				return fmt.Errorf("killed before change %d, cut %s then, %w", k, then.name, err)
			}
		}
	}
}

// moment is one at which the power is cut on a host that goes on after a kill.
type moment struct {
	name string
	cut  hook
}

// moments lists those to try after a kill before change k, when stopped has just
// been there: before some of the first changes, and on both sides of the sync of
// the first record, which is of what was found. How many changes that takes
// depends on what is found.
func (p *proof) moments(k int) []moment {
	journal := path.Join(applytest.StatePath, "journal")
	recorded := []moment{
		{"behind the write of the first record", systemtest.CutBehind(journal, "write")},
		{"behind the sync of the first record", systemtest.CutBehind(journal, "write", "sync")},
	}
	switch {
	case p.thorough: // with its 13th change the longest recovery has recorded what it found, with its 15th announced what it does then
		return before(1, 20)
	case k <= 12: // while the store is made, a recovery does little
		return append(recorded, before(1, 7)...)
	case p.keeping(): // what is kept is kept first, and that it is, recorded then
		return append(recorded, before(1, 20)...)
	}
	return append(recorded, before(1+k%6, 1+k%6)...)
}

// before lists the moments before each change from one number to another.
func before(from, to int) []moment {
	var moments []moment
	for n := from; n <= to; n++ {
		moments = append(moments, moment{fmt.Sprintf("before change %d", n), systemtest.CutAt(n)})
	}
	return moments
}

// losses lists what is tried to lose of changes that are not synced after a kill.
func (p *proof) losses(pending int) []systemtest.Loss {
	losses := systemtest.Losses(pending, p.random)
	switch {
	case p.thorough && pending <= 6:
		losses = append(losses, systemtest.Parts(pending)...)
	case !p.thorough && pending > 3:
		losses = append(losses[:2], losses[len(losses)-4:]...)
	}
	return losses
}

func TestL0PowerCut(t *testing.T) {
	t.Parallel()
	r := &row{Level: "L0", What: "power cut before every change"}
	defer tried(t, r)()
	p := newProof(t, nil)
	cuts, err := p.everyPowerCut()
	r.Points = p.crashes
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d cuts, %d different machines came up", cuts, p.crashes)
	if cuts < 200 || p.crashes < 300/stride {
		t.Errorf("%d cuts and %d crashes: the scenario has become too small to show anything", cuts, p.crashes)
	}
}

func TestL0KillThenPowerCut(t *testing.T) {
	t.Parallel()
	r := &row{Level: "L0", What: "killed, and the power cut while it recovers"}
	defer tried(t, r)()
	p := newProof(t, nil)
	p.thorough = sparse() == 1
	err := p.everyKill()
	r.Points = p.crashes
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d different machines came up", p.crashes)
}

// TestL0Kill kills the host alone before every changing call: nothing is lost,
// and nothing is done twice.
func TestL0Kill(t *testing.T) {
	t.Parallel()
	r := &row{Level: "L0", What: "killed before every change"}
	defer tried(t, r)()
	p := newProof(t, nil)
	for k := 1; ; k += stride {
		m, pass := p.stopped(k)
		if pass == len(p.scenario.Passes) {
			return
		}
		r.Points++
		m.Killed()
		if err := errors.Join(p.check.Recovered(m, pass), p.check.RestartedMore(m, len(p.scenario.Passes), 0)); err != nil {
			t.Fatalf("killed before change %d, in pass %d: %v", k, pass+1, err)
		}
	}
}
