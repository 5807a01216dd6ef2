package lifecycle

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"mesh/lab/images"
	"mesh/lab/machine"
)

// What a machine does takes longer under emulation, and longer where a boot was
// seen to, but no limit is below that of where none was; what the lab machine
// does takes as long everywhere.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		kind   Kind
		a      machine.Accelerator
		booted time.Duration
		want   time.Duration
	}{
		{StepBoot, machine.KVM, 0, 40 * time.Second},
		{StepBoot, machine.KVM, 6 * time.Second, time.Minute},
		{StepBoot, machine.TCG, 0, 400 * time.Second},
		{StepBoot, machine.TCG, time.Second, 400 * time.Second},
		{StepBoot, machine.TCG, 40 * time.Second, 400 * time.Second},
		{StepBoot, machine.TCG, 90 * time.Second, 900 * time.Second},
		{StepBoot, machine.TCG, time.Hour, 1600 * time.Second},
		{StepBoot, machine.TCG, -time.Hour, 400 * time.Second},
		{StepPlace, machine.TCG, 0, 30 * time.Minute},
		{StepPlace, machine.TCG, time.Minute, 45 * time.Minute},
		{StepWarm, machine.TCG, time.Minute, 45 * time.Minute},
		{StepWorld, machine.TCG, time.Hour, 2 * time.Minute},
	} {
		if got := limit(c.kind, c.a, c.booted); got != c.want {
			t.Errorf("limit of %s under %s, where a boot took %s: %s, want %s", c.kind, c.a, c.booted, got, c.want)
		}
	}
}

// The longest boot under the accelerator counts, of those that were measured.
func TestBooted(t *testing.T) {
	l := New(Config{Store: t.TempDir()})
	if got := l.bootLimit(machine.TCG); got != 400*time.Second {
		t.Errorf("nothing measured: %s", got)
	}
	for seconds, a := range map[float64]machine.Accelerator{60: machine.TCG, 80: machine.TCG, 8: machine.KVM} {
		of := images.WarmOf{Image: "one", CPUs: int(seconds), Platform: machine.Platform{Accelerator: a}}
		m, err := l.warmStore().Begin(of.Digest(), "layer")
		if err != nil {
			t.Fatal(err)
		}
		disk := filepath.Join(t.TempDir(), "disk")
		for _, file := range []string{m.Memory, disk} {
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := m.Finish(of, disk, seconds, time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
	}
	for a, want := range map[machine.Accelerator]time.Duration{machine.TCG: 800 * time.Second, machine.KVM: 80 * time.Second} {
		if got := l.bootLimit(a); got != want {
			t.Errorf("boot under %s: %s, want %s", a, got, want)
		}
	}
}
