package declaration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"mesh/spelling"
)

// lines turns byte offsets of a text into lines and columns. It is quickest where
// they rise.
type lines struct {
	text   []byte
	offset int64 // up to which it has counted
	line   int   // there, from 0
	begin  int64 // of that line
}

// position is both from 1.
func (l *lines) position(offset int64) (line, column int) {
	offset = max(0, min(offset, int64(len(l.text))))
	if offset < l.offset {
		*l = lines{text: l.text}
	}
	between := l.text[l.offset:offset]
	l.line += bytes.Count(between, []byte("\n"))
	if i := bytes.LastIndexByte(between, '\n'); i >= 0 {
		l.begin = l.offset + int64(i) + 1
	}
	l.offset = offset
	return l.line + 1, int(offset-l.begin) + 1
}

// locate says where in the document an error of the JSON library lies.
func (s *scanner) locate(err error) (line, column int, path string) {
	var syntactic *jsontext.SyntacticError
	var semantic *json.SemanticError
	offset := s.dec.InputOffset()
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName) && errors.As(err, &syntactic):
		offset, path = s.skip(syntactic.ByteOffset), dotted(syntactic.JSONPointer)
	case errors.As(err, &syntactic):
		offset, path = syntactic.ByteOffset, dotted(syntactic.JSONPointer)
	case errors.As(err, &semantic):
		offset, path = s.skip(semantic.ByteOffset), dotted(semantic.JSONPointer)
	}
	line, column = s.lines.position(offset)
	return line, column, path
}

// dotted writes a JSON pointer the way problems name members.
func dotted(p jsontext.Pointer) string {
	var path string
	for token := range p.Tokens() {
		if token != "" && strings.Trim(token, "0123456789") == "" {
			path += "[" + token + "]"
		} else {
			path = join(path, token)
		}
	}
	return path
}

// describe says in one line what an error of the JSON library means.
func describe(err error) string {
	var syntactic *jsontext.SyntacticError
	var semantic *json.SemanticError
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return "the member is there twice"
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "the document ends in the middle"
	case errors.As(err, &syntactic):
		return "not JSON: " + syntactic.Err.Error()
	case errors.As(err, &semantic) && semantic.GoType != nil:
		return fmt.Sprintf("a %s is not a value for this member, wanted %s", kindName(semantic.JSONKind), wanted(semantic.GoType.Kind().String()))
	}
	return "not JSON: " + err.Error()
}

func kindName(k jsontext.Kind) string {
	switch k {
	case '{':
		return "JSON object"
	case '[':
		return "JSON array"
	case '"':
		return "string"
	case '0':
		return "number of this size or form"
	case 't', 'f':
		return "boolean"
	}
	return "value of this kind"
}

func wanted(goKind string) string {
	switch goKind {
	case "string":
		return "a string"
	case "int", "uint64":
		return "a whole number"
	case "bool":
		return "true or false"
	case "slice":
		return "a JSON array"
	}
	return "a JSON object"
}

// unknown describes a member nobody knows, with the nearest known name.
func unknown(name string, known []string) string {
	if len(name) <= longest { // as every one that is known
		if best := spelling.Nearest(name, known); best != "" {
			return fmt.Sprintf("unknown member %q; did you mean %q?", name, best)
		}
	}
	return fmt.Sprintf("unknown member %s; known are %s", shown(name), strings.Join(known, ", "))
}
