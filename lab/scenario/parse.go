package scenario

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"

	"mesh/nesting"
)

// SizeLimit is how many bytes a document may have.
const SizeLimit = 64 << 10

// root names the document itself in messages.
const root = "scenario"

// Parse reads one scenario from r, strictly: unknown and duplicate keys, values
// of another type than the wanted one, and everything that could not be raised
// are refused, all at once. name is the document's name, for messages. The
// error is Problems where the document is wrong, and r's own error (wrapped)
// where reading failed. Images and files are not looked for; see CheckImages and
// CheckFiles.
func Parse(name string, r io.Reader) (*Scenario, error) {
	content, err := io.ReadAll(io.LimitReader(r, SizeLimit+1))
	if err != nil {
		return nil, fmt.Errorf("read scenario %s: %w", name, err)
	}
	d := &decoder{report{file: name}}
	body := d.syntax(content)
	if body == nil {
		return nil, d.sorted().Err()
	}
	var doc document
	d.value(body, reflect.ValueOf(&doc).Elem(), root, Position{1, 1})
	s := d.check(&doc)
	if err := d.sorted().Err(); err != nil {
		return nil, err
	}
	return s, nil
}

// syntax turns content into the body of its one document, or reports why not
// and returns nil.
func (d *decoder) syntax(content []byte) ast.Node {
	if len(content) > SizeLimit {
		d.add(Position{1, 1}, "the document has more than %d KiB and is not read; a scenario is a few dozen lines", SizeLimit>>10)
		return nil
	}
	if where, ok := badByte(content); ok {
		d.add(where, "the document is not UTF-8 from here on; save it as UTF-8")
		return nil
	}
	tokens := lexer.Tokenize(string(content))
	if deep := nesting.TooDeep(tokens); deep != nil {
		d.add(Position{deep.Position.Line, deep.Position.Column}, "more than %d brackets are open here, and the document is not read; close some", nesting.Limit)
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		where, message := Position{1, 1}, err.Error()
		var wrong *yaml.SyntaxError
		if errors.As(err, &wrong) {
			p := wrong.GetToken().Position
			where, message = Position{p.Line, p.Column}, wrong.GetMessage()
		}
		d.add(where, "not YAML: %s; the rest is not read", oneLine(message))
		return nil
	}
	var bodies []ast.Node
	for _, doc := range file.Docs {
		if doc.Body != nil {
			bodies = append(bodies, doc.Body)
		}
	}
	switch len(bodies) {
	case 0:
		d.add(Position{1, 1}, "the document is empty; start with `name:`, and see `lab schema`")
		return nil
	case 1:
		return bodies[0]
	}
	d.add(at(bodies[1]), "a second document begins here; a file holds one scenario")
	return nil
}

// badByte finds the first byte that is not part of UTF-8 text.
func badByte(content []byte) (Position, bool) {
	where := Position{1, 1}
	for len(content) > 0 {
		r, n := utf8.DecodeRune(content)
		switch {
		case r == utf8.RuneError && n == 1:
			return where, true
		case r == '\n':
			where = Position{where.Line + 1, 1}
		default:
			where.Column++
		}
		content = content[n:]
	}
	return Position{}, false
}

// oneLine keeps a library's message from spreading over several lines.
func oneLine(message string) string {
	return strings.Join(strings.Fields(message), " ")
}
