package applytest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"mesh/host/apply"
	"mesh/host/declaration"
	"mesh/host/resource"
	"mesh/host/store"
	"mesh/host/system"
	"mesh/host/system/systemtest"
)

// Checker holds what must be true of a scenario, whatever happened on the way.
// It is the one place where the promises of the host are written down:
//
//   - each path holds exactly what it held before a pass or what it shall hold after;
//   - the store opens without help;
//   - everything made is recorded or announced;
//   - after one pass the machine is as if nothing had happened, and the next
//     pass changes nothing;
//   - nothing that is not owned changed;
//   - every copy that is recorded is there;
//   - no running service or container has read less than the last change of what
//     it reads, and none is restarted more than once for it and once for each crash;
//   - the accepted generation never falls, from the moment it is called accepted;
//   - no temporary file stays;
//   - the store stays under its cap.
type Checker struct {
	scenario Scenario
	worlds   []string         // the world before the first pass, and after each
	restarts []map[string]int // by unit, after each pass, since the beginning
}

// NewChecker runs the scenario without interference and remembers what it
// comes to.
func NewChecker(s Scenario) (*Checker, error) {
	m := s.Machine()
	c := &Checker{scenario: s, worlds: []string{World(m)}, restarts: []map[string]int{{}}}
	for i, d := range s.Passes {
		out, err := Pass(context.Background(), m, d)
		if err != nil {
			return nil, fmt.Errorf("pass %d: %w", i+1, err)
		}
		if bad := failures(out); bad != "" {
			return nil, fmt.Errorf("pass %d: %s", i+1, bad)
		}
		c.worlds = append(c.worlds, World(m))
		counts := map[string]int{}
		for _, unit := range []string{"demo.service", "web.service", declaration.ContainerUnit("shop")} {
			counts[unit] = m.Restarts(unit)
		}
		c.restarts = append(c.restarts, counts)
	}
	return c, nil
}

func failures(out declaration.Outcome) string {
	var bad []string
	for _, r := range out.Results {
		if r.Status == declaration.StatusFailed || r.Status == declaration.StatusWaiting {
			bad = append(bad, fmt.Sprintf("%s %s: %s", r.ID, r.Status, r.Reason))
		}
	}
	return strings.Join(bad, "; ")
}

