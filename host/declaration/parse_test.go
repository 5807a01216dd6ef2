package declaration_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/host/declaration"
)

// document is a declaration whose resources are the text given.
func document(resources string) string {
	return `{"format":1,"mesh":"m","node":"n","epoch":1,"generation":1,"resources":[` + "\n" + resources + "\n]}"
}

// What the reader refuses before it looks at what the values mean.
func TestCaseP8ParseRefuses(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"nothing", ``, "line 1, column 1: the document ends in the middle"},
		{"null", `null`, "line 1, column 1: null is not a value here"},
		{"a list", `[]`, "line 1, column 1: a JSON array is not a value for this member, wanted a JSON object"},
		{"cut short", `{"format":1,`, "line 1, column 13: the document ends in the middle"},
		{"not JSON", `{"format":1,,`, "line 1, column 13: not JSON: invalid character ',' at start of value"},
		{"a comment", "{ // no\n}", "line 1, column 3: not JSON"},
		{"not UTF-8", document("{\"id\":\"a\",\"package\":{\"name\":\"\xff\"}}"), "not JSON: invalid UTF-8"},
		{"half a surrogate", document(`{"id":"a","package":{"name":"\ud800"}}`), "not JSON: invalid surrogate pair"},
		{"something after", document("") + ` {}`, "line 3, column 4: there is something after the end of the document"},
		{"half of something after", document("") + ` }`, "line 3, column 4: not JSON"},
		{"twice", `{"format":1,` + "\n" + `"format":1}`, "line 2, column 1: format: the member is there twice"},
		{"twice, escaped", `{"format":1,"f\u006frmat":1}`, "format: the member is there twice"},
		{"another case", document(`{"id":"a","Package":{"name":"nginx"}}`), `line 2, column 11: resources[0].Package: unknown member "Package"; did you mean "package"?`},
		{"unknown", document(`{"id":"a","fiel":{"path":"/x"}}`), `line 2, column 11: resources[0].fiel: unknown member "fiel"; did you mean "file"?`},
		{"unknown, nothing near", document(`{"id":"a","quantum":{}}`), `unknown member "quantum"; known are id, directory, file, package, service, container`},
		{"null member", document(`{"id":"a","service":{"unit":"a.service","enabled":null}}`), "resources[0].service.enabled: null is not a value here"},
		{"null resource", document(`null`), "line 2, column 1: resources[0]: null"},
		{"missing member", document(`{"id":"a","file":{"path":"/x"}}`), `line 2, column 18: resources[0].file: member "content" is missing`},
		{"no resources", `{"format":1,"mesh":"m","node":"n","epoch":1,"generation":1}`, `line 1, column 1: member "resources" is missing`},
		{"number for text", document(`{"id":7}`), "line 2, column 7: resources[0].id: a number of this size or form is not a value for this member, wanted a string"},
		{"text for number", strings.Replace(document(""), `"epoch":1`, `"epoch":"1"`, 1), "epoch: a string is not a value for this member, wanted a whole number"},
		{"fraction", strings.Replace(document(""), `"epoch":1`, `"epoch":1.5`, 1), "epoch: a number of this size or form"},
		{"negative", strings.Replace(document(""), `"epoch":1`, `"epoch":-1`, 1), "epoch: a number of this size or form"},
		{"text for truth", document(`{"id":"a","service":{"unit":"a.service","enabled":"no"}}`), "wanted true or false"},
		{"object for list", strings.Replace(document(""), "[\n\n]", "{}", 1), "resources: a JSON object is not a value for this member, wanted a JSON array"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, err := declaration.Parse([]byte(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Parse(%s)\n got: %v\nwant: …%s…", tc.text, err, tc.want)
			}
			if diff := cmp.Diff(declaration.Declaration{}, d); diff != "" {
				t.Errorf("a refused document left something behind:\n%s", diff)
			}
			var refused *declaration.DocumentError
			if !errors.As(err, &refused) || refused.ExitCode() != 2 {
				t.Errorf("error is %T, want a *DocumentError with exit code 2", err)
			}
		})
	}
}

// A plane that is newer than the host: its document is refused as a whole, and
// the message blames the host's age, not the document.
func TestCaseH10NewerFormatSaysHostTooOld(t *testing.T) {
	text := strings.Replace(document(`{"id":"a","quantum":{}}`), `"format":1`, `"format":4`, 1)
	_, err := declaration.Parse([]byte(text))
	if !errors.Is(err, declaration.ErrFormat) {
		t.Fatalf("Parse: %v, want ErrFormat", err)
	}
	const want = "declaration refused: it is of format 4 and this host reads up to format 3: the host is too old, upgrade mesh-host"
	if err.Error() != want {
		t.Errorf("\n got: %v\nwant: %s", err, want)
	}
}

