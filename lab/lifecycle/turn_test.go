package lifecycle_test

import (
	"context"
	"errors"
	"testing"

	"mesh/lab/lifecycle"
	"mesh/lab/machine"
)

// busy takes all turns of the fake's two cores.
func busy(t *testing.T, b *bed) (over func()) {
	t.Helper()
	var ends []func()
	for range 2 {
		end, err := b.Turn(t.Context(), lifecycle.Beginning{Accelerator: machine.TCG, Cold: true, What: "another"})
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// Power that is given back, and a reset, wait for their turn to boot behind what
// boots on the lab machine already, and nothing is done before.
func TestBootsWaitForTheirTurn(t *testing.T) {
	for what, c := range map[string]struct {
		before, do func(*lifecycle.Lab, context.Context, string, string) error
	}{
		"power on": {(*lifecycle.Lab).Cut, (*lifecycle.Lab).PowerOn},
		"reset":    {nil, (*lifecycle.Lab).Reset},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBed(t, t.TempDir())
			b.raise(t, "a")
			if c.before != nil {
				must(t, c.before(b.Lab, t.Context(), "a", "one"))
			}
			over := busy(t, b)
			still := b.Conditions()
			ctx, cancel := context.WithCancelCause(t.Context())
			enough := errors.New("enough")
			b.Narration.noted = func(line string) {
				if line == "waits for its turn, 2 before it: boot machine one" {
					cancel(enough)
				}
			}
			if err := c.do(b.Lab, ctx, "a", "one"); !errors.Is(err, enough) {
				t.Errorf("given up while it waits: %v", err)
			}
			if got := b.Conditions(); got != still {
				t.Errorf("it was done before its turn:\n%s\nwas\n%s", got, still)
			}
			over()
			must(t, c.do(b.Lab, t.Context(), "a", "one"))
			if s, err := b.Status(t.Context(), "a"); err != nil || s.Machines[0].State != "running" {
				t.Errorf("%+v, %v", s.Machines, err)
			}
		})
	}
}
