package snapshot_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mesh/lab/snapshot"
)

// model is what there ought to be.
type model struct {
	t         testing.TB
	b         *bed
	scenarios map[string]string    // name → what its machines hold
	snapshots map[[2]string]string // scenario and name → what they held
	count     int
}

// Snapshots are taken, restored, forked and removed, and scenarios destroyed, in
// any order: every snapshot that is left can be restored, every scenario runs,
// no layer is missing and none is left over.
func TestAnyOrder(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		dir, err := os.MkdirTemp("", "snapshots")
		must(t, err)
		defer os.RemoveAll(dir)
		m := &model{t: t, b: newBed(t, dir), scenarios: map[string]string{}, snapshots: map[[2]string]string{}}
		r.Repeat(map[string]func(*rapid.T){
			"": func(r *rapid.T) { m.check(r) },
			"raise": func(*rapid.T) {
				if len(m.scenarios) < 2 {
					m.raise(m.fresh("r"))
				}
			},
			"live":    m.onScenario(func(r *rapid.T, name string) { m.live(name) }),
			"take":    m.onScenario(func(r *rapid.T, name string) { m.take(name) }),
			"fork":    m.onScenario(func(r *rapid.T, name string) { m.fork(name) }),
			"destroy": m.onScenario(func(r *rapid.T, name string) { m.destroy(name) }),
			"restore": m.onSnapshot(func(r *rapid.T, of [2]string) { m.restore(of, "") }),
			"beside":  m.onSnapshot(func(r *rapid.T, of [2]string) { m.restore(of, m.fresh("b")) }),
			"remove":  m.onSnapshot(func(r *rapid.T, of [2]string) { m.remove(of) }),
		})
		for of, value := range m.snapshots {
			b := m.b
			b.restore(t, snapshot.RestoreOptions{Scenario: of[0], Snapshot: of[1], As: "check"})
			b.wantLives(t, "check", value)
			_, err := b.Destroy(t.Context(), "check")
			must(t, err)
		}
		if t.Failed() {
			r.Fatal("see above")
		}
	})
}

// onScenario does something to any scenario, if there is one.
func (m *model) onScenario(do func(*rapid.T, string)) func(*rapid.T) {
	return func(r *rapid.T) {
		if len(m.scenarios) > 0 {
			do(r, rapid.SampledFrom(slices.Sorted(maps.Keys(m.scenarios))).Draw(r, "scenario"))
		}
	}
}

// onSnapshot does something to any snapshot, if there is one.
func (m *model) onSnapshot(do func(*rapid.T, [2]string)) func(*rapid.T) {
	return func(r *rapid.T) {
		all := slices.SortedFunc(maps.Keys(m.snapshots), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
		if len(all) > 0 {
			do(r, rapid.SampledFrom(all).Draw(r, "snapshot"))
		}
	}
}

func (m *model) fresh(letter string) string {
	m.count++
	return fmt.Sprint(letter, m.count)
}

func (m *model) raise(name string) {
	m.b.raise(m.t, name)
	m.scenarios[name] = ""
}

func (m *model) live(name string) {
	m.scenarios[name] = m.fresh("v")
	m.b.live(m.t, name, m.scenarios[name])
}

func (m *model) take(name string) {
	of := [2]string{name, m.fresh("s")}
	m.b.take(m.t, of[0], of[1])
	m.snapshots[of] = m.scenarios[name]
}

func (m *model) fork(name string) {
	as := m.fresh("f")
	_, err := m.b.Snapshots.Fork(m.t.Context(), snapshot.ForkOptions{Scenario: name, As: as})
	must(m.t, err)
	m.scenarios[as] = m.scenarios[name]
}

func (m *model) destroy(name string) {
	_, err := m.b.Destroy(m.t.Context(), name)
	must(m.t, err)
	delete(m.scenarios, name)
}

func (m *model) restore(of [2]string, as string) {
	m.b.restore(m.t, snapshot.RestoreOptions{Scenario: of[0], Snapshot: of[1], As: as})
	if as == "" {
		as = of[0]
	}
	m.scenarios[as] = m.snapshots[of]
}

func (m *model) remove(of [2]string) {
	must(m.t, m.b.Snapshots.Remove(of[0], of[1]))
	delete(m.snapshots, of)
}

func (m *model) check(r *rapid.T) {
	if diff := cmp.Diff(m.b.usedLayers(m.t), m.b.layerFiles(m.t)); diff != "" {
		r.Fatalf("layers (-used +there):\n%s", diff)
	}
	for name, value := range m.scenarios {
		m.b.wantLives(m.t, name, value)
	}
	if m.t.Failed() {
		r.Fatal("see above")
	}
}
