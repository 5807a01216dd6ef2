package watch_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mesh/lab/watch"
)

var update = flag.Bool("update", false, "write the golden screens anew")

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// shop is a scenario with something of everything.
func shop() watch.Scene {
	return watch.Scene{
		Name: "shop", Phase: "raised", Accelerator: "tcg", Since: noon.Add(-65 * time.Minute),
		Services: []watch.Service{{Name: "dhcp"}, {Name: "router-advertisement"}, {Name: "dns", Why: "stopped by a fault"}, {Name: "issuer"}, {Name: "artefacts"}},
		Faults:   []string{"slow: delay 200 ms between one and two"},
		Machines: []watch.Machine{
			{
				Name: "one", State: "running", Agent: true, Start: "warm", Ready: 3200 * time.Millisecond,
				Addresses: []watch.Address{{"public", "203.0.113.10/24", "2001:db8:113:0:ea:75ff:fe80:7ba7/64"}},
				Used:      &watch.Used{CPU: 10 * time.Second, Resident: 312 << 20, Read: 1 << 20, Written: 5 << 10},
			},
			{
				Name: "a-machine-with-a-long-name", State: "absent",
				Addresses: []watch.Address{{"home", "192.168.1.10/24", ""}},
			},
		},
	}
}

// later is a look two seconds after noon; what one used has grown.
func later() watch.Look {
	s := shop()
	s.Machines[0].Used = &watch.Used{CPU: 11500 * time.Millisecond, Resident: 400 << 20, Read: 5 << 20, Written: 5 << 10}
	return watch.Look{At: noon.Add(2 * time.Second), Scenes: []watch.Scene{s}}
}

func first() watch.Look { return watch.Look{At: noon, Scenes: []watch.Scene{shop()}} }

func TestScreens(t *testing.T) {
	many := first()
	for i := range 20 {
		m := shop().Machines[1]
		m.Name, m.State = fmt.Sprintf("m%d", i), "paused"
		many.Scenes[0].Machines = append(many.Scenes[0].Machines, m)
	}
	quiet := watch.Scene{Name: "quiet", Phase: "raising", Note: "the process that was raising it (12) is gone", World: "its process does not run"}
	for name, c := range map[string]struct {
		before, now        watch.Look
		width, height, top int
	}{
		"usual":   {first(), later(), 80, 24, 0},
		"first":   {watch.Look{}, first(), 80, 24, 0},
		"narrow":  {first(), later(), 40, 24, 0},
		"scroll":  {watch.Look{}, many, 80, 24, 5},
		"end":     {watch.Look{}, many, 80, 24, 1000},
		"several": {watch.Look{}, watch.Look{At: noon, Scenes: []watch.Scene{quiet, shop()}}, 80, 24, 0},
		"nothing": {watch.Look{}, watch.Look{At: noon}, 80, 5, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := watch.Screen(watch.Lines(c.before, c.now, c.width), c.top, c.width, c.height, c.now.At) + "\n"
			path := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestFits: a screen of any size has exactly that size.
func TestFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width, height := rapid.IntRange(1, 200).Draw(t, "width"), rapid.IntRange(1, 60).Draw(t, "height")
		top := rapid.IntRange(-5, 100).Draw(t, "top")
		screen := watch.Screen(watch.Lines(first(), later(), width), top, width, height, noon)
		lines := strings.Split(screen, "\n")
		if len(lines) != height {
			t.Fatalf("%d lines on a screen of %d", len(lines), height)
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > width {
				t.Fatalf("%d columns on a screen of %d: %q", n, width, line)
			}
		}
	})
}

// TestRestarted: a machine that was started anew has used less than before, which
// is no load.
func TestRestarted(t *testing.T) {
	text := strings.Join(watch.Lines(later(), watch.Look{At: noon.Add(4 * time.Second), Scenes: first().Scenes}, 80), "\n")
	if strings.Contains(text, "%") || strings.Contains(text, "/s") {
		t.Errorf("it has a load:\n%s", text)
	}
}

func TestChanges(t *testing.T) {
	now := later()
	s := &now.Scenes[0]
	s.Phase, s.Faults = "partial", []string{"cut: power of one"}
	s.Machines[0].State, s.Machines[0].Agent = "paused", false
	s.Machines[0].Addresses[0].Segment = "home"
	s.Services[2].Why = ""
	var lines []string
	for _, c := range watch.Changes(first(), now) {
		lines = append(lines, c.String())
	}
	want := []string{
		"2026-11-30T12:00:02Z shop: phase partial (was raised)",
		"2026-11-30T12:00:02Z shop one: state paused (was running)",
		"2026-11-30T12:00:02Z shop one: agent silent (was answers)",
		"2026-11-30T12:00:02Z shop one: address home 203.0.113.10/24 2001:db8:113:0:ea:75ff:fe80:7ba7/64",
		"2026-11-30T12:00:02Z shop: service dns ok (was stopped by a fault)",
		"2026-11-30T12:00:02Z shop: fault cut: power of one in force",
		"2026-11-30T12:00:02Z shop one: address public none (was 203.0.113.10/24 2001:db8:113:0:ea:75ff:fe80:7ba7/64)",
		"2026-11-30T12:00:02Z shop: fault slow: delay 200 ms between one and two none (was in force)",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestNoChange: what a machine uses is none.
func TestNoChange(t *testing.T) {
	if all := watch.Changes(first(), later()); len(all) > 0 {
		t.Errorf("%v", all)
	}
}

// TestGone: a scenario that is no more is one change.
func TestGone(t *testing.T) {
	all := watch.Changes(first(), watch.Look{At: noon})
	if len(all) != 1 || all[0].String() != "2026-11-30T12:00:00Z shop: phase gone (was raised)" {
		t.Errorf("%v", all)
	}
}
