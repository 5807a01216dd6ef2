package evidence

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"mesh/lab/lifecycle"
)

// Names of the index in a collection.
const (
	indexJSON     = "index.json"
	indexMarkdown = "index.md"
)

// Index tells what a collection holds. It is index.json.
type Index struct {
	Format      int             `json:"format"` // 1
	Name        string          `json:"name"`   // of the scenario, as it was raised
	Scenario    string          `json:"scenario"`
	Source      string          `json:"source"`
	Run         string          `json:"run"`
	Phase       lifecycle.Phase `json:"phase"`
	Accelerator string          `json:"accelerator,omitempty"`
	Lab         string          `json:"lab"` // version
	Why         string          `json:"why"`
	Collected   time.Time       `json:"collected"` // UTC
	Seconds     float64         `json:"seconds"`   // that it took
	Entries     []Entry         `json:"entries"`
}

// Entry is one file, or one that could not be had.
type Entry struct {
	File    string `json:"file,omitempty"` // empty: there is none
	What    string `json:"what"`
	Machine string `json:"machine,omitempty"`
	From    string `json:"from"`
	Bytes   int64  `json:"bytes"`
	Cut     bool   `json:"cut,omitempty"`     // there was more of it
	Problem string `json:"problem,omitempty"` // why it is missing, or what is wrong with it
}

// Missing lists what could not be had.
func (x Index) Missing() (all []Entry) {
	for _, e := range x.Entries {
		if e.File == "" {
			all = append(all, e)
		}
	}
	return all
}

// Markdown is the index for people.
func (x Index) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Evidence of %s\n\n%s\n\n", x.Name, indent(x.Why))
	fmt.Fprintf(&b, "- scenario: %s, from %s\n- run: %s, phase: %s\n", x.Scenario, x.Source, x.Run, x.Phase)
	if x.Accelerator != "" {
		fmt.Fprintf(&b, "- machines run by: %s\n", x.Accelerator)
	}
	fmt.Fprintf(&b, "- collected: %s in %.1f s, by lab %s\n\n", x.Collected.Format(time.RFC3339), x.Seconds, x.Lab)
	b.WriteString("| file | what | from | size |\n|---|---|---|---|\n")
	for _, e := range x.Entries {
		if e.File == "" {
			continue
		}
		size := bytesText(e.Bytes)
		if e.Cut {
			size += ", cut"
		}
		if e.Problem != "" {
			size += "; " + cell(e.Problem)
		}
		fmt.Fprintf(&b, "| [%s](%s) | %s | %s | %s |\n", e.File, e.File, cell(of(e)), cell(e.From), size)
	}
	if missing := x.Missing(); len(missing) > 0 {
		b.WriteString("\n## What could not be had\n\n| what | from | why |\n|---|---|---|\n")
		for _, e := range missing {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", cell(of(e)), cell(e.From), cell(e.Problem))
		}
	}
	return b.String()
}

// of is what an entry is and whose.
func of(e Entry) string {
	if e.Machine == "" {
		return e.What
	}
	return e.Machine + ": " + e.What
}

// cell makes a text fit into a cell of a table.
func cell(text string) string {
	const most = 160
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return strings.ReplaceAll(text, "|", `\|`)
}

// indent makes a text of several lines one that keeps its lines.
func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}

// bytesText says a size in the unit that keeps it short.
func bytesText(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

func (x Index) json() ([]byte, error) {
	text, err := json.MarshalIndent(x, "", "  ")
	return append(text, '\n'), err
}
