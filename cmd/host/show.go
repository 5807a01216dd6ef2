package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"mesh/cmd/internal/cli"
	"mesh/host/agent"
	"mesh/host/declaration"
	"mesh/host/store"
	"mesh/host/upgrade"
)

// words are how a status is said; the empty one is of a resource no pass has
// looked at.
var words = map[declaration.Status]string{
	"":                        "not looked at yet",
	declaration.StatusInSync:  "in sync",
	declaration.StatusChanged: "changed",
	declaration.StatusRemoved: "removed",
	declaration.StatusKept:    "kept",
	declaration.StatusWaiting: "waiting",
	declaration.StatusFailed:  "failed",
}

func withReason(status declaration.Status, reason string) string {
	word, known := words[status]
	if !known {
		word = string(status)
	}
	switch {
	case reason == "":
		return word
	case status == declaration.StatusChanged:
		return word + ": " + past(reason)
	}
	return word + ": " + reason
}

// past tells as bygone what a pass found and put right.
func past(reason string) string {
	before, behind, found := strings.Cut(reason, " is ")
	if !found {
		return reason
	}
	return before + " was " + behind
}

// summary counts results, the ones that need somebody first.
func summary(results []declaration.Result) string {
	count := map[declaration.Status]int{}
	for _, r := range results {
		count[r.Status]++
	}
	var parts []string
	for _, s := range []declaration.Status{declaration.StatusFailed, declaration.StatusWaiting, declaration.StatusKept,
		declaration.StatusRemoved, declaration.StatusChanged, declaration.StatusInSync, ""} {
		if n := count[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, words[s]))
		}
	}
	if len(parts) == 0 {
		return "nothing is declared"
	}
	return strings.Join(parts, ", ")
}

// page writes lines until one fails.
type page struct {
	w   io.Writer
	err error
}

func (p *page) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func (p *page) field(name, format string, args ...any) {
	p.line("  %-13s %s", name, fmt.Sprintf(format, args...))
}

// section writes a heading and its lines, if there are any.
func (p *page) section(heading string, lines []string) {
	if len(lines) == 0 {
		return
	}
	p.line("\n%s", heading)
	for _, l := range lines {
		p.line("  %s", l)
	}
}

// writeStatus says a status in plain words.
func writeStatus(w io.Writer, s agent.Status, now time.Time) error {
	p := &page{w: w}
	p.line("%s", sentence(s, now))
	if m := s.Member; m != nil {
		p.field("mesh", "%s", m.Mesh)
		p.field("node", "%s  %s", m.Node, strings.Join(m.Addresses, " "))
		p.field("plane", "%s", strings.Join(m.Plane, ", "))
	}
	if s.Attempt != nil {
		p.field("enrolment", "begun %s and not finished: run `mesh-host enrol` with the same token again", ago(*s.Attempt, now))
	}
	p.field("declaration", "%s", declared(s))
	p.field("last pass", "%s", passed(s, now))
	if r := s.Refused; r != nil {
		p.field("refused", "epoch %d, generation %d, %s: %s", r.Epoch, r.Generation, ago(r.Time, now), r.Reason)
	}
	p.field("host", "version %s, %s", s.HostVersion, map[bool]string{true: "running", false: "not running"}[s.Running])
	if s.Program != nil && s.Program.Trial != nil {
		t := s.Program.Trial
		p.field("on trial", "version %s, %s, start %d of %d", cmp.Or(t.Version, t.Digest), ago(t.Since, now), t.Starts, upgrade.Attempts)
	}
	if p.err == nil && len(s.Resources) > 0 {
		p.line("")
		p.err = cli.Table(w, []string{"RESOURCE", "KIND", "WHERE", "STATUS"}, rows(s.Resources))
	}
	p.section("Restarts owed:", owed(s.Owed, now))
	p.section("Given up, with something left behind:", left(s.Left))
	p.section("Lost from this machine's record (`mesh-host acknowledge` ends this list):", losses(s.Losses, now))
	p.section("Not working here (`mesh-host trial forget VERSION` lets one be tried again):", broken(s.Program))
	p.section("Not readable:", s.Problems)
	return p.err
}

// sentence says the state and since when.
func sentence(s agent.Status, now time.Time) string {
	since := ""
	if s.Since != nil {
		since = fmt.Sprintf(" since %s (%s)", at(*s.Since), ago(*s.Since, now))
	}
	switch s.State {
	case agent.StateEnrolled:
		return "enrolled: the link to the plane is up" + since
	case agent.StateDisconnected:
		line := "disconnected: the link to the plane is down" + since + ", the last declaration stays in force"
		if s.Reason != "" {
			line += "\n  " + fmt.Sprintf("%-13s %s", "why", s.Reason)
		}
		return line
	}
	return "hosted: this machine is a member of no mesh"
}

