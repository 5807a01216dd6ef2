package lifecycle_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/lifecycle"
)

// Whatever is gone already, destroying ends well and leaves nothing; again, too.
func TestCaseL3Destroy(t *testing.T) {
	for name, spoil := range map[string]func(*testing.T, *bed){
		"whole":         func(*testing.T, *bed) {},
		"a QEMU killed": func(t *testing.T, b *bed) { must(t, b.KillMachine("mesh-a.one", "")) },
		"both gone": func(t *testing.T, b *bed) {
			must(t, b.KillMachine("mesh-a.one", ""))
			must(t, b.KillMachine("mesh-a.two", ""))
		},
		"the world killed":      func(_ *testing.T, b *bed) { b.KillWorlds() },
		"daemon gone":           func(t *testing.T, b *bed) { must(t, os.Remove(filepath.Join(b.Fake.Dir, "daemon=lab"))) },
		"runtime directory":     func(t *testing.T, b *bed) { must(t, os.RemoveAll(b.run)) },
		"a disk gone":           func(t *testing.T, b *bed) { must(t, os.RemoveAll(b.Layers())) },
		"the record never came": func(t *testing.T, b *bed) { emptyScenario(t, b) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, t.TempDir())
			b.raise(t, "a")
			spoil(t, b)
			if found, err := b.Destroy(t.Context(), "a"); err != nil || !found {
				t.Fatalf("Destroy() = %v, %v", found, err)
			}
			b.wantNothingLeft(t)
			if found, err := b.Destroy(t.Context(), "a"); err != nil || found {
				t.Errorf("again: Destroy() = %v, %v", found, err)
			}
		})
	}
}

// emptyScenario leaves what a crash between making the directory and the first
// record leaves.
func emptyScenario(t *testing.T, b *bed) {
	t.Helper()
	if _, err := b.Destroy(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	must(t, os.MkdirAll(b.Directory("a"), 0o755))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A domain of the same name that another run made is not ours to destroy.
func TestDestroyLeavesWhatNoRecordNames(t *testing.T) {
	dir := t.TempDir()
	b := newBed(t, dir)
	b.raise(t, "a")
	other := *b
	other.store, other.run = filepath.Join(dir, "store2"), filepath.Join(dir, "run2")
	other.Lab = other.lab()
	plan, err := lifecycle.NewPlan(small(), smallUnderlay("ffffffff"), lifecycle.Options{
		Name: "a", Source: "small.yaml", Run: "ffffffff", Images: builtImages(),
		Directory: other.Directory("a"), Layers: other.Layers(), Runtime: other.RuntimeOf("ffffffff"),
	})
	must(t, err)
	before := b.Fake.String()
	if _, err := other.Raise(t.Context(), plan, lifecycle.RaiseOptions{Files: files}); err == nil {
		t.Fatal("raised over another's domain")
	}
	if after := b.Fake.String(); !strings.Contains(after, "domain mesh-a.one") || !strings.Contains(after, "domain mesh-a.two") {
		t.Errorf("destroyed another's:\n%s", cmp.Diff(before, after))
	}
}

// What cannot be removed is still known afterwards.
func TestDestroyThatFailsCanBeRepeated(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	b.Hook = func(op string, _ bool) error {
		if strings.HasPrefix(op, "remove world") {
			return errors.New("device is busy")
		}
		return nil
	}
	_, err := b.Destroy(t.Context(), "a")
	if exitCode(err) != 1 || !strings.Contains(err.Error(), "device is busy") {
		t.Errorf("exit code %d: %v", exitCode(err), err)
	}
	b.Hook = nil
	if _, err := b.Destroy(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	b.wantNothingLeft(t)
}

// A damaged record is an error with a way out, never ignored.
func TestDamagedRecord(t *testing.T) {
	for name, text := range map[string]string{"cut short": `{"format": 1, "pha`, "from the future": `{"format": 99}`,
		"of another place": `{"format": 1, "plan": {"name": "a", "directory": "/elsewhere/a"}}`} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, t.TempDir())
			b.raise(t, "a")
			must(t, os.WriteFile(filepath.Join(b.Directory("a"), "record.json"), []byte(text), 0o644))
			before := b.leftovers(t)
			_, err := b.Destroy(t.Context(), "a")
			if exitCode(err) != 1 || !strings.Contains(err.Error(), "run record cannot be read") {
				t.Errorf("exit code %d: %v", exitCode(err), err)
			}
			if after := b.leftovers(t); after != before {
				t.Errorf("changed:\n%s", cmp.Diff(before, after))
			}
			list, err := b.List()
			if err != nil || len(list) != 1 || list[0].Problem == "" {
				t.Errorf("List() = %+v, %v", list, err)
			}
		})
	}
}

