package identity_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	experiment "github.com/go-json-experiment/json"

	"mesh/host/identity"
)

// secrets are all types of this package that hold a secret. The values repeat
// one byte, so that any way of printing them is found.
func secrets() []any {
	declaration, _ := identity.NewDeclarationKey(seed(0xAB))
	secret, _ := identity.NewSecret(seed(0xAB))
	tok := sampleToken()
	tok.Secret = secret
	return []any{secret, nodeKey(0xAB), linkKey(0xAB), declaration, tok}
}

// hidden holds a secret where the methods of the secret cannot be called by
// package fmt: in unexported fields.
type hidden struct {
	value any
	inner struct{ s identity.Secret }
	keys  []identity.NodeKey
	byKey map[string]identity.DeclarationKey
	token identity.Token
	point *identity.LinkKey
}

func TestNoFormattingShowsASecret(t *testing.T) {
	declaration, _ := identity.NewDeclarationKey(seed(0xAB))
	h := hidden{value: nodeKey(0xAB), keys: []identity.NodeKey{nodeKey(0xAB)}, byKey: map[string]identity.DeclarationKey{"a": declaration}}
	h.inner.s, _ = identity.NewSecret(seed(0xAB))
	h.token = sampleToken()
	h.token.Secret = h.inner.s
	link := linkKey(0xAB)
	h.point = &link

	values := append(secrets(), h, &h)
	for _, v := range values {
		p := reflect.New(reflect.TypeOf(v))
		p.Elem().Set(reflect.ValueOf(v))
		for _, form := range []any{v, p.Interface(), []any{v}, map[string]any{"k": v}, struct{ V any }{v}} {
			for _, flags := range []string{"", "+", "#", " ", "0", "-", "+#", "60", ".40"} {
				for verb := '!'; verb <= 'z'; verb++ {
					if verb == '%' || verb == '*' || verb == 'T' || strings.ContainsRune("+-#0123456789.[ ", verb) {
						continue
					}
					noSecret(t, fmt.Sprintf("%"+flags+string(verb), form), "%"+flags+string(verb), form)
				}
			}
			noSecret(t, fmt.Sprint(form), "Sprint", form)
			var text, js strings.Builder
			slog.New(slog.NewTextHandler(&text, nil)).Info("x", "v", form)
			slog.New(slog.NewJSONHandler(&js, nil)).Info("x", "v", form)
			noSecret(t, text.String(), "slog text", form)
			noSecret(t, js.String(), "slog JSON", form)
			b, _ := json.Marshal(form)
			noSecret(t, string(b), "encoding/json", form)
			b, _ = experiment.Marshal(form)
			noSecret(t, string(b), "go-json-experiment", form)
		}
	}
}

func noSecret(t *testing.T, text, how string, v any) {
	t.Helper()
	low := strings.ToLower(text)
	raw := string([]byte{0xAB, 0xAB, 0xAB})
	for _, trace := range []string{"ababab", "0xab", "ab ab", "171 171", "171,171", "171, 171", "253 253", "1010101110101011", "u+00ab", "q6urq6", raw, "««"} {
		if strings.Contains(low, trace) {
			t.Errorf("%s of %T shows a secret: %.200q", how, v, text)
			return
		}
	}
}

// Every exported type of the package that holds a secret is in secrets(): a
// field found by reflection that looks like one must be of a type that redacts.
func TestSecretFieldsAreOfRedactedTypes(t *testing.T) {
	for _, v := range secrets() {
		audit(t, reflect.TypeOf(v), reflect.TypeOf(v).Name())
	}
}

func audit(t *testing.T, typ reflect.Type, path string) {
	redacts := typ.Implements(reflect.TypeFor[fmt.Formatter]()) && typ.Implements(reflect.TypeFor[fmt.GoStringer]()) &&
		typ.Implements(reflect.TypeFor[fmt.Stringer]()) && typ.Implements(reflect.TypeFor[slog.LogValuer]())
	if redacts || typ.Kind() != reflect.Struct || typ.PkgPath() != reflect.TypeFor[identity.Token]().PkgPath() {
		return
	}
	for f := range typ.Fields() {
		name := strings.ToLower(f.Name)
		if f.Type.Kind() != reflect.Struct && (strings.Contains(name, "secret") || strings.Contains(name, "private") || strings.Contains(name, "seed")) {
			t.Errorf("%s.%s is a %s, which prints itself", path, f.Name, f.Type)
		}
		audit(t, f.Type, path+"."+f.Name)
	}
}