func declared(s agent.Status) string {
	h := s.Held
	if h == nil {
		return "none"
	}
	return fmt.Sprintf("%s, accepted %s", named(h.Source, h.Epoch, h.Generation, h.Digest), at(h.Accepted))
}

// named tells one declaration from every other.
func named(source store.Source, epoch, generation uint64, digest string) string {
	if source == store.SourceBundle {
		return fmt.Sprintf("bundle %.12s", digest)
	}
	return fmt.Sprintf("epoch %d, generation %d (%.12s)", epoch, generation, digest)
}

func passed(s agent.Status, now time.Time) string {
	switch p := s.Pass; {
	case p == nil:
		return "none since this machine started"
	case p.Finished == nil && p.Error != "":
		return fmt.Sprintf("began %s: %s", ago(p.Started, now), p.Error)
	case p.Finished == nil && p.Activity != nil:
		return fmt.Sprintf("going on, began %s: %s %s: %s", ago(p.Started, now), p.Activity.Kind, p.Activity.Where, p.Activity.What)
	case p.Finished == nil:
		return fmt.Sprintf("going on, began %s", ago(p.Started, now))
	case p.Error != "":
		return fmt.Sprintf("%s, failed: %s", ago(*p.Finished, now), p.Error)
	default:
		return fmt.Sprintf("%s: %s", ago(*p.Finished, now), summary(results(s.Resources)))
	}
}

// numbered names a declaration.
func numbered(epoch, generation uint64) string {
	if generation == 0 {
		return "the bundle"
	}
	return fmt.Sprintf("generation %d of epoch %d", generation, epoch)
}

func results(items []agent.StatusItem) []declaration.Result {
	out := make([]declaration.Result, 0, len(items))
	for _, i := range items {
		out = append(out, declaration.Result{Status: i.Status})
	}
	return out
}

func rows(items []agent.StatusItem) [][]string {
	out := make([][]string, 0, len(items))
	for _, i := range items {
		out = append(out, []string{i.ID, string(i.Kind), i.Where, withReason(i.Status, i.Reason)})
	}
	return out
}

func owed(debts []agent.StatusOwed, now time.Time) []string {
	var lines []string
	for _, d := range debts {
		lines = append(lines, fmt.Sprintf("%s, because %s (%s) changed in %s, %s", d.Unit, d.Because, d.ID, numbered(d.Epoch, d.Generation), ago(d.Since, now)))
	}
	return lines
}

func left(places []agent.StatusLeft) []string {
	var lines []string
	for _, l := range places {
		lines = append(lines, fmt.Sprintf("%s %s (%s): %s", l.Kind, l.Where, l.ID, l.Why))
	}
	return lines
}

func broken(known *upgrade.State) []string {
	var lines []string
	if known != nil {
		for _, b := range known.Broken {
			lines = append(lines, b.String())
		}
	}
	return lines
}

func losses(all []agent.StatusLoss, now time.Time) []string {
	var lines []string
	for _, l := range all {
		line := l.What
		if !l.Since.IsZero() {
			line += ", " + ago(l.Since, now)
		}
		if l.Grave {
			line += "; what was owned before is not removed any more"
		}
		lines = append(lines, line)
	}
	return lines
}

// writeWhyJSON is writeWhy as a document.
func writeWhyJSON(w io.Writer, s agent.Status) error {
	return cli.JSON(w, map[string]any{"resources": s.Resources, "owed": s.Owed, "left": s.Left, "copies": slices.Concat([]agent.StatusCopy{}, s.Copies)})
}

// writeWhy says everything the record holds of one place.
func writeWhy(w io.Writer, s agent.Status, where string) error {
	p := &page{w: w}
	for _, r := range s.Resources {
		p.line("%s %s is declared as %s", r.Kind, r.Where, r.ID)
		p.field("last pass", "%s", withReason(r.Status, r.Reason))
		switch o := r.Owned; {
		case o == nil:
			p.field("owned", "no")
		case o.Found:
			p.field("owned", "since %s, %s; it stood as declared before, and will be left so", at(o.Since), numbered(o.Epoch, o.Generation))
		default:
			p.field("owned", "since %s, %s", at(o.Since), numbered(o.Epoch, o.Generation))
		}
	}
	for _, o := range s.Owed {
		p.line("%s owes a restart since %s, because %s (%s) changed in %s", o.Unit, at(o.Since), o.Because, o.ID, numbered(o.Epoch, o.Generation))
	}
	for _, l := range s.Left {
		p.line("%s %s was declared as %s until %s and was left behind: %s", l.Kind, l.Where, l.ID, at(l.Since), l.Why)
	}
	for _, c := range s.Copies {
		p.line("a copy of what was at %s at %s is kept: %s (%d bytes)", c.Where, at(c.Since), c.Path, c.Bytes)
	}
	if len(s.Resources)+len(s.Owed)+len(s.Left)+len(s.Copies) == 0 {
		p.line("%s is none of the host's: nothing declares it and nothing of it is owned", where)
	}
	return p.err
}
