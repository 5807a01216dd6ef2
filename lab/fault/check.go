package fault

import (
	"fmt"
	"slices"
	"strings"

	"mesh/lab/scenario"
	"mesh/lab/underlay"
)

// Problem is one thing that is wrong with a fault. Key is the parameter that it
// is about; "kind", "name" and "on" are beside them.
type Problem struct {
	Key     string
	Message string
}

// Problems is everything that is wrong with a fault. As an error it has exit
// code 2.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.Key + ": " + one.Message
	}
	return strings.Join(lines, "\n")
}

// ExitCode says that what was asked for is wrong.
func (Problems) ExitCode() int { return 2 }

// Err is p as an error: nil where there is no problem.
func (p Problems) Err() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

func suggest(word string, known []string) string { return scenario.Suggest(word, known) }

// Check holds f to its kind, without a scenario: targets without a kind may be
// anything.
func Check(f Fault) Problems {
	c := checker{f: f}
	form, known := FormOf(f.Kind)
	if !known {
		var all []string
		for _, form := range forms {
			all = append(all, string(form.Kind))
		}
		return Problems{{"kind", fmt.Sprintf("there is no kind %q; %s", f.Kind, suggest(string(f.Kind), all))}}
	}
	if f.Name != "" {
		if err := CheckName(f.Name); err != nil {
			c.add("name", "%v", err)
		}
	}
	c.targets("on", f.On, form)
	if slices.Contains(form.Needs, "from") {
		c.targets("from", f.From, form)
	}
	c.given(form)
	c.values(form)
	return c.problems
}

type checker struct {
	f        Fault
	problems Problems
}

func (c *checker) add(key, format string, args ...any) {
	c.problems = append(c.problems, Problem{key, fmt.Sprintf(format, args...)})
}

func (c *checker) targets(key string, targets []Target, form Form) {
	switch {
	case len(form.On) == 0 && len(targets) > 0:
		c.add(key, "%s strikes no target of one's choice; leave it out", form.Kind)
	case len(form.On) > 0 && len(targets) == 0 && key == "on":
		c.add(key, "%s needs a target: %s", form.Kind, kindsOf(form.On))
	}
	for i, t := range targets {
		if t.Kind != "" && len(form.On) > 0 && !slices.Contains(form.On, t.Kind) {
			c.add(key, "%s cannot strike %s; it strikes %s", form.Kind, t, kindsOf(form.On))
		}
		if slices.Contains(targets[:i], t) {
			c.add(key, "%s stands twice; keep one", t)
		}
		if t.Segment != "" && (len(c.f.On) > 0 && !slices.Contains([]Kind{LinkDown, Loss, Delay, RateLimit}, form.Kind)) {
			c.add(key, "%s strikes a whole machine; write %s", form.Kind, Target{Kind: t.Kind, Name: t.Name})
		}
	}
}

func kindsOf(kinds []TargetKind) string {
	words := make([]string, len(kinds))
	for i, k := range kinds {
		words[i] = string(k)
	}
	return strings.Join(words, ", ")
}

// given holds the parameters that are set to those that the kind knows.
func (c *checker) given(form Form) {
	for _, p := range parameters {
		set := p.text(&c.f) != ""
		needed, taken := slices.Contains(form.Needs, p.Key), slices.Contains(form.Takes, p.Key)
		switch {
		case needed && !set:
			c.add(p.Key, "%s needs it: %s, for example %s", form.Kind, p.About, p.Example)
		case set && !needed && !taken:
			known := slices.Concat(form.Needs, form.Takes)
			if len(known) == 0 {
				c.add(p.Key, "%s takes no parameters", form.Kind)
			} else {
				c.add(p.Key, "%s does not take it; it takes %s", form.Kind, strings.Join(known, ", "))
			}
		}
	}
}