func FuzzRecord(f *testing.F) {
	data, err := os.ReadFile(filepath.Join("testdata", "record.json"))
	if err != nil {
		f.Fatal(err)
	}
	// The corpus says /store; each try has a store of its own.
	f.Add(data)
	f.Add([]byte(`{"format":1}`))
	f.Add([]byte(`{"format":1,"steps":[{"id":"x"}],"plan":{"name":"a","directory":"/store/scenarios/a","steps":[{"id":"x","kind":"machine"},{"id":"y","kind":"machine"}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		b := newBed(t, dir)
		must(t, os.MkdirAll(b.Directory("a"), 0o755))
		data = bytes.ReplaceAll(data, []byte("/store/"), []byte(b.store+"/"))
		must(t, os.WriteFile(filepath.Join(b.Directory("a"), "record.json"), data, 0o644))
		_, _ = b.List()
		_, _ = b.Abandoned()
		_, _ = b.Status(t.Context(), "a")
	})
}

// Reading changes nothing, in any phase.
func TestCaseL2ReadingChangesNothing(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	b.KillWorlds()
	b.Hook = func(op string, _ bool) error {
		t.Errorf("reading did: %s", op)
		return nil
	}
	before := b.recordText(t, "a")
	if _, err := b.Status(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if _, err := b.List(); err != nil {
		t.Error(err)
	}
	abandoned, err := b.Abandoned()
	if err != nil || len(abandoned) != 1 || !strings.Contains(abandoned[0].Why, "the process of its world") {
		t.Errorf("Abandoned() = %v, %v", abandoned, err)
	}
	if after := b.recordText(t, "a"); after != before {
		t.Error("the record changed")
	}
}

func TestStatusGolden(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	must(t, b.Cut(t.Context(), "a", "two"))
	s, err := b.Status(t.Context(), "a")
	must(t, err)
	for i := range s.Steps { // the fake clock is read by two boots at once
		s.Steps[i].Seconds = 1
	}
	for i := range s.Machines {
		s.Machines[i].ReadySeconds = 1
	}
	s.Since = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	s.World.PID = 4711
	data, err := json.MarshalIndent(s, "", "  ")
	must(t, err)
	golden(t, "status.json", b.portable(string(data)+"\n"))
}

func TestPower(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	before := b.Fake.String()
	state := func() string {
		s, err := b.Status(t.Context(), "a")
		must(t, err)
		return s.Machines[0].State
	}
	for range 2 { // cutting twice is cutting once
		must(t, b.Cut(t.Context(), "a", "one"))
		if got := state(); got != "off" {
			t.Errorf("after the cut: %s", got)
		}
	}
	if strings.Contains(b.Fake.String(), "domain mesh-a.one") {
		t.Error("the machine still runs")
	}
	for range 2 {
		must(t, b.PowerOn(t.Context(), "a", "one"))
		if got := state(); got != "running" {
			t.Errorf("after power on: %s", got)
		}
	}
	if after := b.Fake.String(); after != before {
		t.Errorf("not as before:\n%s", cmp.Diff(before, after))
	}
	if got := b.File("mesh-a.one", "/etc/mesh-plane/plane.yaml"); got == "" {
		t.Error("its disk was lost")
	}
	if err := b.Cut(t.Context(), "a", "three"); exitCode(err) != 2 || !strings.Contains(err.Error(), "its machines are one, two") {
		t.Errorf("a machine that is none: %v", err)
	}
	if err := b.Cut(t.Context(), "b", "one"); !errors.Is(err, lifecycle.ErrAbsent) || exitCode(err) != 2 {
		t.Errorf("a scenario that is none: %v", err)
	}
}

// A machine that dies while it is powered on is told at once, and can be powered on again.
func TestPowerOnDies(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	must(t, b.Cut(t.Context(), "a", "one"))
	b.Hook = func(op string, after bool) error {
		if op == "attach t61000000-1" && after {
			go func() { _ = b.KillMachine("mesh-a.one", "no more") }()
		}
		if strings.HasPrefix(op, "settle ") {
			return errors.New("it is dead")
		}
		return nil
	}
	if err := b.PowerOn(t.Context(), "a", "one"); err == nil {
		t.Error("did not fail")
	}
	b.Hook = nil
	must(t, b.PowerOn(t.Context(), "a", "one"))
}

// A machine whose creator was killed may still be starting, and cannot be ended yet.
func TestDestroyWaitsForAMachineThatStarts(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	tries := 0
	b.Hook = func(op string, after bool) error {
		if op == "destroy mesh-a.one" && !after {
			if tries++; tries < 3 {
				return errors.New("it is starting")
			}
		}
		return nil
	}
	if _, err := b.Destroy(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	b.wantNothingLeft(t)
}

// Who is at a scenario that is raised is not whoever raised it.
func TestBusyNamesNobodyWhoIsGone(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	h, err := b.Hold("a")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	if _, err := b.Destroy(t.Context(), "a"); exitCode(err) != 2 || !strings.Contains(err.Error(), "another lab command changes it") {
		t.Errorf("got %v", err)
	}
}
