package scenario

import (
	"reflect"

	"github.com/invopop/jsonschema"
)

// Schema describes the document in JSON Schema (draft 2020-12), derived from
// the types that Parse fills: what Parse accepts, it accepts. It cannot say
// everything that Parse asks for, such as that names refer to something.
func Schema() *jsonschema.Schema {
	r := &jsonschema.Reflector{
		Anonymous:                  true,
		DoNotReference:             true,
		FieldNameTag:               "yaml",
		RequiredFromJSONSchemaTags: true,
	}
	r.Mapper = func(t reflect.Type) *jsonschema.Schema {
		if part, ok := reflect.New(t).Interface().(value); ok {
			return part.schema(r)
		}
		return nil
	}
	s := describe(r, reflect.TypeFor[document]())
	s.Version = jsonschema.Version
	s.Title = "A scenario of the lab"
	return s
}

// describe is the schema of t as a part of another.
func describe(r *jsonschema.Reflector, t reflect.Type) *jsonschema.Schema {
	s := r.ReflectFromType(t)
	s.Version = ""
	return s
}

// JSONSchemaExtend says that a step does exactly one thing.
func (instruction) JSONSchemaExtend(s *jsonschema.Schema) {
	for _, deed := range []string{"package", "file", "run"} {
		s.OneOf = append(s.OneOf, &jsonschema.Schema{Required: []string{deed}})
	}
	s.DependentRequired = map[string][]string{"file": {"to"}, "to": {"file"}, "input": {"run"}, "save": {"run"}}
}

// JSONSchemaExtend says what is said of an MTU only.
func (router) JSONSchemaExtend(s *jsonschema.Schema) {
	s.DependentRequired = map[string][]string{"too-big": {"mtu"}}
}
