package watch

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// column is one of the table of machines: its title and its width.
type column struct {
	title string
	width int
}

// The table fits into 80 columns.
var columns = []column{
	{"MACHINE", 14}, {"STATE", 8}, {"AGENT", 8}, {"START", 12}, {"CPU", 6}, {"MEMORY", 7}, {"READ", 7}, {"WRITTEN", 7},
}

// Lines is everything that is to be seen of a look, with what was used since the
// look before. Each line has at most width columns.
func Lines(before, now Look, width int) (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, cut(fmt.Sprintf(format, args...), width)) }
	if len(now.Scenes) == 0 {
		add("nothing is raised")
	}
	for i, s := range now.Scenes {
		if i > 0 {
			add("")
		}
		add("%s", head(s, now.At))
		if s.Note != "" {
			add("  %s", s.Note)
		}
		add("  %s", row(titles()))
		for _, m := range s.Machines {
			add("  %s", row(cells(m, between(before, now, s.Name, m))))
			for _, a := range m.Addresses {
				add("  %s", strings.TrimRight(fmt.Sprintf("%-14s %s  %s  %s", "", a.Segment, a.IPv4, a.IPv6), " "))
			}
		}
		for _, line := range fold("  world   ", world(s), width) {
			add("%s", line)
		}
		for _, f := range s.Faults {
			add("  fault   %s", f)
		}
	}
	return lines
}

// head is the first line of a scene.
func head(s Scene, at time.Time) string {
	parts := []string{s.Name, s.Phase}
	if s.Accelerator != "" {
		parts = append(parts, s.Accelerator)
	}
	if !s.Since.IsZero() {
		parts = append(parts, "for "+age(at.Sub(s.Since)))
	}
	return strings.Join(parts, "  ")
}

// age says a duration in its two largest units.
func age(d time.Duration) string {
	d = max(0, d)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
}

func titles() (all []string) {
	for _, c := range columns {
		all = append(all, c.title)
	}
	return all
}

func cells(m Machine, l load) []string {
	cpu, memory, read, written := "-", "-", "-", "-"
	if m.Used != nil {
		memory = size(float64(m.Used.Resident))
	}
	if l.known {
		cpu = fmt.Sprintf("%.0f %%", 100*l.cpu)
		read, written = size(l.read)+"/s", size(l.written)+"/s"
	}
	started := start(m)
	if started == "" {
		started = "-"
	}
	return []string{m.Name, m.State, agent(m), started, cpu, memory, read, written}
}

// row lays cells out in their columns, one blank between them.
func row(cells []string) string {
	var b strings.Builder
	for i, c := range columns {
		cell := cut(cells[i], c.width)
		b.WriteString(cell + strings.Repeat(" ", c.width-utf8.RuneCountInString(cell)+1))
	}
	return strings.TrimRight(b.String(), " ")
}

// world is the state of the outside, what is not well first.
func world(s Scene) []string {
	if s.World != "" {
		return []string{s.World}
	}
	var bad, good []string
	for _, service := range s.Services {
		if service.Why != "" {
			bad = append(bad, service.Name+": "+service.Why)
		} else {
			good = append(good, service.Name+" ok")
		}
	}
	return append(bad, good...)
}

// fold lays words out in lines below each other, each begun by an indent or
// blanks of its length.
func fold(indent string, words []string, width int) (lines []string) {
	line := indent
	for i, w := range words {
		if i > 0 && utf8.RuneCountInString(line+", "+w) > width {
			lines, line = append(lines, line+","), strings.Repeat(" ", len(indent))+w
			continue
		}
		if i > 0 {
			line += ", "
		}
		line += w
	}
	return append(lines, line)
}

// size says bytes in the unit that keeps it short.
func size(bytes float64) string {
	for _, unit := range []string{"B", "K", "M", "G"} {
		if bytes < 1000 || unit == "G" {
			if bytes < 10 && unit != "B" {
				return fmt.Sprintf("%.1f %s", bytes, unit)
			}
			return fmt.Sprintf("%.0f %s", bytes, unit)
		}
		bytes /= 1024
	}
	return ""
}

// cut shortens a text that is too long, visibly.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	if width < 1 {
		return ""
	}
	return string([]rune(text)[:width-1]) + "…"
}

// Screen is what a terminal of a size shows of lines from top on, with a last
// line that says how to go on. It has exactly height lines, each no wider than
// width; top beyond the end shows the end.
func Screen(lines []string, top, width, height int, at time.Time) string {
	room := max(0, height-1)
	top = Top(lines, top, height)
	shown := make([]string, room)
	copy(shown, lines[top:min(len(lines), top+room)])
	for i := range shown {
		shown[i] = cut(shown[i], width)
	}
	foot := at.UTC().Format("15:04:05 UTC") + "  q quits"
	if len(lines) > room {
		foot += fmt.Sprintf("  lines %d-%d of %d, arrows move", top+1, min(len(lines), top+room), len(lines))
	}
	return strings.Join(append(shown, cut(foot, width)), "\n")
}

// Top is the first line that a screen can begin with, nearest to what is asked.
func Top(lines []string, top, height int) int {
	return max(0, min(top, len(lines)-max(0, height-1)))
}
