package declaration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"sync"

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
	var err, decoding error
	var both sync.WaitGroup // two readers of the same bytes; a document may have millions
	both.Go(func() { decoding = json.Unmarshal(b, out, json.WithUnmarshalers(readStrings())) })
	err = s.document(reflect.TypeOf(out).Elem())
	both.Wait()
	if err != nil && err != errEnough {
		s.problem(s.dec.InputOffset(), "", describe(err))
		last := &s.problems[len(s.problems)-1]
		last.Line, last.Column, last.Path = s.locate(err)
	}
	if len(s.problems) > 0 {
		return &DocumentError{What: what, Problems: s.problems}
	}
	if decoding != nil {
		line, column, path := s.locate(decoding)
		return refuse(what, Problem{Path: path, Line: line, Column: column, Message: describe(decoding)})
	}
	return nil
}

// readStrings has strings read by way of one buffer, and short ones made once: the
// library's own way makes each twice, and content is most of a document.
func readStrings() *json.Unmarshalers {
	const short = 8 // bytes; a user, a group, a mode
	var buffer []byte
	made := map[string]string{}
	return json.UnmarshalFromFunc(func(dec *jsontext.Decoder, s *string) error {
		if dec.PeekKind() != '"' {
			return errors.ErrUnsupported // the library says what is wrong
		}
		value, err := dec.ReadValue()
		if err != nil {
			return err
		}
		if buffer, err = jsontext.AppendUnquote(buffer[:0], value); err != nil {
			return err
		}
		if len(buffer) > short {
			*s = string(buffer)
			return nil
		}
		if made[string(buffer)] == "" {
			made[string(buffer)] = string(buffer)
		}
		*s = made[string(buffer)]
		return nil
	})
}

func refuse(what string, p Problem) error {
	return &DocumentError{What: what, Problems: []Problem{p}}
}

// checkFormat refuses a newer document before its unknown members are counted
// as mistakes. It looks no further than the format, which is written first; a
// document whose format cannot be told is left to the scanner.
func checkFormat(what string, b []byte) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(b))
	if token, err := dec.ReadToken(); err != nil || token.Kind() != '{' {
		return nil
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil
		}
		if name.String() != "format" {
			if dec.SkipValue() != nil {
				return nil
			}
			continue
		}
		value, err := dec.ReadValue()
		format, numErr := strconv.Atoi(string(value))
		if err == nil && numErr == nil && format > Format {
			return &formatError{what, format}
		}
		return nil
	}
	return nil
}

// errEnough ends a scan whose last problem makes going on pointless.
var errEnough = errors.New("enough")

// scanner walks the tokens of a document beside the Go type they are for.
type scanner struct {
	text     []byte
	lines    lines
	dec      *jsontext.Decoder
	problems []Problem
	shapes   map[reflect.Type]*shape
	at       map[string]int64 // when not nil: where each member's value begins
}

func newScanner(b []byte) *scanner {
	return &scanner{text: b, lines: lines{text: b}, dec: jsontext.NewDecoder(bytes.NewBuffer(b)), shapes: map[reflect.Type]*shape{}}
}

func (s *scanner) problem(offset int64, path, message string) {
	line, column := s.lines.position(offset)
	s.problems = append(s.problems, Problem{Path: path, Line: line, Column: column, Message: message})
}

// document scans the whole text. Its error is one of syntax, which ends the scan.
func (s *scanner) document(t reflect.Type) error {
	if err := s.value(t, nil); err != nil {
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

// place is where in a document a value stands; nil for the document itself. It is
// said in words only where something is wrong.
type place struct {
	in    *place
	name  string // of a member
	entry bool   // of an array
	index int
}

// String is the path of a Problem.
func (p *place) String() string {
	switch {
	case p == nil:
		return ""
	case p.entry:
		return fmt.Sprintf("%s[%d]", p.in.String(), p.index)
	}
	return join(p.in.String(), short(p.name))
}

// value scans one value meant for a field of type t. A value of another JSON
// kind than t wants is left for json.Unmarshal to refuse.
func (s *scanner) value(t reflect.Type, at *place) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	kind := s.dec.PeekKind()
	begin := s.begin()
	if s.at != nil {
		s.at[at.String()] = begin
	}
	switch {
	case kind == 'n':
		s.problem(begin, at.String(), "null is not a value here; leave the member out or give it one")
	case kind == '{' && t.Kind() == reflect.Struct:
		return s.object(t, at, begin)
	case kind == '[' && t.Kind() == reflect.Slice:
		return s.array(t.Elem(), at)
	}
	return s.dec.SkipValue()
}

func (s *scanner) array(t reflect.Type, at *place) error {
	if _, err := s.dec.ReadToken(); err != nil {
		return err
	}
	for i := 0; s.dec.PeekKind() != ']'; i++ {
		if i == MaxResources {
			s.problem(s.begin(), at.String(), fmt.Sprintf("more than %d entries", MaxResources))
			return errEnough
		}
		if err := s.value(t, &place{in: at, entry: true, index: i}); err != nil {
			return err
		}
	}
	_, err := s.dec.ReadToken()
	return err
}

func (s *scanner) object(t reflect.Type, at *place, begin int64) error {
	if _, err := s.dec.ReadToken(); err != nil {
		return err
	}
	form := s.shape(t)
	seen := uint64(0) // bit i: field i
	for s.dec.PeekKind() != '}' {
		nameAt := s.begin()
		token, err := s.dec.ReadToken()
		if err != nil {
			return err
		}
		name := token.String()
		member := &place{in: at, name: name}
		i, known := form.index[name]
		if !known {
			s.problem(nameAt, member.String(), unknown(name, form.names))
			if err := s.dec.SkipValue(); err != nil {
				return err
			}
			continue
		}
		seen |= 1 << i
		if err := s.value(form.types[i], member); err != nil {
			return err
		}
	}
	for i, name := range form.names {
		if form.required[i] && seen&(1<<i) == 0 {
			s.problem(begin, at.String(), fmt.Sprintf("member %q is missing", name))
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

// shape is what a struct type says of its members, in their order.
type shape struct {
	names    []string
	types    []reflect.Type
	required []bool
	index    map[string]int
}

func (s *scanner) shape(t reflect.Type) *shape {
	if known := s.shapes[t]; known != nil {
		return known
	}
	form := &shape{index: map[string]int{}}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		form.index[name] = len(form.names)
		form.names = append(form.names, name)
		form.types = append(form.types, f.Type)
		form.required = append(form.required, options == "")
	}
	s.shapes[t] = form
	return form
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
