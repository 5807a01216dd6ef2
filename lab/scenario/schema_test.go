package scenario_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"mesh/lab/scenario"
	"mesh/scenarios"
)

func TestSchemaGolden(t *testing.T) {
	text, err := json.MarshalIndent(scenario.Schema(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/schema.json", string(text)+"\n")
}

// TestCaseL12SchemaAcceptsShippedScenarios: the schema comes from the types, and
// every shipped scenario passes it, and Parse.
func TestCaseL12SchemaAcceptsShippedScenarios(t *testing.T) {
	schema := schemaDocument(t)
	for _, name := range scenarios.Names() {
		document, err := fs.ReadFile(scenarios.Files, name+".yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range validate(schema, asJSON(t, string(document)), name) {
			t.Error(problem)
		}
		s, err := scenario.Parse(name+".yaml", strings.NewReader(string(document)))
		if err != nil {
			t.Error(err)
		} else if s.Name != name {
			t.Errorf("%s.yaml holds the scenario %s", name, s.Name)
		}
	}
}

// TestSchemaRefuses shows that the schema is no schema for everything.
func TestSchemaRefuses(t *testing.T) {
	schema := schemaDocument(t)
	const sound = `{"name": "a", "segments": {"p": {"kind": "public", "ipv4": "10.0.0.0/24"}},
		"machines": {"one": {"segments": ["p"]}}, "place": [{"on": "one", "run": "true"}]}`
	if problems := validate(schema, asJSON(t, sound), "sound"); len(problems) > 0 {
		t.Fatal(problems)
	}
	for _, c := range [][2]string{
		{`"name": "a"`, `"nam": "a"`},
		{`"name": "a"`, `"name": 1`},
		{`"public"`, `"pubic"`},
		{`"ipv4"`, `"ip4"`},
		{`{"p"`, `{"P"`},
		{`["p"]`, `[]`},
		{`["p"]`, `"p"`},
		{`{"segments": ["p"]}`, `{"segments": ["p"], "memory": "512 MB?"}`},
		{`{"segments": ["p"]}`, `{"segments": ["p"], "cpus": 0}`},
		{`{"segments": ["p"]}`, `{"segments": ["p"], "cpus": 65}`},
		{`{"segments": ["p"]}`, `{}`},
		{`"run": "true"`, `"run": "true", "package": "nginx"`},
		{`"run": "true"`, `"file": "a"`},
		{`"run": "true"`, `"save": "a"`},
		{`"machines": {"one": {"segments": ["p"]}}`, `"machines": {}`},
	} {
		changed := strings.Replace(sound, c[0], c[1], 1)
		if changed == sound {
			t.Fatalf("%s is not part of the document", c[0])
		}
		if problems := validate(schema, asJSON(t, changed), "document"); len(problems) == 0 {
			t.Errorf("the schema accepts %s", c[1])
		}
		if _, err := scenario.Parse("changed.yaml", strings.NewReader(changed)); err == nil {
			t.Errorf("Parse accepts %s", c[1])
		}
	}
}

// schemaDocument is the schema as a reader of it sees it.
func schemaDocument(t testing.TB) map[string]any {
	t.Helper()
	text, err := json.Marshal(scenario.Schema())
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	return schema
}

// asJSON is what a YAML document says, in JSON's types.
func asJSON(t interface{ Fatal(...any) }, document string) any {
	text, err := yaml.YAMLToJSON([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// annotations are the keywords that refuse nothing.
var annotations = []string{"$schema", "title", "description", "default"}

// validate holds v to a schema made of the keywords that ours uses, and fails
// for any other keyword.
func validate(schema map[string]any, v any, path string) (problems []string) {
	bad := func(format string, args ...any) {
		problems = append(problems, path+": "+fmt.Sprintf(format, args...))
	}
	for keyword, rule := range schema {
		text, isText := v.(string)
		object, isObject := v.(map[string]any)
		array, isArray := v.([]any)
		number, isNumber := v.(float64)
		_, isBool := v.(bool)
		switch keyword {
		case "type":
			ok := map[string]bool{
				"string": isText, "object": isObject, "array": isArray, "integer": isNumber && number == float64(int64(number)),
				"boolean": isBool,
			}
			if !ok[rule.(string)] {
				bad("is no %s", rule)
			}
		case "enum":
			if !slices.Contains(rule.([]any), v) {
				bad("is none of %v", rule)
			}
		case "pattern":
			if isText && !regexp.MustCompile(rule.(string)).MatchString(text) {
				bad("does not match %s", rule)
			}
		case "minLength":
			if isText && len(text) < int(rule.(float64)) {
				bad("is too short")
			}
		case "minimum":
			if isNumber && number < rule.(float64) {
				bad("is too small")
			}
		case "maximum":
			if isNumber && number > rule.(float64) {
				bad("is too large")
			}
		case "minItems":
			if isArray && len(array) < int(rule.(float64)) {
				bad("has too few")
			}
		case "minProperties":
			if isObject && len(object) < int(rule.(float64)) {
				bad("has too few")
			}
		case "items":
			for i, item := range array {
				problems = append(problems, validate(rule.(map[string]any), item, fmt.Sprintf("%s[%d]", path, i))...)
			}
		case "required":
			for _, key := range rule.([]any) {
				if _, there := object[key.(string)]; isObject && !there {
					bad("lacks %s", key)
				}
			}
		case "dependentRequired":
			for key, needed := range rule.(map[string]any) {
				if _, there := object[key]; there {
					problems = append(problems, validate(map[string]any{"required": needed}, v, path)...)
				}
			}
		case "oneOf":
			fitting := 0
			for _, one := range rule.([]any) {
				if len(validate(one.(map[string]any), v, path)) == 0 {
					fitting++
				}
			}
			if fitting != 1 {
				bad("fits %d of %v", fitting, rule)
			}
		case "propertyNames":
			for key := range object {
				problems = append(problems, validate(rule.(map[string]any), key, path)...)
			}
		case "properties":
			for key, of := range rule.(map[string]any) {
				if value, there := object[key]; there {
					problems = append(problems, validate(of.(map[string]any), value, path+"."+key)...)
				}
			}
		case "additionalProperties":
			known, _ := schema["properties"].(map[string]any)
			for key, value := range object {
				if _, there := known[key]; there {
					continue
				}
				if of, ok := rule.(map[string]any); ok {
					problems = append(problems, validate(of, value, path+"."+key)...)
				} else if rule == false {
					bad("has the unknown key %s", key)
				}
			}
		default:
			if !slices.Contains(annotations, keyword) {
				bad("the schema says %q, which this test does not know", keyword)
			}
		}
	}
	return problems
}

// allDocuments are the shipped scenarios and those that are refused.
func allDocuments(t testing.TB) []string {
	t.Helper()
	var documents []string
	for _, name := range scenarios.Names() {
		document, err := fs.ReadFile(scenarios.Files, name+".yaml")
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, string(document))
	}
	refused, err := filepath.Glob("testdata/refused/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range refused {
		document, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, string(document))
	}
	return documents
}