func TestEveryProblemAtOnce(t *testing.T) {
	_, err := declaration.Parse([]byte(document(
		`{"id":"a","fiel":{}},
{"id":"b","file":{"path":null,"content":"","mod":"0644"}},
{"ID":"c","package":{"name":"nginx"}}`)))
	want := `declaration refused, 5 problems:
  line 2, column 11: resources[0].fiel: unknown member "fiel"; did you mean "file"?
  line 3, column 26: resources[1].file.path: null is not a value here; leave the member out or give it one
  line 3, column 44: resources[1].file.mod: unknown member "mod"; did you mean "mode"?
  line 4, column 2: resources[2].ID: unknown member "ID"; did you mean "id"?
  line 4, column 1: resources[2]: member "id" is missing`
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Error(diff)
	}
}

func TestProblemsOfMeaningHavePositions(t *testing.T) {
	_, err := declaration.Parse([]byte(document(
		`{"id":"a","file":{"path":"/x/../y","content":"","mode":"644"}},
{"id":"a","service":{"unit":"x","restart_on":["b"]}}`)))
	want := `declaration refused, 5 problems:
  line 2, column 26: resources[0].file.path: "/x/../y" is not clean; wanted "/y"
  line 2, column 56: resources[0].file.mode: "644" is not allowed; wanted four octal digits, like "0644"
  line 3, column 7: resources[1].id: "a" is the id of resources[0] already
  line 3, column 29: resources[1].service.unit: "x" is not allowed; wanted a systemd unit with its suffix, like "nginx.service"
  line 3, column 47: resources[1].service.restart_on[0]: "b" is not the id of a resource declared before this one`
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Error(diff)
	}
}

func TestLimits(t *testing.T) {
	many := strings.Repeat(`{"id":"a"},`, declaration.MaxResources) + `{"id":"a"}`
	_, err := declaration.Parse([]byte(document(many)))
	if want := fmt.Sprintf("resources: more than %d entries", declaration.MaxResources); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("too many resources: %.200v, want …%s…", err, want)
	}
	_, err = declaration.Parse(make([]byte, declaration.MaxBytes+1))
	if err == nil || !strings.Contains(err.Error(), "at most 33554432 are read") {
		t.Errorf("too many bytes: %v", err)
	}
	big := document(`{"id":"a","file":{"path":"/x","content":"` + strings.Repeat("x", declaration.MaxContent+1) + `"}}`)
	_, err = declaration.Parse([]byte(big))
	if err == nil || !strings.Contains(err.Error(), "resources[0].file.content: 8388609 bytes, at most 8388608 are allowed") {
		t.Errorf("too much content: %.200v", err)
	}
	_, err = declaration.Parse([]byte(document(strings.TrimSuffix(strings.Repeat(`{"id":"a","x":1},`, 1000), ","))))
	if err == nil || strings.Count(err.Error(), "\n") > 50 || !strings.Contains(err.Error(), "and 960 more") {
		t.Errorf("a thousand problems are not shortened: %.200v", err)
	}
}

func TestParseBundle(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"a declaration", document(""), `unknown member "mesh"`},
		{"unknown key", `{"format":1,"resource":[]}`, `unknown member "resource"; did you mean "resources"?`},
		{"duplicate key", `{"format":1,"resources":[],"resources":[]}`, "resources: the member is there twice"},
		{"null", `{"format":1,"resources":null}`, "resources: null is not a value here"},
		{"trailing bytes", `{"format":1,"resources":[]}x`, "not JSON"},
		{"format 0", `{"format":0,"resources":[]}`, "format: 0 is not a format this host reads; wanted 1"},
		{"newer", `{"format":9,"assets":[]}`, "bundle refused: it is of format 9"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := declaration.ParseBundle([]byte(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("\n got: %v\nwant: …%s…", err, tc.want)
			}
		})
	}
}

// TestManyProblems: a document that is wrong in every line is refused as quickly as it
// is read, with the place of each, and in words that fit on a screen.
func TestManyProblems(t *testing.T) {
	const many = 20_000
	var b strings.Builder
	b.WriteString(`{"format":1,"resources":[` + "\n")
	for i := range many {
		fmt.Fprintf(&b, `{"id":"a%d","nope":1,"file":{"path":"/x/%d","content":""}},`+"\n", i, i)
	}
	b.WriteString(`{"id":"last","file":{"path":"/x/last","content":"","` + strings.Repeat("x", 1<<20) + `":1}}]}`)
	_, err := declaration.ParseBundle([]byte(b.String()))
	var refused *declaration.DocumentError
	if !errors.As(err, &refused) || len(refused.Problems) != many+1 {
		t.Fatalf("%T", err)
	}
	for i, p := range refused.Problems {
		if p.Line != i+2 || i < many && p.Column != strings.Index(fmt.Sprintf(`{"id":"a%d","nope"`, i), `"nope"`)+1 {
			t.Fatalf("problem %d: %+v", i, p)
		}
	}
	if last := refused.Problems[many]; len(last.Path)+len(last.Message) > 1000 {
		t.Errorf("%d bytes name the last", len(last.Path)+len(last.Message))
	}
}
