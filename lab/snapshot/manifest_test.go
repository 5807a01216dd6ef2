package snapshot_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mesh/lab/images"
	"mesh/lab/lifecycle"
	"mesh/lab/machine"
	"mesh/lab/snapshot"
	"mesh/lab/underlay"
)

var update = flag.Bool("update", false, "write the golden files anew")

// manifest is one of the small scenario.
func manifest(t testing.TB) snapshot.Manifest {
	t.Helper()
	s := small()
	u, err := underlay.Plan(s, "0badcafe")
	must(t, err)
	p, err := lifecycle.NewPlan(s, *u, lifecycle.Options{
		Name: "a", Source: "/home/somebody/small.yaml", Run: "0badcafe", Packages: "/dist",
		Images:    map[string]images.Image{"debian-13": {Disk: "/i/disk", Kernel: "/i/kernel", Cmdline: "root=/dev/vda"}},
		Directory: "/store/scenarios/a", Layers: "/store/layers", Runtime: "/run/a",
	})
	must(t, err)
	hex := func(digit string, n int) string { return strings.Repeat(digit, n) }
	m := snapshot.Manifest{
		Format: 1, ID: hex("a", 32), Scenario: "a", Name: "first", About: "both are up",
		Taken: time.Date(2026, 5, 1, 12, 0, 0, 123456789, time.UTC), SkewSeconds: 0.0125, Ancestors: []string{hex("b", 32)},
		Platform: machine.Platform{Emulator: "qemu 7.2.22", MachineType: "pc-q35-7.2", CPU: "Nehalem", Accelerator: machine.TCG},
		Images:   map[string]string{"debian-13": hex("d", 64)}, Plan: p.Portable(),
		Machines: []snapshot.Machine{{Name: "one", Memory: "memory/one"}, {Name: "two"}},
		World:    []byte(`{"faults":[]}`),
		Layers:   []snapshot.Layer{{ID: hex("1", 32), Bytes: 1 << 20, SHA256: hex("e", 64)}, {ID: hex("2", 32), SHA256: hex("f", 64)}},
		Files:    []snapshot.File{{Path: "memory/one", Bytes: 100 << 20, SHA256: hex("0", 64)}},
	}
	m.Plan.Machines[0].Layers = []string{hex("1", 32), hex("2", 32)}
	m.Plan.Machines[1].Layers = []string{hex("2", 32)}
	for _, step := range p.Steps {
		m.Steps = append(m.Steps, lifecycle.StepRecord{ID: step.ID, State: lifecycle.Done})
	}
	return m
}

