package lifecycle

import (
	"testing"
	"time"

	"mesh/lab/machine"
)

// What a machine does takes longer under emulation, what the lab machine does not.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		kind Kind
		a    machine.Accelerator
		want time.Duration
	}{
		{StepBoot, machine.KVM, 40 * time.Second},
		{StepBoot, machine.TCG, 400 * time.Second},
		{StepPlace, machine.TCG, 30 * time.Minute},
		{StepWorld, machine.TCG, 2 * time.Minute},
	} {
		if got := limit(c.kind, c.a); got != c.want {
			t.Errorf("limit of %s under %s: %s, want %s", c.kind, c.a, got, c.want)
		}
	}
}
