package fault

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	yamltoken "github.com/goccy/go-yaml/token"

	"mesh/lab/scenario"
	"mesh/lab/underlay"
	"mesh/nesting"
)

// Timeline is faults in time. Its steps are in the order in which they happen.
type Timeline struct {
	File  string `json:"file"`
	Steps []Step `json:"steps"`
}

// Step is one thing that happens: a fault strikes, or faults are undone.
type Step struct {
	At   Duration `json:"at"`             // after the beginning
	Add  *Fault   `json:"add,omitempty"`  // with its name
	Undo string   `json:"undo,omitempty"` // a fault's name, or UndoAll; empty where Add is set
	Line int      `json:"line"`
}

// UndoAll stands for every fault that the timeline added and did not undo.
const UndoAll = "all"

// SizeLimit is how many bytes a timeline may have, stepLimit how many steps.
const (
	SizeLimit = 64 << 10
	stepLimit = 1000
)

// String is what a step does.
func (s Step) String() string {
	if s.Add != nil {
		return s.Add.Name + ": " + s.Add.String()
	}
	return "undo " + s.Undo
}

// ParseTimeline reads a timeline, strictly. Its error is scenario.Problems,
// everything at once, each with its place. Targets are not looked for: see
// Resolve.
func ParseTimeline(file string, r io.Reader) (Timeline, error) {
	content, err := io.ReadAll(io.LimitReader(r, SizeLimit+1))
	if err != nil {
		return Timeline{}, fmt.Errorf("read timeline %s: %w", file, err)
	}
	d := timelineDecoder{t: Timeline{File: file}, names: map[string]int{}}
	if body := d.syntax(content); body != nil {
		d.document(body)
	}
	if len(d.problems) > 0 {
		slices.SortStableFunc(d.problems, func(a, b scenario.Problem) int {
			return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
		})
		return Timeline{}, d.problems
	}
	slices.SortStableFunc(d.t.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return d.t, nil
}

// Resolve looks for the targets of a timeline in a scenario. Its error is
// scenario.Problems.
func (t Timeline) Resolve(u underlay.Underlay) (Timeline, error) {
	var problems scenario.Problems
	t.Steps = slices.Clone(t.Steps)
	for i, s := range t.Steps {
		if s.Add == nil {
			continue
		}
		f, err := Resolve(*s.Add, u)
		t.Steps[i].Add = &f
		if wrong := (Problems)(nil); errors.As(err, &wrong) {
			for _, p := range wrong {
				problems = append(problems, scenario.Problem{File: t.File, Line: s.Line, Column: 1, Message: p.Key + ": " + p.Message})
			}
		}
	}
	return t, problems.Err()
}

// timelineDecoder fills a timeline from a syntax tree.
type timelineDecoder struct {
	t        Timeline
	problems scenario.Problems
	names    map[string]int // of faults → line
	unread   bool           // a step could not be read, and so its fault's name is not known
}

func (d *timelineDecoder) add(n ast.Node, format string, args ...any) {
	at := &yamltoken.Position{Line: 1, Column: 1}
	if n != nil {
		at = token(n).Position
	}
	d.problem(at, format, args...)
}

func (d *timelineDecoder) problem(at *yamltoken.Position, format string, args ...any) {
	d.problems = append(d.problems, scenario.Problem{File: d.t.File, Line: at.Line, Column: at.Column, Message: fmt.Sprintf(format, args...)})
}

// token is where a node begins; a mapping's own is its first colon.
func token(n ast.Node) *yamltoken.Token {
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 && !m.IsFlowStyle {
		return m.Values[0].Key.GetToken()
	}
	return n.GetToken()
}

func (d *timelineDecoder) syntax(content []byte) ast.Node {
	if len(content) > SizeLimit {
		d.add(nil, "the document has more than %d KiB and is not read", SizeLimit>>10)
		return nil
	}
	tokens := lexer.Tokenize(string(content))
	if deep := nesting.TooDeep(tokens); deep != nil {
		d.problem(deep.Position, "more than %d brackets are open here, and the document is not read; close some", nesting.Limit)
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if wrong := (*yaml.SyntaxError)(nil); errors.As(err, &wrong) {
		d.problem(wrong.GetToken().Position, "not YAML: %s", strings.Join(strings.Fields(wrong.GetMessage()), " "))
		return nil
	} else if err != nil {
		d.add(nil, "not YAML: %s", strings.Join(strings.Fields(err.Error()), " "))
		return nil
	}
	var bodies []ast.Node
	for _, doc := range file.Docs {
		if doc.Body != nil {
			bodies = append(bodies, doc.Body)
		}
	}
	if len(bodies) != 1 {
		d.add(nil, "a timeline is one document with the key \"steps\"; this has %d", len(bodies))
		return nil
	}
	return bodies[0]
}

func (d *timelineDecoder) document(body ast.Node) {
	pairs := d.pairs(body, "timeline", []string{"steps"})
	steps, ok := pairs["steps"]
	if !ok {
		if len(d.problems) == 0 {
			d.add(body, "timeline: the key \"steps\" is missing; add it")
		}
		return
	}
	list, ok := steps.(*ast.SequenceNode)
	switch {
	case !ok:
		d.add(steps, "steps: a list is wanted")
	case len(list.Values) > stepLimit:
		d.add(steps, "steps: there are more than %d", stepLimit)
	default:
		for i, n := range list.Values {
			d.step(n, fmt.Sprintf("steps, number %d", i+1))
		}
		d.undone()
	}
}

// pairs lists a mapping's values by key; unknown and repeated keys are reported.
func (d *timelineDecoder) pairs(n ast.Node, where string, known []string) map[string]ast.Node {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		d.add(n, "%s: a mapping of keys to values is wanted", where)
		return nil
	}
	all := map[string]ast.Node{}
	for _, pair := range m.Values {
		key := pair.Key.GetToken().Value
		switch _, twice := all[key]; {
		case !slices.Contains(known, key):
			d.add(pair.Key, "%s: unknown key %q; %s", where, key, suggest(key, known))
		case twice:
			d.add(pair.Key, "%s: the key %q stands twice; keep one", where, key)
		default:
			all[key] = pair.Value
		}
	}
	return all
}

// stepKeys are those of a step beside the parameters.
var stepKeys = []string{"at", "fault", "on", "name", "for", "undo"}

func (d *timelineDecoder) step(n ast.Node, where string) {
	known := slices.Clone(stepKeys)
	for _, p := range parameters {
		known = append(known, p.Key)
	}
	before := len(d.problems)
	pairs := d.pairs(n, where, known)
	if len(d.problems) > before {
		d.unreadable(pairs, where)
		return
	}
	s := Step{Line: token(n).Position.Line}
	if at, ok := pairs["at"]; !ok {
		d.add(n, "%s: the key \"at\" is missing; add when it happens, such as 30s", where)
	} else if d.text(at, where+": at") != "0s" { // the one moment that is no duration
		d.duration(at, where+": at", &s.At)
	}
	undo, isUndo := pairs["undo"]
	_, isFault := pairs["fault"]
	switch {
	case isUndo == isFault:
		d.add(n, "%s: exactly one of the keys \"fault\" and \"undo\" is wanted", where)
	case isUndo && len(pairs) > 2:
		d.add(n, "%s: beside \"undo\" there is only \"at\"", where)
	case isUndo:
		s.Undo = d.text(undo, where+": undo")
		d.t.Steps = append(d.t.Steps, s)
	default:
		d.fault(n, pairs, s, where)
	}
}

func (d *timelineDecoder) fault(n ast.Node, pairs map[string]ast.Node, s Step, where string) {
	before := len(d.problems)
	f := Fault{Kind: Kind(d.text(pairs["fault"], where+": fault"))}
	if name, ok := pairs["name"]; ok {
		f.Name = d.text(name, where+": name")
	}
	if on, ok := pairs["on"]; ok {
		f.On = d.targets(on, where+": on")
	}
	for _, p := range parameters {
		value, ok := pairs[p.Key]
		if !ok {
			continue
		}
		if list, is := value.(*ast.SequenceNode); is && p.Key == "from" {
			f.From = d.targets(list, where+": from")
		} else if err := f.Set(p.Key, d.text(value, where+": "+p.Key)); err != nil {
			d.add(value, "%s: %s: %v", where, p.Key, err)
		}
	}
	var length Duration
	if span, ok := pairs["for"]; ok {
		d.duration(span, where+": for", &length)
	}
	if len(d.problems) > before {
		d.unreadable(pairs, where)
		return
	}
	for _, p := range Check(f) {
		at := pairs[p.Key]
		if p.Key == "kind" {
			at = pairs["fault"]
		}
		if at == nil {
			at = n
		}
		d.add(at, "%s: %s: %s", where, p.Key, p.Message)
	}
	f = Named(f, func(name string) bool { return d.names[name] > 0 })
	if line := d.names[f.Name]; line > 0 {
		d.add(n, "%s: the name %q is that of the fault in line %d; choose another", where, f.Name, line)
	}
	d.names[f.Name] = s.Line
	if form, _ := FormOf(f.Kind); form.Momentary && length > 0 {
		d.add(pairs["for"], "%s: %s is over at once; leave \"for\" out", where, f.Kind)
	}
	s.Add = &f
	d.t.Steps = append(d.t.Steps, s)
	if length > 0 {
		d.t.Steps = append(d.t.Steps, Step{At: s.At + length, Undo: f.Name, Line: s.Line})
	}
}

// unreadable reports what is wrong with the kind of a step's fault, of which no
// more can be told.
func (d *timelineDecoder) unreadable(pairs map[string]ast.Node, where string) {
	d.unread = true
	kind, ok := pairs["fault"].(*ast.StringNode)
	if !ok {
		return
	}
	for _, p := range Check(Fault{Kind: Kind(kind.Value)}) {
		if p.Key == "kind" {
			d.add(kind, "%s: %s: %s", where, p.Key, p.Message)
		}
	}
}

// undone finds steps that undo what was never done.
func (d *timelineDecoder) undone() {
	if d.unread {
		return
	}
	for _, s := range d.t.Steps {
		if s.Undo == "" || s.Undo == UndoAll || d.names[s.Undo] > 0 {
			continue
		}
		var known []string
		for name := range d.names {
			known = append(known, name)
		}
		slices.Sort(known)
		d.problems = append(d.problems, scenario.Problem{File: d.t.File, Line: s.Line, Column: 1,
			Message: fmt.Sprintf("undo: no fault of this timeline is named %q; %s", s.Undo, suggest(s.Undo, known))})
	}
}

// text is a scalar's text as it is written, reported where it is none.
func (d *timelineDecoder) text(n ast.Node, where string) string {
	switch n.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode:
		if word := n.GetToken().Value; word != "" {
			return word
		}
	}
	d.add(n, "%s: a word is wanted", where)
	return ""
}

// duration reads one that is not below zero.
func (d *timelineDecoder) duration(n ast.Node, where string, to *Duration) {
	word := d.text(n, where)
	err := to.UnmarshalText([]byte(word))
	if err == nil && *to < 0 {
		err = errors.New("it is below zero")
	}
	if err != nil && word != "" {
		d.add(n, "%s: %v", where, err)
	}
}

func (d *timelineDecoder) targets(n ast.Node, where string) (targets []Target) {
	nodes := []ast.Node{n}
	if list, ok := n.(*ast.SequenceNode); ok {
		nodes = list.Values
	}
	for _, one := range nodes {
		word := d.text(one, where)
		if word == "" {
			continue
		}
		t, err := ParseTarget(word)
		if err != nil {
			d.add(one, "%s: %v", where, err)
		}
		targets = append(targets, t)
	}
	return targets
}

// Length is when the last step happens.
func (t Timeline) Length() time.Duration {
	if len(t.Steps) == 0 {
		return 0
	}
	return time.Duration(t.Steps[len(t.Steps)-1].At)
}
