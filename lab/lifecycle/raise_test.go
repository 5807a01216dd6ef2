package lifecycle_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/lifecycle"
	"mesh/lab/lifecycle/lifecycletest"
	"mesh/lab/machine"
	"mesh/lab/scenario"
	"mesh/lab/world"
)

// portable takes a bed's own paths out of a text.
func (b *bed) portable(text string) string {
	text = strings.ReplaceAll(text, b.store, "/store")
	return strings.ReplaceAll(text, b.run, "/run")
}

func (b *bed) recordText(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(b.Directory(name), "record.json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestRaise(t *testing.T) {
	b := newBed(t, t.TempDir())
	r := b.raise(t, "a")
	if r.Phase != lifecycle.Raised || r.Accelerator != machine.TCG {
		t.Errorf("phase %s, accelerator %s", r.Phase, r.Accelerator)
	}
	want := strings.TrimSpace(`
daemon lab
domain mesh-a.one
domain mesh-a.two
link t61000000-1
link t61000000-2
mount ` + strings.ReplaceAll(b.store, "/", "|") + `|disks-61000000
namespace ml-61000000
namespace ml-61000000-1`)
	if got, _, _ := strings.Cut(b.Fake.String(), "\nprocess"); got != want {
		t.Errorf("what stands (-want +got):\n%s", cmp.Diff(want, got))
	}
	for path, want := range map[string]string{
		"/etc/mesh-plane/plane.yaml":                   "listen: :7443\n",
		"/usr/local/share/ca-certificates/world-1.crt": lifecycletest.Root,
		"/usr/local/share/ca-certificates/world-2.crt": lifecycletest.Root,
		"/etc/apt/sources.list": "deb [trusted=yes] http://packages.world.test/debian-13/ ./\n" +
			"deb [trusted=yes] http://packages.world.test/mesh/ ./\n",
	} {
		if got := b.File("mesh-a.one", path); got != want {
			t.Errorf("%s on one: %q, want %q", path, got, want)
		}
	}
	b.wantNoSecret(t)
}

// wantNoSecret searches everything that is kept of scenario a and was said.
func (b *bed) wantNoSecret(t *testing.T) {
	t.Helper()
	if strings.Contains(b.Narration.String(), secret) {
		// The step's own text has it in this test; values are what must not be said.
		for line := range strings.SplitSeq(b.Narration.String(), "\n") {
			if strings.Contains(line, secret) && !strings.Contains(line, "echo "+secret) {
				t.Errorf("narration tells a saved value: %s", line)
			}
		}
	}
	var r lifecycle.Record
	if err := json.Unmarshal([]byte(b.recordText(t, "a")), &r); err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Steps {
		if strings.Contains(s.Error, secret) {
			t.Errorf("record tells a saved value: %s", s.Error)
		}
	}
}

func TestRecordGolden(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.Hook = func(op string, after bool) error {
		if after && op == "exec on mesh-a.two: take" {
			return errors.New("no more")
		}
		return nil
	}
	_, err := b.Raise(t.Context(), b.plan(t, "a"), lifecycle.RaiseOptions{Files: files, Keep: true})
	if err == nil {
		t.Fatal("did not fail")
	}
	var r lifecycle.Record
	if err := json.Unmarshal([]byte(b.recordText(t, "a")), &r); err != nil {
		t.Fatal(err)
	}
	r.Process = world.Process{PID: 4711, Start: 42}
	r.Since = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for i := range r.Steps { // the fake clock is read by several steps at once
		r.Steps[i].Seconds = 1
	}
	for name, m := range r.Machines {
		m.ReadySeconds = 1
		m.Warm = strings.Repeat("0", len(m.Warm)) // changes with what is waited for before it is made
		r.Machines[name] = m
	}
	for i := range r.Plan.Machines { // made at random
		r.Plan.Machines[i].Layers = []string{"0123456789abcdef0123456789abcdef"}
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "record.json", b.portable(string(data)+"\n"))
}

func TestNothingMadeOnBadInput(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*bed, *lifecycle.Plan)
		code  int
		say   string
	}{
		{"no root", func(b *bed, _ *lifecycle.Plan) { b.NotRoot = true }, 4, "need root"},
		{"no memory", func(b *bed, _ *lifecycle.Plan) { b.MemoryBytes = 700 << 20 }, 4, "it needs 1152 MiB, this machine has 700 MiB in all"},
		{"no space", func(b *bed, _ *lifecycle.Plan) { b.SpaceBytes = 1 << 20 }, 4, "not enough disk space"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t, t.TempDir())
			plan := b.plan(t, "a")
			c.spoil(b, &plan)
			_, err := b.Raise(t.Context(), plan, lifecycle.RaiseOptions{Files: files})
			if exitCode(err) != c.code || !strings.Contains(err.Error(), c.say) {
				t.Errorf("exit code %d, want %d: %v", exitCode(err), c.code, err)
			}
			b.wantNothingLeft(t)
		})
	}
}

