// Package nesting finds a YAML document that is too deep to be parsed: the parser's
// work grows with the square of the depth of brackets, and 64 KiB of them take it
// half a minute.
//
// It is pure, depends on nothing but the parser's tokens, and anything may import it.
package nesting

import "github.com/goccy/go-yaml/token"

// Limit is how deep brackets may stand in brackets. Documents of people need two.
const Limit = 16

// TooDeep is the first bracket beyond Limit; nil for none.
func TooDeep(tokens token.Tokens) *token.Token {
	depth := 0
	for _, t := range tokens {
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		}
		if depth > Limit {
			return t
		}
	}
	return nil
}
