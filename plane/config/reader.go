package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"mesh/nesting"
)

// Problem is one thing wrong with a configuration.
type Problem struct {
	File    string
	Line    int // from 1
	Column  int // from 1, in characters
	Message string
}

func (p Problem) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
}

// Error says everything that is wrong with one configuration.
type Error struct {
	Problems []Problem // at least one, in the order of the text
}

// Error is one line for each problem.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// ExitCode is that of a wrong configuration.
func (e *Error) ExitCode() int { return 2 }

// reader walks one document and collects what is wrong with it.
type reader struct {
	file     string
	problems []Problem
	dialled  []dialled
}

type dialled struct {
	addr netip.Addr
	node ast.Node
}

// key is one key that a mapping may hold.
type key struct {
	name string
	need need
	read func(ast.Node)
}

type need bool

const (
	required need = true
	optional need = false
)

func (r *reader) failure() error {
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return &Error{r.problems}
}

func (r *reader) problem(n ast.Node, format string, args ...any) {
	r.problemAt(n.GetToken(), format, args...)
}

func (r *reader) problemAt(t *token.Token, format string, args ...any) {
	line, column := 1, 1
	if t != nil && t.Position != nil {
		line, column = max(1, t.Position.Line), max(1, t.Position.Column)
	}
	r.problems = append(r.problems, Problem{r.file, line, column, fmt.Sprintf(format, args...)})
}

// document returns the root of the one document in text, nil where there is
// none to walk.
func (r *reader) document(text []byte) ast.Node {
	if len(text) > MaxBytes {
		r.problemAt(nil, "it has %d bytes, and at most %d are read", len(text), MaxBytes)
		return nil
	}
	tokens := lexer.Tokenize(string(text))
	if deep := nesting.TooDeep(tokens); deep != nil {
		r.problemAt(deep, "more than %d brackets are open here: it is not read, close some", nesting.Limit)
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	var bad yaml.Error
	switch {
	case errors.As(err, &bad):
		r.problemAt(bad.GetToken(), "not YAML: %s", bad.GetMessage())
		return nil
	case err != nil:
		r.problemAt(nil, "not YAML: %v", err)
		return nil
	case len(file.Docs) > 1:
		r.problemAt(file.Docs[1].Start, "a second document begins: wanted one")
		return nil
	case len(file.Docs) == 0 || file.Docs[0].Body == nil:
		r.problemAt(nil, "it is empty: wanted at least mesh, addresses and overlay")
		return nil
	}
	return file.Docs[0].Body
}

// mapping reads n as a mapping of keys. where names n in problems.
func (r *reader) mapping(n ast.Node, where string, keys []key) {
	pairs, ok := pairsOf(n)
	if !ok {
		r.problem(n, "%s where a mapping of %s is wanted", describe(n), names(keys))
		return
	}
	first := map[string]*token.Token{}
	for _, p := range pairs {
		k := p.Key.GetToken()
		i := slices.IndexFunc(keys, func(known key) bool { return known.name == k.Value })
		before, twice := first[k.Value]
		switch {
		case twice:
			r.problemAt(k, "key %q is given twice, first in line %d", k.Value, before.Position.Line)
		case i < 0:
			r.problemAt(k, "%s", unknownKey(k.Value, keys))
		default:
			keys[i].read(p.Value)
		}
		if !twice {
			first[k.Value] = k
		}
	}
	for _, known := range keys {
		if known.need == required && first[known.name] == nil {
			r.problemAt(start(n, pairs), "key %q is missing%s", known.name, in(where))
		}
	}
}

// start is where a mapping begins: its first key, or its opening brace.
func start(n ast.Node, pairs []*ast.MappingValueNode) *token.Token {
	if len(pairs) > 0 {
		return pairs[0].Key.GetToken()
	}
	return n.GetToken()
}

func in(where string) string {
	if where == "" {
		return ""
	}
	return " in " + where
}

func pairsOf(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

// sequence reads n as a list.
func (r *reader) sequence(n ast.Node) []ast.Node {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		r.problem(n, "%s where a list is wanted", describe(n))
		return nil
	}
	return list.Values
}

// text reads n as a string.
func (r *reader) text(n ast.Node) (string, bool) {
	s, ok := n.(*ast.StringNode)
	if !ok {
		hint := ""
		switch n.(type) {
		case *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
			hint = fmt.Sprintf(": quote it, %q", n.GetToken().Value)
		}
		r.problem(n, "%s where text is wanted%s", describe(n), hint)
		return "", false
	}
	return s.Value, true
}

func describe(n ast.Node) string {
	switch n.(type) {
	case *ast.NullNode:
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.BoolNode:
		return "true or false"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.LiteralNode:
		return "a block of text"
	case *ast.AliasNode, *ast.AnchorNode, *ast.TagNode, *ast.MergeKeyNode:
		return "an alias, anchor or tag"
	case *ast.StringNode:
		return "text"
	}
	return "something else"
}

func names(keys []key) string { return strings.Join(namesOf(keys), ", ") }

func namesOf(keys []key) []string {
	all := make([]string, len(keys))
	for i, k := range keys {
		all[i] = k.name
	}
	return all
}
