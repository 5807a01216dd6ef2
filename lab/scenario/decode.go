package scenario

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// decoder fills the types of document.go from a syntax tree.
type decoder struct {
	report
}

// value fills v, a value or a structure of such, from n. from is where a reader
// looks for it: its name, or its first character where it has none.
func (d *decoder) value(n ast.Node, v reflect.Value, where string, from Position) {
	if part, ok := v.Addr().Interface().(value); ok {
		part.decode(d, n, where)
		return
	}
	d.structure(n, v, where, from)
}

// structure fills the fields of v from a mapping whose keys are v's.
func (d *decoder) structure(n ast.Node, v reflect.Value, where string, from Position) {
	pairs, ok := d.pairs(n, where)
	if !ok {
		return
	}
	if field := v.FieldByName("At"); field.IsValid() {
		field.Set(reflect.ValueOf(from))
	}
	fields := fieldsOf(v.Type())
	given := map[string]bool{}
	for _, pair := range pairs {
		key := pair.Key.GetToken().Value
		i := slices.IndexFunc(fields, func(f field) bool { return f.key == key })
		if i < 0 {
			d.add(at(pair.Key), "%s: unknown key %q; %s", where, key, Suggest(key, keysOf(fields)))
			continue
		}
		given[key] = true
		d.field(pair.Value, fields[i], v.Field(fields[i].index), where)
	}
	for _, f := range fields {
		if f.required && !given[f.key] {
			d.add(from, "%s: the key %q is missing; add it", where, f.key)
		}
	}
}

// field fills one field and holds it to its tag.
func (d *decoder) field(n ast.Node, f field, v reflect.Value, where string) {
	path := strings.TrimPrefix(where+": "+f.key, root+": ")
	word := n.GetToken().Value
	if _, scalar := n.(ast.ScalarNode); scalar && len(f.enum) > 0 && !slices.Contains(f.enum, word) {
		d.add(at(n), "%s: %q is not one of its values; %s", path, word, Suggest(word, f.enum))
		return
	}
	d.value(n, v, path, at(n))
	if count, ok := v.Interface().(number); ok && count.At != (Position{}) {
		if count.Value < f.minimum || count.Value > f.maximum {
			d.add(count.At, "%s: %s is out of range; give %d to %d", path, word, f.minimum, f.maximum)
		}
	}
}

// pairs lists the entries of a mapping, each key once; others are reported.
func (d *decoder) pairs(n ast.Node, where string) ([]*ast.MappingValueNode, bool) {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		d.wrong(n, where, "a mapping of keys to values")
		return nil, false
	}
	first := map[string]Position{}
	var pairs []*ast.MappingValueNode
	for _, pair := range m.Values {
		key := pair.Key.GetToken().Value
		if before, twice := first[key]; twice {
			d.add(at(pair.Key), "%s: the key %q stands twice, first in line %d; keep one", where, key, before.Line)
			continue
		}
		first[key] = at(pair.Key)
		pairs = append(pairs, pair)
	}
	return pairs, true
}

// wrong reports a node of another kind than the wanted one.
func (d *decoder) wrong(n ast.Node, where, wanted string) {
	is, advice := "something else", ""
	switch n.(type) {
	case *ast.MappingNode:
		is = "a mapping"
	case *ast.SequenceNode:
		is = "a list"
	case *ast.StringNode, *ast.LiteralNode:
		is = "text"
	case *ast.NullNode:
		is, advice = "nothing", "; give it a value or leave the key out"
	case *ast.BoolNode:
		is = "a truth value"
	case *ast.IntegerNode:
		is = "a number"
	case *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		is = "a number that is not whole"
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode, *ast.MergeKeyNode, *ast.MappingKeyNode:
		is, advice = "a YAML anchor, alias, tag, merge or complex key", "; this format has none, write the value itself"
	}
	if scalar, ok := n.(ast.ScalarNode); ok && wanted == "text" && advice == "" {
		advice = "; write " + strconv.Quote(scalar.GetToken().Value) + " if the text is meant"
	}
	d.add(at(n), "%s: %s is wanted and this is %s%s", where, wanted, is, advice)
}

// at is where n begins.
func at(n ast.Node) Position {
	if pair, ok := n.(*ast.MappingNode); ok && len(pair.Values) > 0 && !pair.IsFlowStyle {
		return at(pair.Values[0].Key) // its own token is the first colon
	}
	p := n.GetToken().Position
	return Position{p.Line, p.Column}
}

// field is what the tags say of a field.
type field struct {
	index            int
	key              string
	required         bool
	enum             []string
	minimum, maximum int
}

func fieldsOf(t reflect.Type) []field {
	var fields []field
	for i := range t.NumField() {
		f := field{index: i, key: t.Field(i).Tag.Get("yaml")}
		if f.key == "-" {
			continue
		}
		for word := range strings.SplitSeq(t.Field(i).Tag.Get("jsonschema"), ",") {
			name, value, _ := strings.Cut(word, "=")
			switch name {
			case "required":
				f.required = true
			case "enum":
				f.enum = append(f.enum, value)
			case "minimum":
				f.minimum, _ = strconv.Atoi(value) // our own tags; a test reads them
			case "maximum":
				f.maximum, _ = strconv.Atoi(value)
			}
		}
		fields = append(fields, f)
	}
	return fields
}

func keysOf(fields []field) []string {
	var keys []string
	for _, f := range fields {
		keys = append(keys, f.key)
	}
	return keys
}
