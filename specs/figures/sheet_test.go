package figures_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mesh/specs/figures"
)

func TestSheet(t *testing.T) {
	var sheet figures.Sheet
	add := func(what, program string, files int, took time.Duration, peak int64) *figures.Line {
		l := sheet.Line(what, program)
		l.Files = files
		l.Runs = append(l.Runs, figures.Measured{Time: took, CPU: took / 2, Peak: peak})
		return l
	}
	fsyncs := 12
	cold := add("cold", "ours", 1000, 400*time.Millisecond, 20e6)
	cold.Fsyncs, cold.Durable = &fsyncs, "1000 of 1000"
	add("unchanged", "ours", 1000, 50*time.Millisecond, 10e6)
	add("cold", "theirs", 1000, 900*time.Millisecond, 30e6)
	add("cold", "ours", 1000, 200*time.Millisecond, 25e6)
	add("unchanged", "slow", 100, 10*time.Second, 90e6).Failed = []string{"it ended with 1"}
	sheet.Line("cold", "none").Missing = true

	var text strings.Builder
	if err := sheet.Markdown(&text); err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(text.String(), "|---|---|---:|---:|---:|---:|---:|---|\n")
	want := "| cold | ours | 1000 | 0.300 s (0.200–0.400) | 0.150 s | 25.0 MB | 12 | 1000 of 1000 |\n" +
		"| cold | theirs | 1000 | 0.900 s (0.900–0.900) | 0.450 s | 30.0 MB |  |  |\n" +
		"| cold | none | | not installed | | | | |\n" +
		"| unchanged | ours | 1000 | 0.050 s (0.050–0.050) | 0.025 s | 10.0 MB |  |  |\n" +
		"| unchanged | slow | 100 | 10.000 s (10.000–10.000) 1 failed | 5.000 s | 90.0 MB |  |  |\n"
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Error(diff)
	}
	if ratio, ok := sheet.Ratio("cold", "theirs", "ours"); !ok || ratio != 3 {
		t.Errorf("ratio is %v, %v, want 3", ratio, ok)
	}
	for _, other := range []string{"slow", "theirs"} { // another number of files, and none at all
		if _, ok := sheet.Ratio("unchanged", other, "ours"); ok {
			t.Errorf("there is a ratio to %s", other)
		}
	}
	if n := len(sheet.Lines()); n != 5 {
		t.Errorf("there are %d lines, asking made some", n)
	}
	if l := sheet.Lines()[0]; l.MedianSeconds != 0.3 || l.PeakBytes != 25e6 || l.CPUSeconds != 0.15 {
		t.Errorf("%+v", l)
	}
}

func TestGoals(t *testing.T) {
	var text strings.Builder
	err := figures.Goals(&text, []figures.Goal{
		figures.AtMost("time", 59.96, 60, "ms", true), figures.AtMost("memory", 41, 40, "MB", true),
		figures.AtLeast("ratio", 8, 8, "times", true), figures.AtLeast("ratio", 0, 2, "times", false),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := "| figure | wanted | got | |\n|---|---:|---:|---|\n" +
		"| time | ≤ 60 ms | 60.0 ms | reached |\n| memory | ≤ 40 MB | 41.0 MB | **not reached** |\n" +
		"| ratio | ≥ 8 times | 8.0 times | reached |\n| ratio | ≥ 2 times | not measured |  |\n"
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Error(diff)
	}
}
