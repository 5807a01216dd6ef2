package scenario_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"mesh/lab/scenario"
	"mesh/lab/scenario/scenariotest"
)

// withoutPlaces compares scenarios but for where things are written.
var withoutPlaces = cmp.Options{
	cmpopts.IgnoreTypes(scenario.Position{}),
	cmpopts.IgnoreFields(scenario.Step{}, "Line"),
	cmpopts.EquateEmpty(),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

// TestParseReadsWhatIsWritten: a document holds a scenario, the whole and
// nothing else, and the schema accepts it.
func TestParseReadsWhatIsWritten(t *testing.T) {
	schema := schemaDocument(t)
	rapid.Check(t, func(t *rapid.T) {
		drawn := scenariotest.Draw(t)
		document := scenariotest.Document(drawn)
		parsed, err := scenario.Parse("drawn.yaml", strings.NewReader(document))
		if err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		if diff := cmp.Diff(drawn, parsed, withoutPlaces); diff != "" {
			t.Fatalf("(-written +read):\n%s\n%s", diff, document)
		}
		if problems := validate(schema, asJSON(t, document), "document"); len(problems) > 0 {
			t.Fatalf("the schema refuses what Parse accepts: %v\n%s", problems, document)
		}
	})
}

// TestEveryMisspellingIsPlaced: one changed letter of a key is refused in its
// own line, and the key that was meant is named.
func TestEveryMisspellingIsPlaced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := strings.Split(scenariotest.Document(scenariotest.Draw(t)), "\n")
		keys := map[int]string{}
		for i, line := range lines {
			key := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "- "))
			for _, known := range []string{"name", "segments", "machines", "kind", "memory", "image", "cpus", "package", "file", "run", "save"} {
				if strings.HasPrefix(key, known+":") && !nameOf(lines, i) {
					keys[i] = known
				}
			}
		}
		var places []int
		for i := range lines {
			if keys[i] != "" {
				places = append(places, i)
			}
		}
		i := rapid.SampledFrom(places).Draw(t, "line")
		key := keys[i]
		at := rapid.IntRange(0, len(key)-1).Draw(t, "letter")
		lines[i] = strings.Replace(lines[i], key+":", key[:at]+"q"+key[at+1:]+":", 1)

		document := strings.Join(lines, "\n")
		_, err := scenario.Parse("drawn.yaml", strings.NewReader(document))
		var problems scenario.Problems
		if !errors.As(err, &problems) {
			t.Fatalf("accepted: %v\n%s", err, document)
		}
		for _, p := range problems {
			if p.Line == i+1 && strings.Contains(p.Message, `did you mean "`+key+`"?`) {
				return
			}
		}
		t.Fatalf("line %d, key %q: %v\n%s", i+1, key, err, document)
	})
}

// nameOf tells whether a line holds a declared name and not a key of ours.
func nameOf(lines []string, i int) bool {
	return strings.HasPrefix(lines[i], "  ") && !strings.HasPrefix(lines[i], "    ") && !strings.HasPrefix(lines[i], "  - ")
}

func FuzzParse(f *testing.F) {
	for _, document := range allDocuments(f) {
		f.Add(document)
	}
	f.Add("\r\r0") // a lone carriage return ends a line, too: YAML 1.2, section 5.4
	f.Fuzz(func(t *testing.T, document string) {
		s, err := scenario.Parse("fuzz.yaml", strings.NewReader(document))
		if err != nil {
			var problems scenario.Problems
			if !errors.As(err, &problems) || len(problems) == 0 || s != nil {
				t.Fatalf("refused with %T %v, %v", err, err, s)
			}
			lines := strings.Count(document, "\n") + strings.Count(document, "\r") + 1
			for _, p := range problems {
				if p.Line < 1 || p.Line > lines+1 || p.Column < 1 || strings.ContainsAny(p.Message, "\r\n") {
					t.Fatalf("a problem without a place: %#v", p)
				}
			}
			return
		}
		again, err := scenario.Parse("fuzz.yaml", strings.NewReader(scenariotest.Document(s)))
		if err != nil {
			t.Fatalf("what was accepted is refused when written anew: %v", err)
		}
		if diff := cmp.Diff(s, again, withoutPlaces); diff != "" {
			t.Fatalf("(-first +again):\n%s", diff)
		}
	})
}
