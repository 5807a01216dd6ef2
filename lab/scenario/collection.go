package scenario

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/invopop/jsonschema"
)

// mapping is values by name, in the order of the document.
type mapping[T any] struct {
	Entries []entry[T]
	At      Position
}

type entry[T any] struct {
	Name  text
	Value T
}

// names are the names that were declared, well formed or not.
func (m mapping[T]) names() []string {
	var names []string
	for _, e := range m.Entries {
		names = append(names, e.Name.Value)
	}
	return names
}

func (m *mapping[T]) decode(d *decoder, n ast.Node, where string) {
	pairs, ok := d.pairs(n, where)
	if !ok {
		return
	}
	m.At = at(n)
	if len(pairs) == 0 {
		d.add(m.At, "%s: it is empty; declare at least one or leave the key out", where)
	}
	one := strings.TrimSuffix(where, "s")
	for _, pair := range pairs {
		e := entry[T]{Name: text{pair.Key.GetToken().Value, at(pair.Key)}}
		d.name(pair.Key.GetToken(), one)
		d.value(pair.Value, reflect.ValueOf(&e.Value).Elem(), fmt.Sprintf("%s %q", one, e.Name.Value), e.Name.At)
		m.Entries = append(m.Entries, e)
	}
}

func (mapping[T]) schema(r *jsonschema.Reflector) *jsonschema.Schema {
	return &jsonschema.Schema{
		Type:                 "object",
		MinProperties:        new(uint64(1)),
		PropertyNames:        &jsonschema.Schema{Pattern: nameRule},
		AdditionalProperties: describe(r, reflect.TypeFor[T]()),
	}
}

// list is values in order.
type list[T any] struct {
	Items []T
	At    Position
}

func (l *list[T]) decode(d *decoder, n ast.Node, where string) {
	sequence, ok := n.(*ast.SequenceNode)
	if !ok {
		d.wrong(n, where, "a list")
		return
	}
	l.At = at(n)
	if len(sequence.Values) == 0 {
		d.add(l.At, "%s: it is empty; give at least one or leave the key out", where)
	}
	for i, item := range sequence.Values {
		var v T
		d.value(item, reflect.ValueOf(&v).Elem(), fmt.Sprintf("%s, number %d", where, i+1), at(item))
		l.Items = append(l.Items, v)
	}
}

func (list[T]) schema(r *jsonschema.Reflector) *jsonschema.Schema {
	return &jsonschema.Schema{
		Type:     "array",
		MinItems: new(uint64(1)),
		Items:    describe(r, reflect.TypeFor[T]()),
	}
}
