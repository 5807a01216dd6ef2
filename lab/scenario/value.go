package scenario

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
	"github.com/invopop/jsonschema"
)

// value is a part of the document that knows how it is read and how it is
// described. where names it in messages.
type value interface {
	decode(d *decoder, n ast.Node, where string)
	schema(r *jsonschema.Reflector) *jsonschema.Schema
}

// text is a string. At is zero where nothing was written, Value empty where
// nothing usable was; the decoder has reported the latter.
type text struct {
	Value string
	At    Position
}

func (t text) written() bool { return t.At != Position{} }
func (t text) usable() bool  { return t.Value != "" }

func (t *text) decode(d *decoder, n ast.Node, where string) {
	t.At = at(n)
	written := ""
	switch n := n.(type) {
	case *ast.StringNode:
		if ambiguous(n.Token) {
			d.add(t.At, "%s: %s without quotes is no text to many readers of YAML; write %q if the word is meant", where, n.Value, n.Value)
			return
		}
		written = n.Value
	case *ast.LiteralNode:
		written = n.Value.Value
	default:
		d.wrong(n, where, "text")
		return
	}
	switch {
	case written == "":
		d.add(t.At, "%s: it is empty; give it a value or leave the key out", where)
	case strings.ContainsRune(written, 0):
		d.add(t.At, "%s: a NUL character cannot be part of it; leave it out", where)
	default:
		t.Value = written
	}
}

func (text) schema(*jsonschema.Reflector) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", MinLength: new(uint64(1))}
}

// ambiguous tells plain words that YAML 1.1 reads as a truth value or as nothing
// (https://yaml.org/type/bool.html).
func ambiguous(t *token.Token) bool {
	if t.Type == token.DoubleQuoteType || t.Type == token.SingleQuoteType {
		return false
	}
	return slices.Contains([]string{"y", "n", "yes", "no", "on", "off", "true", "false", "null"}, strings.ToLower(t.Value))
}

// name reports a token that cannot name a thing of the document.
func (d *decoder) name(t *token.Token, thing string) {
	where := Position{t.Position.Line, t.Position.Column}
	if ambiguous(t) {
		d.add(where, "%s: %s without quotes is no text to many readers of YAML; choose another name", thing, t.Value)
	} else if err := CheckName(t.Value); err != nil {
		d.add(where, "%s: %v", thing, err)
	}
}

// size is an amount of memory.
type size struct {
	Bytes int64
	At    Position
}

func (s *size) decode(d *decoder, n ast.Node, where string) {
	if _, scalar := n.(ast.ScalarNode); !scalar {
		d.wrong(n, where, "a size such as "+formatSize(DefaultMemory))
		return
	}
	amount, err := ParseSize(n.GetToken().Value)
	if err != nil {
		d.add(at(n), "%s: %v", where, err)
		return
	}
	*s = size{amount, at(n)}
}

func (size) schema(*jsonschema.Reflector) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: sizeRule, Default: formatSize(DefaultMemory)}
}

var digits = regexp.MustCompile(`[1-9][0-9]{0,5}`)

// likelySize is the size that was probably meant.
func likelySize(written string) string {
	count := digits.FindString(written)
	switch {
	case count == "":
		return formatSize(DefaultMemory)
	case strings.ContainsAny(written, "gG"):
		return count + "GiB"
	}
	return count + "MiB"
}

// formatSize writes bytes, a multiple of 1 MiB, as a document does.
func formatSize(bytes int64) string {
	if bytes%(mebibyte<<10) == 0 {
		return fmt.Sprintf("%dGiB", bytes/(mebibyte<<10))
	}
	return fmt.Sprintf("%dMiB", bytes/mebibyte)
}

// toggle is yes or no, written true or false.
type toggle struct {
	On bool
	At Position
}

func (t *toggle) decode(d *decoder, n ast.Node, where string) {
	b, ok := n.(*ast.BoolNode)
	if !ok {
		d.wrong(n, where, "true or false")
		return
	}
	*t = toggle{On: b.Value, At: at(n)}
}

func (toggle) schema(*jsonschema.Reflector) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "boolean", Default: false}
}

// number is a whole number.
type number struct {
	Value int
	At    Position
}

func (c *number) decode(d *decoder, n ast.Node, where string) {
	i, ok := n.(*ast.IntegerNode)
	if !ok {
		d.wrong(n, where, "a whole number")
		return
	}
	*c = number{Value: math.MaxInt, At: at(n)}
	switch v := i.Value.(type) {
	case int64:
		c.Value = int(v)
	case uint64:
		if v < math.MaxInt {
			c.Value = int(v)
		}
	}
}

func (number) schema(*jsonschema.Reflector) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "integer"}
}