func TestManifestGolden(t *testing.T) {
	text, err := manifest(t).Marshal()
	must(t, err)
	path := filepath.Join("testdata", "manifest.json")
	if *update {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(path, text, 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if diff := cmp.Diff(string(want), string(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got, err := snapshot.Parse(want)
	must(t, err)
	again, err := got.Marshal()
	must(t, err)
	if diff := cmp.Diff(string(want), string(again)); diff != "" {
		t.Errorf("read and written again (-want +got):\n%s", diff)
	}
}

// A snapshot that the lab before took is read.
func TestManifestOfFormatBefore(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "manifest-format-1.json"))
	must(t, err)
	got, err := snapshot.Parse(text)
	must(t, err)
	again, err := got.Marshal()
	must(t, err)
	want, err := os.ReadFile(filepath.Join("testdata", "manifest.json"))
	must(t, err)
	if diff := cmp.Diff(string(want), string(again)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whatever contradicts itself, or would lead out of the store, is neither written
// nor read.
func TestManifestRefused(t *testing.T) {
	for want, spoil := range map[string]func(*snapshot.Manifest){
		`"A" is no name`:                       func(m *snapshot.Manifest) { m.Name = "A" },
		`"../x" is no name`:                    func(m *snapshot.Manifest) { m.Scenario = "../x" },
		`"xyz" is no id of a snapshot`:         func(m *snapshot.Manifest) { m.Ancestors = []string{"xyz"} },
		`world_state: "[]" is no object`:       func(m *snapshot.Manifest) { m.World = []byte("[]") },
		"with a skew of -1 s":                  func(m *snapshot.Manifest) { m.SkewSeconds = -1 },
		"it names paths, or belongs to a run":  func(m *snapshot.Manifest) { m.Plan.Run = "0badcafe" },
		"no digest of \"debian-13\"":           func(m *snapshot.Manifest) { m.Images = nil },
		"machines: they are not the plan's":    func(m *snapshot.Manifest) { m.Machines = m.Machines[1:] },
		"steps: they are not the plan's":       func(m *snapshot.Manifest) { m.Steps = nil },
		`"/etc/passwd" is no path below`:       func(m *snapshot.Manifest) { m.Files[0].Path = "/etc/passwd" },
		`"manifest.json" is no path below`:     func(m *snapshot.Manifest) { m.Files[0].Path = "manifest.json" },
		"memory/one stands twice":              func(m *snapshot.Manifest) { m.Files = append(m.Files, m.Files[0]) },
		"its memory \"memory/two\" is none of": func(m *snapshot.Manifest) { m.Machines[1].Memory = "memory/two" },
		"of machine two, is none of them":      func(m *snapshot.Manifest) { m.Layers = m.Layers[:1] },
		"machine one has no layer":             func(m *snapshot.Manifest) { m.Plan.Machines[0].Layers = nil },
		`"../../x" is no id`:                   func(m *snapshot.Manifest) { m.Layers[0].ID = "../../x" },
		`-5 bytes`:                             func(m *snapshot.Manifest) { m.Layers[0].Bytes = -5 },
	} {
		m := manifest(t)
		spoil(&m)
		if _, err := m.Marshal(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("does not say %q: %v", want, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	text, err := manifest(f).Marshal()
	must(f, err)
	f.Add(text)
	f.Add([]byte(`{"format":1}`))
	f.Add([]byte(`{"format":2}`))
	f.Add([]byte(strings.Replace(string(text), `"memory/one"`, `"../one"`, 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := snapshot.Parse(data)
		if err != nil {
			return
		}
		text, err := m.Marshal()
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := snapshot.Parse(text)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		second, err := again.Marshal()
		must(t, err)
		if diff := cmp.Diff(string(text), string(second)); diff != "" {
			t.Fatalf("written twice (-first +second):\n%s", diff)
		}
		for _, file := range m.Files {
			if !filepath.IsLocal(file.Path) {
				t.Fatalf("file %q leads out", file.Path)
			}
		}
	})
}

// Each snapshot is in the tree once, below the nearest ancestor that is left.
func TestTree(t *testing.T) {
	at := func(name string, second int, ancestors ...string) snapshot.Manifest {
		return snapshot.Manifest{ID: name, Name: name, Taken: time.Unix(int64(second), 0), Ancestors: ancestors}
	}
	all := []snapshot.Manifest{
		at("late", 9, "gone", "root"), at("root", 1), at("leaf", 4, "mid", "root"), at("mid", 2, "root"), at("other", 3, "gone"),
	}
	var b strings.Builder
	must(t, snapshot.WriteTree(&b, snapshot.Tree(all), func(m snapshot.Manifest) string { return m.Name }))
	want := `root
├── mid
│   └── leaf
└── late
other
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	rapid.Check(t, func(t *rapid.T) {
		var all []snapshot.Manifest
		for i := range rapid.IntRange(0, 8).Draw(t, "snapshots") {
			m := at(string(rune('a'+i)), i)
			for range rapid.IntRange(0, 3).Draw(t, "ancestors") {
				if i > 0 {
					m.Ancestors = append(m.Ancestors, string(rune('a'+rapid.IntRange(0, i-1).Draw(t, "ancestor"))))
				}
			}
			all = append(all, m)
		}
		seen := map[string]int{}
		var walk func([]snapshot.Node)
		walk = func(nodes []snapshot.Node) {
			for _, n := range nodes {
				seen[n.ID]++
				walk(n.Children)
			}
		}
		walk(snapshot.Tree(all))
		for _, m := range all {
			if seen[m.ID] != 1 {
				t.Fatalf("%s is %d times in the tree", m.ID, seen[m.ID])
			}
		}
	})
}
