package figures

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Measured is what one command took.
type Measured struct {
	Time time.Duration // until it ended
	CPU  time.Duration // user and system, of it and what it started
	Peak int64         // bytes resident at most, of its largest process
}

// Line is one thing as one program does it, run after run.
type Line struct {
	What    string     `json:"what"`
	Program string     `json:"program"`
	Files   int        `json:"files"`
	Runs    []Measured `json:"-"`
	Fsyncs  *int       `json:"fsyncs,omitempty"`            // absent: not counted
	Durable string     `json:"durable_after_cut,omitempty"` // how much was there after a cut right behind its end
	Missing bool       `json:"not_installed,omitempty"`
	Failed  []string   `json:"failed,omitempty"` // a line for each run that came to nothing
	// As the JSON has them: medians, and the time of each run.
	Seconds       []float64 `json:"seconds"`
	MedianSeconds float64   `json:"median_seconds"`
	CPUSeconds    float64   `json:"cpu_seconds"`
	PeakBytes     int64     `json:"peak_bytes"`
}

// times are those of each run.
func (l *Line) times() (all Series) {
	for _, m := range l.Runs {
		all = append(all, m.Time)
	}
	return all
}

func (l *Line) cpu() (all Series) {
	for _, m := range l.Runs {
		all = append(all, m.CPU)
	}
	return all
}

// Peak is the most that any run had resident, in bytes.
func (l *Line) Peak() (most int64) {
	for _, m := range l.Runs {
		most = max(most, m.Peak)
	}
	return most
}

// Median is that of the times; zero for no run.
func (l *Line) Median() time.Duration { return l.times().Median() }

func (l *Line) settle() {
	l.MedianSeconds, l.CPUSeconds, l.PeakBytes, l.Seconds = seconds(l.Median()), seconds(l.cpu().Median()), l.Peak(), []float64{}
	for _, t := range l.times() {
		l.Seconds = append(l.Seconds, seconds(t))
	}
}

// Sheet is a table of lines, in the order of their first use.
type Sheet struct{ lines []*Line }

// Line gives the line of a thing and a program, making it at its first use.
func (s *Sheet) Line(what, program string) *Line {
	if l := s.find(what, program); l != nil {
		return l
	}
	l := &Line{What: what, Program: program}
	s.lines = append(s.lines, l)
	return l
}

func (s *Sheet) find(what, program string) *Line {
	for _, l := range s.lines {
		if l.What == what && l.Program == program {
			return l
		}
	}
	return nil
}

// Lines are all of them, with what is derived; those of one thing stand together.
func (s *Sheet) Lines() (all []Line) {
	for _, l := range s.grouped() {
		l.settle()
		all = append(all, *l)
	}
	return all
}

func (s *Sheet) grouped() (all []*Line) {
	var things []string
	for _, l := range s.lines {
		if !slices.Contains(things, l.What) {
			things = append(things, l.What)
		}
	}
	for _, what := range things {
		for _, l := range s.lines {
			if l.What == what {
				all = append(all, l)
			}
		}
	}
	return all
}

// Ratio is how many times longer one program took for a thing than another, by
// medians; false where either has no run, or they had not the same to do.
func (s *Sheet) Ratio(what, of, to string) (float64, bool) {
	a, b := s.find(what, of), s.find(what, to)
	if a == nil || b == nil || a.Median() == 0 || b.Median() == 0 || a.Files != b.Files {
		return 0, false
	}
	return float64(a.Median()) / float64(b.Median()), true
}

// Markdown writes the table.
func (s *Sheet) Markdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| what | by | files | time: median (least–most) | CPU | peak memory | fsyncs | durable after a cut? |\n")
	b.WriteString("|---|---|---:|---:|---:|---:|---:|---|\n")
	for _, l := range s.grouped() {
		if l.Missing {
			fmt.Fprintf(&b, "| %s | %s | | not installed | | | | |\n", l.What, l.Program)
			continue
		}
		fsyncs, failed := "", ""
		if l.Fsyncs != nil {
			fsyncs = fmt.Sprint(*l.Fsyncs)
		}
		if n := len(l.Failed); n > 0 {
			failed = fmt.Sprintf(" %d failed", n)
		}
		least, most := l.times().Spread()
		fmt.Fprintf(&b, "| %s | %s | %d | %.3f s (%.3f–%.3f)%s | %.3f s | %.1f MB | %s | %s |\n", l.What, l.Program, l.Files,
			seconds(l.Median()), seconds(least), seconds(most), failed, seconds(l.cpu().Median()), float64(l.Peak())/1e6, fsyncs, l.Durable)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Goal is a figure that is to be reached.
type Goal struct {
	What    string `json:"what"`
	Wanted  string `json:"wanted"`
	Got     string `json:"got"`
	Reached bool   `json:"reached"`
	Unknown bool   `json:"unknown,omitempty"` // it was not measured
}

// AtMost is the goal that got, in unit, is no more than most.
func AtMost(what string, got, most float64, unit string, known bool) Goal {
	return Goal{What: what, Wanted: fmt.Sprintf("≤ %g %s", most, unit), Got: shown(got, unit, known), Reached: known && got <= most, Unknown: !known}
}

// AtLeast is the goal that got, in unit, is no less than least.
func AtLeast(what string, got, least float64, unit string, known bool) Goal {
	return Goal{What: what, Wanted: fmt.Sprintf("≥ %g %s", least, unit), Got: shown(got, unit, known), Reached: known && got >= least, Unknown: !known}
}

func shown(got float64, unit string, known bool) string {
	if !known {
		return "not measured"
	}
	return fmt.Sprintf("%.1f %s", got, unit)
}

// Goals writes a table of them.
func Goals(w io.Writer, goals []Goal) error {
	var b strings.Builder
	b.WriteString("| figure | wanted | got | |\n|---|---:|---:|---|\n")
	for _, g := range goals {
		verdict := "**not reached**"
		switch {
		case g.Unknown:
			verdict = ""
		case g.Reached:
			verdict = "reached"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", g.What, g.Wanted, g.Got, verdict)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
