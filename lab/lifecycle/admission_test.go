package lifecycle

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const mib = 1 << 20

func TestShortOf(t *testing.T) {
	plan := Plan{Name: "new", MemoryBytes: 1000 * mib, Machines: make([]Machine, 2)}
	for name, c := range map[string]struct {
		free   int64
		others []promise
		why    string // empty: there is room
	}{
		"alone":       {1000 * mib, nil, ""},
		"too little":  {999 * mib, nil, "it needs 1000 MiB, 999 MiB are free: 1 MiB are missing"},
		"beside":      {1500 * mib, []promise{{"a", 800 * mib, 300 * mib}}, ""},
		"promised":    {1499 * mib, []promise{{"a", 800 * mib, 400 * mib}, {"b", 200 * mib, 100 * mib}}, "1499 MiB are free, 500 MiB of them promised to a, b: 1 MiB are missing"},
		"used beyond": {1000 * mib, []promise{{"a", 800 * mib, 900 * mib}}, ""},
	} {
		err := shortOf(plan, c.free, 4000*mib, c.others)
		if c.why == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		coded := (interface{ ExitCode() int })(nil)
		if err == nil || !strings.Contains(err.Error(), c.why) || !errors.Is(err, errShort) ||
			!errors.As(err, &coded) || coded.ExitCode() != codePrerequisite {
			t.Errorf("%s: %v, want %q", name, err, c.why)
		}
	}
}

// Nobody waits for memory that there is not, and keeps others waiting.
func TestShortForEver(t *testing.T) {
	plan := Plan{Name: "new", MemoryBytes: 1000 * mib, Machines: make([]Machine, 2)}
	err := shortOf(plan, 100*mib, 999*mib, nil)
	if err == nil || !errors.Is(err, errNever) || errors.Is(err, errShort) || strings.Contains(err.Error(), "--wait") ||
		!strings.Contains(err.Error(), "needs 1000 MiB, this machine has 999 MiB in all") {
		t.Errorf("%v", err)
	}
}

// TestPromisesAreKept: however scenarios are admitted and grow, what all of them
// may use together is there.
func TestPromisesAreKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(0, 100).Draw(t, "total")
		var raised []promise
		for range rapid.IntRange(1, 20).Draw(t, "raises") {
			free := total
			for i := range raised {
				raised[i].resident = rapid.Int64Range(raised[i].resident, raised[i].bytes).Draw(t, "grown")
				free -= raised[i].resident
			}
			need := rapid.Int64Range(0, 50).Draw(t, "need")
			if lacking(need, free, raised) <= 0 {
				raised = append(raised, promise{bytes: need})
			}
		}
		var sum int64
		for _, p := range raised {
			sum += p.bytes
		}
		if sum > total {
			t.Fatalf("%d promised of %d", sum, total)
		}
	})
}
