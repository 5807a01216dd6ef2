package lifecycle_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"mesh/lab/images"
	"mesh/lab/lifecycle"
	"mesh/lab/machine"
)

// starts is how a record's machines were started.
func starts(r lifecycle.Record) string {
	return r.Machines["one"].Start + " " + r.Machines["two"].Start
}

// made counts how often a warm image was made.
func (b *bed) made() int {
	return strings.Count(b.Narration.String(), "boot once, for all raises to come")
}

func TestWarmImagesAreMadeOnce(t *testing.T) {
	b := newBed(t, t.TempDir())
	for _, name := range []string{"a", "b"} {
		r := b.raise(t, name)
		if got := starts(r); got != "warm warm" {
			t.Errorf("%s: %s", name, got)
		}
		if got := b.made(); got != 2 { // of one size each
			t.Errorf("%s: %d warm images were made", name, got)
		}
		for _, m := range r.Plan.Machines {
			if len(m.Layers) != 1 || r.Machines[m.Name].Warm == "" {
				t.Errorf("machine %s of %s stands on %v", m.Name, name, m.Layers)
			}
		}
	}
}

// Of raises that need the same warm image at once, one makes it.
func TestWarmImagesAreMadeByOne(t *testing.T) {
	b := newBed(t, t.TempDir())
	var raising sync.WaitGroup
	for i := range 4 {
		raising.Go(func() {
			name := fmt.Sprintf("s%d", i)
			if _, err := b.lab().Raise(t.Context(), b.plan(t, name), lifecycle.RaiseOptions{Files: files}); err != nil {
				t.Error(err)
			}
		})
	}
	raising.Wait()
	if got := b.made(); got != 2 {
		t.Errorf("%d warm images were made", got)
	}
}

func TestWarmUp(t *testing.T) {
	b := newBed(t, t.TempDir())
	image := builtImages()["debian-13"]
	w, err := b.WarmUp(t.Context(), image, lifecycle.Size{MemoryBytes: 512 << 20, CPUs: 1})
	if err != nil {
		t.Fatal(err)
	}
	b.wantNothingLeft(t)
	r := b.raise(t, "a")
	if got := r.Machines["one"].Warm; got != w.Digest || b.made() != 2 {
		t.Errorf("one was cloned from %s, %s was made ahead; %d made", got, w.Digest, b.made())
	}
}

// Case L6: clones of one image have all of their own that tells machines apart,
// and nothing of their source's.
func TestCaseL6ClonesAreThemselves(t *testing.T) {
	b := newBed(t, t.TempDir())
	var keys []string
	for _, name := range []string{"a", "b"} {
		r := b.raise(t, name)
		for _, m := range r.Plan.Machines {
			if got := b.File(m.Spec.Name, "/etc/ssh/ssh_host_ed25519_key.pub"); got == "" || strings.Contains(strings.Join(keys, ""), got) {
				t.Errorf("machine %s of %s has the host key %q of another, or none", m.Name, name, got)
			} else {
				keys = append(keys, got)
			}
			// The raise itself has compared names, ids and addresses; what it needed is
			// what a clone does not have by itself.
			if m.MachineID == "" || !strings.Contains(m.Spec.Cmdline, "systemd.machine_id="+m.MachineID) {
				t.Errorf("machine %s of %s forgets its id when it boots", m.Name, name)
			}
		}
	}
}

// A clone that is not told who it is is not ready.
func TestCloneIsNotReadyAsItsSource(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.Hook = func(op string, after bool) error {
		if op == "settle mesh-a.one" && !after {
			return errors.New("it does not listen")
		}
		return nil
	}
	_, err := b.Raise(t.Context(), b.plan(t, "a"), lifecycle.RaiseOptions{Files: files})
	if exitCode(err) != 1 || !strings.Contains(err.Error(), "it does not listen") {
		t.Errorf("exit code %d: %v", exitCode(err), err)
	}
	b.Hook = nil
	b.wantNothingLeft(t)
}