// Memory and space are both told.
func TestRoomReportsAll(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.MemoryBytes, b.SpaceBytes = 1, 1
	_, err := b.Raise(t.Context(), b.plan(t, "a"), lifecycle.RaiseOptions{Files: files})
	if err == nil || !strings.Contains(err.Error(), "memory") || !strings.Contains(err.Error(), "disk space") {
		t.Errorf("not both: %v", err)
	}
}

func TestCaseL10RequireKVM(t *testing.T) {
	b := newBed(t, t.TempDir())
	plan := b.plan(t, "a")
	plan.Accelerator = "kvm"
	_, err := b.Raise(t.Context(), plan, lifecycle.RaiseOptions{Files: files})
	if exitCode(err) != 4 || !strings.Contains(err.Error(), "KVM is required and does not work here") {
		t.Errorf("exit code %d: %v", exitCode(err), err)
	}
	b.wantNothingLeft(t)

	b.KVM = true
	r, err := b.Raise(t.Context(), plan, lifecycle.RaiseOptions{Files: files})
	if err != nil || r.Accelerator != machine.KVM || r.Machines["one"].Accelerator != machine.KVM {
		t.Errorf("with KVM: %v, %+v", err, r.Machines)
	}
}

// What the lab machine lacks is told as such, and --keep keeps nothing of it.
func TestMissingDaemon(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.Hook = func(op string, _ bool) error {
		if op == "start daemon" {
			return missing{errors.New("libvirtd is not installed")}
		}
		return nil
	}
	_, err := b.Raise(t.Context(), b.plan(t, "a"), lifecycle.RaiseOptions{Files: files, Keep: true})
	if exitCode(err) != 4 || !strings.Contains(err.Error(), "libvirtd is not installed") {
		t.Errorf("exit code %d: %v", exitCode(err), err)
	}
	b.wantNothingLeft(t)
}

type missing struct{ error }

func (missing) ExitCode() int { return 4 }

func TestTwiceUnderOneName(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	before := b.leftovers(t)
	_, err := b.Raise(t.Context(), b.plan(t, "a"), lifecycle.RaiseOptions{Files: files})
	if exitCode(err) != 2 || !strings.Contains(err.Error(), "`lab destroy a` first, or raise another beside it with --as NAME") {
		t.Errorf("exit code %d: %v", exitCode(err), err)
	}
	if after := b.leftovers(t); after != before {
		t.Errorf("changed:\n%s", cmp.Diff(before, after))
	}
}

