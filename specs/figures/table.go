// Package figures measures what people wait for, and writes it down as Markdown
// and JSON: `make bench-lab`, `make bench-host`. Nothing here passes or fails by a
// time; machines are noisy, so it gives medians and, where a peer ran beside it,
// ratios.
package figures

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Series is what one thing took, run after run.
type Series []time.Duration

// Median is the middle of s; of an even number of runs the mean of the middle
// two. Zero for none.
func (s Series) Median() time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// Spread is the least and the most of s. Zero for none.
func (s Series) Spread() (least, most time.Duration) {
	if len(s) == 0 {
		return 0, 0
	}
	return slices.Min(s), slices.Max(s)
}

// Row is one measured thing in a table.
type Row struct {
	What     string `json:"what"`
	Machines int    `json:"machines"`
	Series   Series `json:"-"`
	// As the JSON has them, in seconds.
	MedianSeconds float64   `json:"median_seconds"`
	Seconds       []float64 `json:"seconds"`
	// Failed counts runs that came to no result; each has a line in Problems.
	Failed   int      `json:"failed"`
	Problems []string `json:"problems,omitempty"`
}

// settle fills what is derived from Series.
func (r *Row) settle() {
	r.MedianSeconds = seconds(r.Series.Median())
	r.Seconds = []float64{}
	for _, d := range r.Series {
		r.Seconds = append(r.Seconds, seconds(d))
	}
}

// Table is one kind of thing for several numbers of machines.
type Table struct{ rows []*Row }

// Row gives the row of a thing, making it at its first use.
func (t *Table) Row(what string, machines int) *Row {
	for _, r := range t.rows {
		if r.What == what && r.Machines == machines {
			return r
		}
	}
	r := &Row{What: what, Machines: machines}
	t.rows = append(t.rows, r)
	return r
}

// Add notes one run.
func (t *Table) Add(what string, machines int, took time.Duration) {
	r := t.Row(what, machines)
	r.Series = append(r.Series, took)
}

// Fail notes a run that came to nothing.
func (t *Table) Fail(what string, machines int, err error) {
	r := t.Row(what, machines)
	r.Failed++
	r.Problems = append(r.Problems, err.Error())
}

// Rows are all rows in the order of their first use, with what is derived.
func (t *Table) Rows() []Row {
	var rows []Row
	for _, r := range t.rows {
		r.settle()
		rows = append(rows, *r)
	}
	return rows
}

// Ratio is how many times longer one thing took than another, by medians; false
// where either has no run.
func (t *Table) Ratio(of, to string, machines int) (float64, bool) {
	var a, b time.Duration
	for _, r := range t.rows {
		if r.Machines == machines && r.What == of {
			a = r.Series.Median()
		}
		if r.Machines == machines && r.What == to {
			b = r.Series.Median()
		}
	}
	if a == 0 || b == 0 {
		return 0, false
	}
	return float64(a) / float64(b), true
}

// Markdown writes the table with a column for each number of machines.
func (t *Table) Markdown(w io.Writer, machines []int) error {
	var b strings.Builder
	b.WriteString("| median (least–most) |")
	for _, n := range machines {
		fmt.Fprintf(&b, " %d machine%s |", n, plural(n))
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(machines)) + "\n")
	seen := map[string]bool{}
	for _, r := range t.rows {
		if seen[r.What] {
			continue
		}
		seen[r.What] = true
		fmt.Fprintf(&b, "| %s |", r.What)
		for _, n := range machines {
			fmt.Fprintf(&b, " %s |", t.cell(r.What, n))
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// cell shows one row's figures in a word.
func (t *Table) cell(what string, machines int) string {
	i := slices.IndexFunc(t.rows, func(r *Row) bool { return r.What == what && r.Machines == machines })
	if i < 0 {
		return ""
	}
	r := t.rows[i]
	text := ""
	if len(r.Series) > 0 {
		least, most := r.Series.Spread()
		text = fmt.Sprintf("%.2f s (%.2f–%.2f)", seconds(r.Series.Median()), seconds(least), seconds(most))
	}
	if r.Failed > 0 {
		text = strings.TrimSpace(fmt.Sprintf("%s %d failed", text, r.Failed))
	}
	return text
}

func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}