// Where a machine cannot be cloned, that is said in a line, and it boots.
func TestColdWhereWarmCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		op, want, say string
	}{
		"no image":       {"save mesh.warm-", "cold cold", "no warm start of debian-13, 512 MiB, 1 CPU, so these machines boot: "},
		"no clone":       {"restore mesh-a.one", "cold warm", "no warm start of machine one, so it boots: "},
		"a half clone":   {"restore mesh-a.two!", "warm cold", "no warm start of machine two, so it boots: "},
		"no ready point": {"exec on mesh.warm-", "cold cold", "come to the ready point"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, t.TempDir())
			b.Hook = func(op string, after bool) error {
				wanted, late := strings.CutSuffix(c.op, "!")
				if strings.HasPrefix(op, wanted) && after == late {
					return errors.New("not here")
				}
				return nil
			}
			r := b.raise(t, "a")
			if got := starts(r); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			said := b.Narration.String()
			if !strings.Contains(said, c.say) || !strings.Contains(said, "not here") {
				t.Errorf("does not say %q and why:\n%s", c.say, said)
			}
			b.Hook = nil
			if _, err := b.Destroy(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			b.wantNothingLeft(t)
		})
	}
}

func TestColdOnRequest(t *testing.T) {
	b := newBed(t, t.TempDir())
	o := options("a")
	o.Cold, o.Directory, o.Layers, o.Runtime = true, b.Directory("a"), b.Layers(), b.RuntimeOf("0badcafe")
	p, err := lifecycle.NewPlan(small(), smallUnderlay("0badcafe"), o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.Raise(t.Context(), p, lifecycle.RaiseOptions{Files: files})
	if err != nil || starts(r) != "cold cold" || b.made() != 0 {
		t.Errorf("%v, %s, %d warm images made", err, starts(r), b.made())
	}
}

// A machine with a display boots, and that is said.
func TestColdWithADisplay(t *testing.T) {
	b := newBed(t, t.TempDir())
	s := small()
	s.Machines[0].Display = true
	o := options("a")
	o.Directory, o.Layers, o.Runtime = b.Directory("a"), b.Layers(), b.RuntimeOf("0badcafe")
	p, err := lifecycle.NewPlan(s, smallUnderlay("0badcafe"), o)
	must(t, err)
	r, err := b.Raise(t.Context(), p, lifecycle.RaiseOptions{Files: files})
	if err != nil || starts(r) != "cold warm" || !strings.Contains(b.Narration.String(), "no warm start of machine one, so it boots: warm images have no display") {
		t.Errorf("%v, %s:\n%s", err, starts(r), b.Narration)
	}
}

// After QEMU has changed, another image is made; the old one is not tried.
func TestAnotherPlatformAnotherImage(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	b.Emulator = "qemu 99"
	if r := b.raise(t, "b"); starts(r) != "warm warm" || b.made() != 4 {
		t.Errorf("%s, %d made", starts(r), b.made())
	}
}

// A warm image that cannot be restored any more is no hindrance.
func TestDamagedWarmImage(t *testing.T) {
	b := newBed(t, t.TempDir())
	w, err := b.WarmUp(t.Context(), builtImages()["debian-13"], lifecycle.Size{MemoryBytes: 512 << 20, CPUs: 1})
	must(t, err)
	must(t, os.WriteFile(w.Memory, []byte("half"), 0o644))
	if r := b.raise(t, "a"); starts(r) != "cold warm" {
		t.Error(starts(r))
	}
	if said := b.Narration.String(); !strings.Contains(said, "`lab image remove debian-13 --warm` has it made anew") {
		t.Errorf("does not say what to do:\n%s", said)
	}
}

// Machines outlive the warm image that they were cloned from; its layer goes
// with the last of them.
func TestRemoveWarmWhileInUse(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "a")
	all, err := b.WarmImages()
	must(t, err)
	for _, w := range all {
		must(t, b.RemoveWarm(t.Context(), w))
		if _, err := os.Stat(b.Layer(w.Layer)); err != nil {
			t.Errorf("its layer is gone under a machine: %v", err)
		}
	}
	if all, err := b.WarmImages(); err != nil || len(all) != 0 {
		t.Errorf("WarmImages() = %v, %v", all, err)
	}
	must(t, b.Cut(t.Context(), "a", "one"))
	must(t, b.PowerOn(t.Context(), "a", "one"))
	if _, err := b.Destroy(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	b.wantNothingLeft(t)
}

// A maker that is gone is noticed by every command, and its leavings are removed
// by the next one that makes or reaps; one that is at it is left alone.
func TestUnfinishedWarmImage(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(childAt, "save mesh.warm-")
	if killed, _ := child(t, dir, 0); !killed {
		t.Fatal("was not killed")
	}
	b := newBed(t, dir)
	abandoned, err := b.Abandoned()
	if err != nil || len(abandoned) < 2 || abandoned[1].Kind != lifecycle.KindWarm {
		t.Fatalf("Abandoned() = %v, %v", abandoned, err)
	}
	image := builtImages()["debian-13"]
	for _, size := range []lifecycle.Size{{MemoryBytes: 512 << 20, CPUs: 1}} {
		if _, err := b.WarmUp(t.Context(), image, size); err != nil {
			t.Error(err)
		}
	}
	if _, err := b.Reap(t.Context()); err != nil {
		t.Error(err)
	}
	b.wantNothingLeft(t)
}

func TestMakingIsNotAbandoned(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.Hook = func(op string, after bool) error {
		if strings.HasPrefix(op, "save mesh.warm-") && !after {
			if all, err := b.lab().Abandoned(); err != nil || len(all) != 0 {
				t.Errorf("Abandoned() = %v, %v", all, err)
			}
		}
		return nil
	}
	b.raise(t, "a")
}

// Keys let in who they are for, and are told nowhere.
func TestSSHKeys(t *testing.T) {
	b := newBed(t, t.TempDir())
	r := b.raise(t, "a")
	private, err := os.ReadFile(r.Plan.SSH.Key)
	must(t, err)
	signer, err := ssh.ParsePrivateKey(private)
	must(t, err)
	if got := b.File("mesh-a.one", "/root/.ssh/authorized_keys"); got != string(ssh.MarshalAuthorizedKey(signer.PublicKey())) {
		t.Errorf("one lets in %q", got)
	}
	host, err := ssh.ParsePrivateKey([]byte(b.File("mesh-a.one", "/etc/ssh/ssh_host_ed25519_key")))
	must(t, err)
	known, err := knownhosts.New(r.Plan.SSH.KnownHosts)
	must(t, err)
	if err := known("one:22", address("203.0.113.10:22"), host.PublicKey()); err != nil {
		t.Errorf("one is not known: %v", err)
	}
	if err := known("two:22", address("203.0.113.10:22"), host.PublicKey()); err == nil {
		t.Error("one passes for two")
	}
	entries, err := os.ReadDir(filepath.Dir(r.Plan.SSH.Key))
	must(t, err)
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
	}
	for name, text := range map[string]string{"record": b.recordText(t, "a"), "narration": b.Narration.String()} {
		if strings.Contains(text, "PRIVATE KEY") {
			t.Errorf("the %s tells a private key", name)
		}
	}
}

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// What an image holds is part of what its warm image is found by.
func TestWarmImageIsOfTheImagesContent(t *testing.T) {
	b := newBed(t, t.TempDir())
	size := lifecycle.Size{MemoryBytes: 512 << 20, CPUs: 1}
	seen := map[string]bool{}
	for _, content := range []string{"", "aa", "bb"} {
		w, err := b.WarmUp(t.Context(), images.Image{Name: "debian-13", Disk: "/images/x", Content: content, Kernel: "/k"}, size)
		must(t, err)
		seen[w.Digest] = true
	}
	if len(seen) != 3 {
		t.Errorf("%d images of three contents", len(seen))
	}
}

// Steps that wait for nothing of each other run side by side: the world starts
// while machines are restored.
func TestStepsRunSideBySide(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.raise(t, "warmed")
	world, clone := make(chan struct{}), make(chan struct{})
	meet := func(mine, other chan struct{}) error {
		close(mine)
		select {
		case <-other:
			return nil
		case <-time.After(10 * time.Second):
			return errors.New("nobody came")
		}
	}
	b.Narration.on = func(what string) {
		var err error
		switch what {
		case "the world: segments, routers, services":
			err = meet(world, clone)
		case "one stands, paused":
			err = meet(clone, world)
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	b.raise(t, "a")
}

func TestPlatformOfRecord(t *testing.T) {
	b := newBed(t, t.TempDir())
	b.KVM = true
	if r := b.raise(t, "a"); r.Machines["one"].Accelerator != machine.KVM || starts(r) != "warm warm" {
		t.Errorf("%+v", r.Machines)
	}
	all, err := b.WarmImages()
	if err != nil || len(all) != 2 || all[0].Of.Platform.Accelerator != machine.KVM {
		t.Errorf("%+v, %v", all, err)
	}
}
