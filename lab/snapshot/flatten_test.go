package snapshot_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/snapshot"
)

// A snapshot whose disks consist of many layers is restored on disks of two, with
// all that was on them; snapshots that stand on the many stay whole, and the many
// go with the last who stands on them.
func TestFlatten(t *testing.T) {
	b := begin(t, t.TempDir())
	b.deepen(t)
	before, err := b.Snapshots.Store().Get("a", "deep")
	must(t, err)
	if n := len(before.Plan.Machines[0].Layers); n <= snapshot.ManyLayers {
		t.Fatalf("the disks consist of %d layers", n)
	}
	b.restore(t, snapshot.RestoreOptions{Scenario: "a", Snapshot: "deep", As: "b"})
	b.restore(t, snapshot.RestoreOptions{Scenario: "a", Snapshot: "deep", Machine: "one"})
	b.wantLives(t, "b", "now")
	if got := b.File("mesh-b.one", "at 0"); got != "deep" {
		t.Errorf("what lay between is %q", got)
	}
	after, err := b.Snapshots.Store().Get("a", "deep")
	must(t, err)
	for i, m := range after.Plan.Machines {
		was := before.Plan.Machines[i].Layers
		if len(m.Layers) != 2 || m.Layers[1] != was[len(was)-1] {
			t.Errorf("machine %s stands on %v, which were %v", m.Name, m.Layers, was)
		}
	}
	for _, name := range []string{"first", "deep"} {
		must(t, b.Snapshots.Verify(t.Context(), "a", name))
	}
	b.restore(t, snapshot.RestoreOptions{Scenario: "a", Snapshot: "first", As: "c"})
	b.wantLives(t, "c", "then")
	b.restore(t, snapshot.RestoreOptions{Scenario: "a", Snapshot: "deep"})
	if diff := cmp.Diff(b.usedLayers(t), b.layerFiles(t)); diff != "" {
		t.Errorf("layers (-used +there):\n%s", diff)
	}
	if n := len(b.layerFiles(t)); n > 12 {
		t.Errorf("%d layers are left of many", n)
	}
}

// What is damaged is not taken into a new layer, and too little room keeps a disk
// as it is.
func TestFlattenNot(t *testing.T) {
	for what, hinder := range map[string]func(*bed, snapshot.Manifest){
		"too little room": func(b *bed, _ snapshot.Manifest) { b.SpaceBytes = 1 },
		"damaged": func(b *bed, m snapshot.Manifest) {
			path := b.Layer(m.Plan.Machines[0].Layers[3])
			data, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(path, append(data, ' '), 0o644))
		},
	} {
		t.Run(what, func(t *testing.T) {
			b := begin(t, t.TempDir())
			b.deepen(t)
			m, err := b.Snapshots.Store().Get("a", "deep")
			must(t, err)
			hinder(b, m)
			_, _ = b.Snapshots.Restore(t.Context(), snapshot.RestoreOptions{Scenario: "a", Snapshot: "deep", As: "b"})
			now, err := b.Snapshots.Store().Get("a", "deep")
			must(t, err)
			if diff := cmp.Diff(m.Layers, now.Layers); diff != "" {
				t.Errorf("its layers (-before +after):\n%s", diff)
			}
			if _, err := os.Stat(b.Snapshots.Store().Path("a", "deep") + "/manifest.json.new"); err == nil {
				t.Error("what was announced is still there")
			}
		})
	}
}
