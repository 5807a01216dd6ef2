package declaration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// decodeStrict reads the one JSON document in b into out, a pointer to a struct
// of this package. It refuses what encoding/json lets pass: names in another
// case, names twice, bytes after the end, members nobody knows, null, and a
// member that is absent though its field is not marked omitempty.
func decodeStrict(what string, b []byte, out any) error {
	if len(b) > MaxBytes {
		return refuse(what, Problem{Message: fmt.Sprintf("it has %d bytes, at most %d are read", len(b), MaxBytes)})
	}
	if err := checkFormat(what, b); err != nil {
		return err
	}
	s := newScanner(b)
	err := s.document(reflect.TypeOf(out).Elem())
	if err != nil && err != errEnough {
		s.problem(s.dec.InputOffset(), "", describe(err))
		last := &s.problems[len(s.problems)-1]
		last.Line, last.Column, last.Path = s.locate(err)
	}
	if len(s.problems) > 0 {
		return &DocumentError{What: what, Problems: s.problems}
	}
	if err := json.Unmarshal(b, out); err != nil {
		line, column, path := s.locate(err)
		return refuse(what, Problem{Path: path, Line: line, Column: column, Message: describe(err)})
	}
	return nil
}

func refuse(what string, p Problem) error {
	return &DocumentError{What: what, Problems: []Problem{p}}
}

// checkFormat refuses a newer document before its unknown members are counted
// as mistakes. A document whose format cannot be told is left to the scanner.
func checkFormat(what string, b []byte) error {
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil
	}
	if head.Format > Format {
		return &formatError{what, head.Format}
	}
	return nil
}

// errEnough ends a scan whose last problem makes going on pointless.
var errEnough = errors.New("enough")

// scanner walks the tokens of a document beside the Go type they are for.
type scanner struct {
	text     []byte
	dec      *jsontext.Decoder
	problems []Problem
	at       map[string]int64 // when not nil: where each member's value begins
}

func newScanner(b []byte) *scanner {
	return &scanner{text: b, dec: jsontext.NewDecoder(bytes.NewReader(b))}
}

func (s *scanner) problem(offset int64, path, message string) {
	line, column := position(s.text, offset)
	s.problems = append(s.problems, Problem{Path: path, Line: line, Column: column, Message: message})
}

// document scans the whole text. Its error is one of syntax, which ends the scan.
func (s *scanner) document(t reflect.Type) error {
	if err := s.value(t, ""); err != nil {
		return err
	}
	if _, err := s.dec.ReadToken(); !errors.Is(err, io.EOF) {
		if err != nil {
			return err
		}
		s.problem(s.dec.InputOffset()-1, "", "there is something after the end of the document")
	}
	return nil
}

// value scans one value meant for a field of type t. A value of another JSON
// kind than t wants is left for json.Unmarshal to refuse.
func (s *scanner) value(t reflect.Type, path string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	kind := s.dec.PeekKind()
	begin := s.begin()
	if s.at != nil {
		s.at[path] = begin
	}
	switch {
	case kind == 'n':
		s.problem(begin, path, "null is not a value here; leave the member out or give it one")
	case kind == '{' && t.Kind() == reflect.Struct:
		return s.object(t, path, begin)
	case kind == '[' && t.Kind() == reflect.Slice:
		return s.array(t.Elem(), path)
	}
	return s.dec.SkipValue()
}

func (s *scanner) array(t reflect.Type, path string) error {
	if _, err := s.dec.ReadToken(); err != nil {
		return err
	}
	for i := 0; s.dec.PeekKind() != ']'; i++ {
		if i == MaxResources {
			s.problem(s.begin(), path, fmt.Sprintf("more than %d entries", MaxResources))
			return errEnough
		}
		if err := s.value(t, fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	_, err := s.dec.ReadToken()
	return err
}

func (s *scanner) object(t reflect.Type, path string, begin int64) error {
	if _, err := s.dec.ReadToken(); err != nil {
		return err
	}
	fields := fieldsOf(t)
	seen := map[string]bool{}
	for s.dec.PeekKind() != '}' {
		at := s.begin()
		token, err := s.dec.ReadToken()
		if err != nil {
			return err
		}
		name := token.String()
		f, known := fields[name]
		if !known {
			s.problem(at, join(path, name), unknown(name, fields))
			if err := s.dec.SkipValue(); err != nil {
				return err
			}
			continue
		}
		seen[name] = true
		if err := s.value(f.typ, join(path, name)); err != nil {
			return err
		}
	}
	for _, name := range order(t) {
		if fields[name].required && !seen[name] {
			s.problem(begin, path, fmt.Sprintf("member %q is missing", name))
		}
	}
	_, err := s.dec.ReadToken()
	return err
}

// begin is the offset of the next token.
func (s *scanner) begin() int64 { return s.skip(s.dec.InputOffset()) }

// skip moves past the white space and punctuation before a token.
func (s *scanner) skip(at int64) int64 {
	for at < int64(len(s.text)) && strings.IndexByte(" \t\r\n,:", s.text[at]) >= 0 {
		at++
	}
	return at
}

type field struct {
	typ      reflect.Type
	required bool
}

func fieldsOf(t reflect.Type) map[string]field {
	fields := make(map[string]field, t.NumField())
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields[name] = field{f.Type, options == ""}
	}
	return fields
}

func order(t reflect.Type) []string {
	names := make([]string, 0, t.NumField())
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
