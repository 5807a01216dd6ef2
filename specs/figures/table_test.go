package figures_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mesh/specs/figures"
)

func TestMedianAndSpread(t *testing.T) {
	for _, c := range []struct {
		s                   figures.Series
		median, least, most time.Duration
	}{
		{nil, 0, 0, 0},
		{figures.Series{3}, 3, 3, 3},
		{figures.Series{9, 1, 5}, 5, 1, 9},
		{figures.Series{8, 2, 4, 6}, 5, 2, 8},
	} {
		least, most := c.s.Spread()
		if got := c.s.Median(); got != c.median || least != c.least || most != c.most {
			t.Errorf("%v: median %v, spread %v–%v; want %v, %v–%v", c.s, got, least, most, c.median, c.least, c.most)
		}
	}
}

func TestTableSaysWhatFailed(t *testing.T) {
	var table figures.Table
	table.Add("raise", 2, 4*time.Second)
	table.Add("raise", 2, 6*time.Second)
	table.Add("raise", 3, 9*time.Second)
	table.Fail("raise", 3, errors.New("no"))
	table.Add("cold", 2, 40*time.Second)
	var text strings.Builder
	if err := table.Markdown(&text, []int{2, 3}); err != nil {
		t.Fatal(err)
	}
	want := "| median (least–most) | 2 machines | 3 machines |\n|---|---:|---:|\n" +
		"| raise | 5.00 s (4.00–6.00) | 9.00 s (9.00–9.00) 1 failed |\n| cold | 40.00 s (40.00–40.00) |  |\n"
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Error(diff)
	}
	if ratio, ok := table.Ratio("cold", "raise", 2); !ok || ratio != 8 {
		t.Errorf("ratio is %v, %v, want 8", ratio, ok)
	}
	if _, ok := table.Ratio("cold", "raise", 3); ok {
		t.Error("there is a ratio to something that was never measured")
	}
	rows := table.Rows()
	if diff := cmp.Diff([]float64{4, 6}, rows[0].Seconds); diff != "" || rows[1].Failed != 1 {
		t.Errorf("rows: %+v %s", rows, diff)
	}
}