func TestCaseL1SideBySide(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	one := b.Fake.String()
	b.raise(t, "b")
	if _, err := b.Destroy(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if got := b.Fake.String(); got != one {
		t.Errorf("destroying b changed a:\n%s", cmp.Diff(one, got))
	}
	if _, err := b.Destroy(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	b.wantNothingLeft(t)
}

// A second raise of the same name while one is at it is refused, and disturbs nothing.
func TestBusy(t *testing.T) {
	b := newBed(t, t.TempDir())
	var inner error
	b.Hook = func(op string, after bool) error {
		if op == "resume mesh-a.one" && !after {
			_, inner = b.lab().Destroy(t.Context(), "a")
		}
		return nil
	}
	b.raise(t, "a")
	if exitCode(inner) != 2 || !strings.Contains(inner.Error(), "scenario a is busy") {
		t.Errorf("exit code %d: %v", exitCode(inner), inner)
	}
}

// A machine that dies ends the raise at once with all that is known of its end.
func TestCaseL9MachineDies(t *testing.T) {
	b := newBed(t, t.TempDir())
	var died time.Time
	plan := b.hanging(t, func(lifecycle.Plan) {
		died = time.Now()
		if err := b.KillMachine("mesh-a.two", "qemu: out of ideas\n"); err != nil {
			t.Error(err)
		}
	})
	_, err := b.Raise(soon(t), plan, lifecycle.RaiseOptions{Files: files})
	if took := time.Since(died); took > time.Second {
		t.Errorf("noticed after %s", took)
	}
	want := []string{
		"raise a failed: machine two died", "its process ended: failed", "qemu: out of ideas",
		"mesh-a.two runs on", "qemu-fake -name mesh-a.two", "`lab raise small.yaml --keep --as a --packages /dist`",
	}
	for _, part := range want {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("does not say %q:\n%v", part, err)
		}
	}
	if exitCode(err) != 1 {
		t.Errorf("exit code %d", exitCode(err))
	}
	b.wantNothingLeft(t)
}

func TestCaseL9Panic(t *testing.T) {
	b := newBed(t, t.TempDir())
	plan := b.hanging(t, func(plan lifecycle.Plan) {
		log, err := os.OpenFile(plan.Machines[0].Spec.ConsoleLog, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
			return
		}
		_, err = log.WriteString("[ 1.0] Kernel panic - not syncing: out of ideas\r\n")
		if err := errors.Join(err, log.Close()); err != nil {
			t.Error(err)
		}
	})
	_, err := b.Raise(soon(t), plan, lifecycle.RaiseOptions{Files: files})
	if err == nil || !strings.Contains(err.Error(), "machine one failed by its own word") || !strings.Contains(err.Error(), "not syncing: out of ideas") {
		t.Errorf("%v", err)
	}
	b.wantNothingLeft(t)
}

func TestWorldDies(t *testing.T) {
	b := newBed(t, t.TempDir())
	plan := b.hanging(t, func(lifecycle.Plan) { b.KillWorlds() })
	_, err := b.Raise(soon(t), plan, lifecycle.RaiseOptions{Files: files})
	if err == nil || !strings.Contains(err.Error(), "the world's process died") || !strings.Contains(err.Error(), "the world is up") {
		t.Errorf("%v", err)
	}
	b.wantNothingLeft(t)
}

// soon ends long before the test run does.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// hanging plans a raise whose only placement never ends, and has wrong happen when it begins.
func (b *bed) hanging(t *testing.T, wrong func(lifecycle.Plan)) lifecycle.Plan {
	t.Helper()
	s := small()
	s.Place = []scenario.Step{{On: "one", Run: "hang", Line: 20}}
	plan, err := lifecycle.NewPlan(s, smallUnderlay("00000001"), lifecycle.Options{
		Name: "a", Source: "small.yaml", Run: "00000001", Images: builtImages(), Packages: "/dist",
		Directory: b.Directory("a"), Layers: b.Layers(), Runtime: b.RuntimeOf("00000001"),
	})
	if err != nil {
		t.Fatal(err)
	}
	b.Narration.on = func(what string) {
		if what == "on one: hang" {
			wrong(plan)
		}
	}
	return plan
}

// A value that a failing command repeats is taken out of what is told.
func TestSavedValuesAreNotTold(t *testing.T) {
	b := newBed(t, t.TempDir())
	s := small()
	s.Place[3].Run = "fail"
	plan, err := lifecycle.NewPlan(s, smallUnderlay("00000001"), lifecycle.Options{
		Name: "a", Source: "small.yaml", Run: "00000001", Images: builtImages(),
		Directory: b.Directory("a"), Layers: b.Layers(), Runtime: b.RuntimeOf("00000001"),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Raise(t.Context(), plan, lifecycle.RaiseOptions{Files: files, Keep: true})
	if err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "(value of token)") {
		t.Errorf("%v", err)
	}
	if !strings.Contains(err.Error(), "small.yaml:28, machine two") {
		t.Errorf("does not say where: %v", err)
	}
	b.wantNoSecret(t)
}

func TestKeptScenarioFromAnotherDeclaration(t *testing.T) {
	b := newBed(t, t.TempDir())
	plan := b.plan(t, "a")
	ctx, cancel := context.WithCancel(t.Context())
	b.Hook = func(op string, after bool) error {
		if strings.HasPrefix(op, "start world") {
			cancel()
		}
		return nil
	}
	_, err := b.Raise(ctx, plan, lifecycle.RaiseOptions{Files: files, Keep: true})
	if exitCode(err) != 130 {
		t.Fatalf("exit code %d: %v", exitCode(err), err)
	}
	plan.Machines[0].Spec.MemoryBytes++
	_, err = b.Raise(t.Context(), plan, lifecycle.RaiseOptions{Files: files})
	if exitCode(err) != 2 || !strings.Contains(err.Error(), "from another declaration") {
		t.Errorf("exit code %d: %v", exitCode(err), err)
	}
}
