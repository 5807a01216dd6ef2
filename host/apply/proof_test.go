package apply_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

var proofFile = flag.String("proof", "", "print a table of what was tried at the end, and write it to this file as JSON")

// sparse is how far apart the moments are at which real processes are killed and
// real file systems cut off: each takes a tenth of a second, so all of them are
// for the proof. So are all moments of a second cut.
func sparse() int {
	if *proofFile != "" {
		return 1
	}
	return 23
}

// row is what one level of the proof came to.
type row struct {
	Level      string  `json:"level"`
	What       string  `json:"what"`
	Points     int     `json:"points"` // moments at which something was done to the host, each checked
	Violations int     `json:"violations"`
	Mutants    int     `json:"mutants,omitempty"` // programs with one mistake in them
	Caught     int     `json:"caught,omitempty"`
	Equivalent int     `json:"equivalent,omitempty"` // of them, for a reason that is written down
	Seconds    float64 `json:"seconds"`
}

// rate is the share of mutants that are caught, of those that can be.
func (r row) rate() string {
	if r.Mutants == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(r.Caught)/float64(r.Mutants-r.Equivalent))
}

var rows struct {
	sync.Mutex
	all []row
}

// tried keeps what a test came to; call it deferred, first.
func tried(t *testing.T, r *row) func() {
	began := time.Now()
	return func() {
		if t.Skipped() {
			return
		}
		if t.Failed() {
			r.Violations = max(1, r.Violations)
		}
		r.Seconds = float64(time.Since(began).Milliseconds()) / 1000
		rows.Lock()
		defer rows.Unlock()
		rows.all = append(rows.all, *r)
	}
}

func TestMain(m *testing.M) {
	if plan := os.Getenv(victimEnv); plan != "" {
		os.Exit(victim(plan))
	}
	flag.Parse()
	code := m.Run()
	if *proofFile != "" {
		if err := conclude(*proofFile); err != nil {
			fmt.Fprintln(os.Stderr, "proof:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// conclude prints the rows and writes them to a file.
func conclude(file string) error {
	slices.SortFunc(rows.all, func(a, b row) int { return strings.Compare(a.Level+a.What, b.Level+b.What) })
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "LEVEL\tWHAT\tPOINTS\tVIOLATIONS\tMUTANTS\tCAUGHT\tEQUIVALENT\tKILL RATE\tSECONDS")
	for _, r := range rows.all {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%.1f\n", r.Level, r.What, r.Points, r.Violations, r.Mutants, r.Caught, r.Equivalent, r.rate(), r.Seconds)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	b, err := json.MarshalIndent(map[string]any{"rows": rows.all}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}