// World is m without the store.
func World(m *systemtest.Machine) string {
	var kept []string
	for line := range strings.Lines(m.String()) {
		if !strings.Contains(line, " "+StatePath) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// Cut checks a machine that stopped in pass i (from 0) and is up again, before
// the host has run.
func (c *Checker) Cut(m *systemtest.Machine, i int) error {
	before, after := lines(c.worlds[i]), lines(c.worlds[i+1])
	for name, line := range lines(World(m)) {
		if strings.HasPrefix(path.Base(name), system.TemporaryPrefix) || !strings.HasPrefix(name, "/") {
			continue // temporaries are the recovery's business; units come up by themselves
		}
		if line != before[name] && line != after[name] && line != broughtByPackage[name] {
			return fmt.Errorf("%s holds neither old nor new:\n  is  %s  old %s  new %s", name, line, before[name], after[name])
		}
	}
	view, _, err := store.Read(system.NewStateDirectory(m.Files, StatePath), nil)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(view.Losses) > 0 {
		return fmt.Errorf("the store lost something: %+v", view.Losses)
	}
	if a := view.Accepted; m.Promised() > 0 && (a == nil || a.Generation < m.Promised()) {
		return fmt.Errorf("generation %d was accepted, and the store holds %+v", m.Promised(), a)
	}
	for _, c := range view.Copies {
		if _, err := m.ReadContent(c.Digest); err != nil {
			return fmt.Errorf("a copy of %s is recorded and is not there: %w", c.Key, err)
		}
	}
	return onDisk(m, view)
}

// onDisk checks that what is recorded as made was durable before it was.
func onDisk(m *systemtest.Machine, view store.View) error {
	open := map[store.Key]bool{}
	for _, in := range view.Intents {
		open[in.Key] = true
	}
	var keys []store.Key
	for _, o := range view.Owned {
		if (resource.Paths(o.Key) != nil || o.Kind == resource.KindImage) && !open[o.Key] {
			keys = append(keys, o.Key)
		}
	}
	seen := resource.Look(context.Background(), m, keys)
	for _, o := range view.Owned {
		found, ok := seen[o.Key]
		switch {
		case ok && (resource.OnDisk(o.Kind) || o.Kind == resource.KindImage) && found.State != o.Made, ok && found.State.Digest != o.Made.Digest:
			return fmt.Errorf("%s is recorded as made and is not there: %+v", o.Key, found)
		}
	}
	return nil
}

// broughtByPackage is what the package of Demo puts there, before the host
// replaces it in the same pass, and leaves there as configuration.
var broughtByPackage = map[string]string{
	"/etc/demo.conf": "0644 0:0 /etc/demo.conf \"default\\n\"\n",
	"/srv/demo":      "0644 0:0 /srv/demo \"program\\n\"\n",
}

// lines maps what a line is about to the line.
func lines(world string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(world) {
		part := strings.Fields(line)
		switch {
		case len(part) > 2 && strings.HasPrefix(part[2], "/"):
			all[strings.TrimSuffix(part[2], "/")] = line
		default:
			all[part[0]+" "+part[1]] = line
		}
	}
	return all
}

// Recovered brings a machine that stopped in pass i through the rest of the
// scenario and checks it on the way.
func (c *Checker) Recovered(m *systemtest.Machine, i int) error {
	for n := i; n < len(c.scenario.Passes); n++ {
		d := c.scenario.Passes[n]
		out, err := Pass(context.Background(), m, d)
		if err != nil {
			return fmt.Errorf("pass %d again: %w", n+1, err)
		}
		if bad := failures(out); bad != "" {
			return fmt.Errorf("pass %d again: %s", n+1, bad)
		}
		if err := c.settled(m, d, n+1); err != nil {
			return fmt.Errorf("after pass %d again: %w", n+1, err)
		}
	}
	return nil
}

// Abandoned gives a machine that stopped in pass i an empty declaration at
// once: then nothing that was made may be left.
func (c *Checker) Abandoned(m *systemtest.Machine, i int) error {
	last := len(c.scenario.Passes) - 1
	d := c.scenario.Passes[last]
	out, err := Pass(context.Background(), m, d)
	if err != nil {
		return fmt.Errorf("empty declaration: %w", err)
	}
	if bad := failures(out); bad != "" {
		return fmt.Errorf("empty declaration: %s", bad)
	}
	if err := c.tidy(m, d); err != nil {
		return fmt.Errorf("empty declaration: %w", err)
	}
	before, final := lines(c.worlds[0]), lines(c.worlds[last+1])
	for name, line := range lines(World(m)) {
		if line != before[name] && line != final[name] && line != broughtByPackage[name] {
			return fmt.Errorf("the empty declaration left behind: %s", line)
		}
	}
	return nil
}

// settled checks a machine after a pass that was not interfered with.
func (c *Checker) settled(m *systemtest.Machine, d apply.Desired, pass int) error {
	if is, want := World(m), c.worlds[pass]; is != want {
		return fmt.Errorf("the machine differs from one that nothing happened to:\n--- is\n%s--- wanted\n%s", is, want)
	}
	return c.tidy(m, d)
}

// tidy checks what must hold after every whole pass.
func (c *Checker) tidy(m *systemtest.Machine, d apply.Desired) error {
	if strings.Contains(m.Disk.String(), system.TemporaryPrefix) {
		return fmt.Errorf("a temporary file stays:\n%s", m.Disk.String())
	}
	for _, unit := range m.Stale() {
		if slices.ContainsFunc(d.Resources, func(r declaration.Resource) bool {
			return r.Where() == unit || r.Container != nil && declaration.ContainerUnit(r.Where()) == unit
		}) {
			return fmt.Errorf("%s did not restart after the last change of what it reads", unit)
		}
	}
	s, report, err := Open(m)
	if err != nil {
		return err
	}
	defer s.Close()
	if len(report.Notes) > 0 {
		return fmt.Errorf("the store is damaged: %v", report.Notes)
	}
	view := s.View()
	if view.Accepted == nil || view.Accepted.Generation < d.Generation {
		return fmt.Errorf("the accepted generation fell: %+v", view.Accepted)
	}
	if len(view.Intents)+len(view.Debts) > 0 {
		return fmt.Errorf("something is left open: %+v %+v", view.Intents, view.Debts)
	}
	plan, err := Applier(m, s).Plan(context.Background(), d)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(plan.Steps, func(st apply.Step) bool { return st.Verb != apply.VerbNone }); i >= 0 {
		return fmt.Errorf("the next pass would do something:\n%s", plan)
	}
	return storeSize(m)
}

func storeSize(m *systemtest.Machine) error {
	size := 0
	for _, name := range []string{"journal", "snapshot", "journal.damaged", "snapshot.damaged"} {
		content, _ := m.Disk.Content(path.Join(StatePath, name))
		size += len(content)
	}
	if size > MaxStoreBytes {
		return fmt.Errorf("the store has %d bytes, its cap is %d", size, MaxStoreBytes)
	}
	return nil
}

// RestartedMore checks that since the scenario began units were restarted at
// most extra times more often than without interference.
func (c *Checker) RestartedMore(m *systemtest.Machine, pass, extra int) error {
	for unit, want := range c.restarts[pass] {
		if got := m.Restarts(unit); got > want+extra {
			return fmt.Errorf("%s was restarted %d times, %d is enough", unit, got, want)
		}
	}
	return nil
}

// Generation is the generation the store of m holds, without opening it for
// writing.
func Generation(m *systemtest.Machine) (uint64, error) {
	view, _, err := store.Read(system.NewStateDirectory(m.Files, StatePath), nil)
	if err != nil || view.Accepted == nil {
		return 0, err
	}
	return view.Accepted.Generation, nil
}