// values finds those that are written well and make no sense.
func (c *checker) values(form Form) {
	f := c.f
	if f.How != "" && len(form.Hows) > 0 && !slices.Contains(form.Hows, f.How) {
		var known []string
		for _, h := range form.Hows {
			known = append(known, string(h))
		}
		c.add("how", "%q is not one of its values; %s", f.How, suggest(string(f.How), known))
	}
	if f.Direction != "" && !slices.Contains([]Direction{Both, Out, In}, f.Direction) {
		c.add("direction", "%q is neither both, out nor in", f.Direction)
	}
	for key, share := range map[string]Share{"share": f.Share, "reorder": f.Reorder} {
		if share < 0 || share > Whole {
			c.add(key, "%s is out of range", share)
		}
	}
	if f.Delay < 0 || f.Delay > Duration(maxDelay) {
		c.add("delay", "%s is out of range; give at most %s", f.Delay, Duration(maxDelay))
	}
	if f.Jitter < 0 || f.Jitter > f.Delay {
		c.add("jitter", "%s is out of range; give at most the delay", f.Jitter)
	}
	if f.RetryIn < 0 || f.RetryIn%Duration(second) != 0 {
		c.add("retry-after", "%s is no number of whole seconds", f.RetryIn)
	}
	for key, n := range map[string]int64{
		"rate": int64(f.Rate), "operations": int64(f.Ops), "size": int64(f.Size), "leave": int64(f.Leave),
	} {
		if n < 0 {
			c.add(key, "%d is out of range", n)
		}
	}
	if f.Drift > MostDrift || f.Drift < -MostDrift {
		c.add("drift", "%s is out of range", f.Drift)
	}
	if f.Kind == DiskSlow && f.Rate == 0 && f.Ops == 0 {
		c.add("rate", "disk-slow needs it, or operations")
	}
	if f.Kind == LinkDown {
		for _, t := range f.On {
			if t.Kind != f.On[0].Kind {
				c.add("on", "machines and routers are struck by faults of their own; make two")
				break
			}
		}
	}
	if strings.ContainsAny(f.Zone, " \t\n\"\\") || len(f.Zone) > 253 {
		c.add("zone", "%q is no name of DNS", f.Zone)
	}
	for _, t := range f.On {
		if f.Kind != Partition && f.Direction != "" && f.Direction != Both && t.Kind == Segment {
			c.add("direction", "a segment has no inside; leave it out")
		}
	}
}

// Resolve looks for f's targets in a scenario and gives those without a kind
// theirs. It reports every problem of f, those of Check among them.
func Resolve(f Fault, u underlay.Underlay) (Fault, error) {
	form, _ := FormOf(f.Kind)
	c := checker{f: f}
	f.On = c.resolve("on", f.On, form, u)
	f.From = c.resolve("from", f.From, form, u)
	problems := append(Check(f), c.problems...)
	if len(c.problems) == 0 && f.Kind == Partition {
		for _, t := range f.On {
			if slices.Contains(f.From, t) {
				problems = append(problems, Problem{"from", fmt.Sprintf("%s stands on both sides", t)})
			}
		}
	}
	return f, problems.Err()
}

func (c *checker) resolve(key string, targets []Target, form Form, u underlay.Underlay) (resolved []Target) {
	for _, t := range targets {
		kinds := []TargetKind{t.Kind}
		if t.Kind == "" {
			if kinds = form.On; t.Segment != "" {
				kinds = onMachine
			}
		}
		var found []Target
		var known []string
		for _, kind := range kinds {
			names := namesOf(kind, u)
			known = append(known, names...)
			if slices.Contains(names, t.Name) {
				found = append(found, Target{kind, t.Name, t.Segment})
			}
		}
		switch {
		case len(form.On) == 0:
			found = []Target{t} // Check refuses it
		case len(found) == 0:
			c.add(key, "there is no %s %q; %s", strings.Join(strings.Split(kindsOf(kinds), ", "), " or "), t.Name, suggest(t.Name, known))
		case len(found) > 1:
			c.add(key, "%q is several: write %s or %s", t.Name, found[0], found[1])
		case t.Segment != "" && !slices.Contains(segmentsOf(t.Name, u), t.Segment):
			c.add(key, "machine %s stands in no segment %q; %s", t.Name, t.Segment, suggest(t.Segment, segmentsOf(t.Name, u)))
		}
		resolved = append(resolved, append(found, t)[0])
	}
	return resolved
}

func namesOf(kind TargetKind, u underlay.Underlay) (names []string) {
	switch kind {
	case Machine:
		for _, m := range u.Machines {
			names = append(names, m.Name)
		}
	case Segment:
		for _, s := range u.Segments {
			names = append(names, s.Name)
		}
	case Router:
		for _, r := range u.Routers {
			names = append(names, r.Name)
		}
	case Service:
		names = Services
	case World:
		names = []string{""}
	}
	return names
}

// segmentsOf are those that a machine stands in.
func segmentsOf(machine string, u underlay.Underlay) (names []string) {
	for _, m := range u.Machines {
		for _, nic := range m.NICs {
			if m.Name == machine {
				names = append(names, nic.Segment)
			}
		}
	}
	return names
}

// Candidates are the targets in a scenario that a kind can strike, as texts.
func Candidates(form Form, u underlay.Underlay) (texts []string) {
	for _, kind := range form.On {
		for _, name := range namesOf(kind, u) {
			texts = append(texts, Target{Kind: kind, Name: name}.String())
		}
	}
	return texts
}
