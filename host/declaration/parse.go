package declaration

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Parse reads a declaration strictly and checks it. Its error is a
// *DocumentError with everything that is wrong, each problem with its line and
// column, or matches ErrFormat. What it returns passes Check.
func Parse(b []byte) (Declaration, error) {
	var d Declaration
	if err := decodeStrict("declaration", b, &d); err != nil {
		return Declaration{}, err
	}
	if err := withPositions(b, reflect.TypeFor[Declaration](), d.Check()); err != nil {
		return Declaration{}, err
	}
	return d, nil
}

// Canonical writes d in the one form that is digested and signed: members in
// the order of the contract, no white space, the same bytes for the same value
// in every build of this format. It refuses what Check refuses.
func (d Declaration) Canonical() ([]byte, error) {
	if err := d.Check(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(d, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("write declaration for node %s: %v", d.Node, err)
	}
	return b, nil
}

// Digest names the bytes of a document, which of a declaration are the canonical
// ones and of a bundle those that were handed over: lower-case hex of their SHA-256.
func Digest(document []byte) string {
	sum := sha256.Sum256(document)
	return hex.EncodeToString(sum[:])
}

// Bundle is what the first node is raised from before any plane exists: the
// resources of a declaration that is not signed, numbered or addressed, trusted
// because the operator hands it over.
type Bundle struct {
	Format    int        `json:"format"`
	Resources []Resource `json:"resources"`
}

// ParseBundle reads a bundle as strictly as Parse reads a declaration.
func ParseBundle(b []byte) (Bundle, error) {
	var v Bundle
	if err := decodeStrict("bundle", b, &v); err != nil {
		return Bundle{}, err
	}
	if err := withPositions(b, reflect.TypeFor[Bundle](), v.Check()); err != nil {
		return Bundle{}, err
	}
	return v, nil
}

// Encode writes the bundle for people and machines: indented, deterministic,
// with a final newline. It refuses what Check refuses.
func (b Bundle) Encode() ([]byte, error) {
	if err := b.Check(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(b, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return nil, fmt.Errorf("write bundle: %v", err)
	}
	return append(text, '\n'), nil
}

// withPositions adds to each problem of a check where in the text it lies.
func withPositions(text []byte, t reflect.Type, err error) error {
	refused, ok := err.(*DocumentError)
	if !ok {
		return err
	}
	s := newScanner(text)
	s.at = map[string]int64{}
	_ = s.document(t) // the text was read once already
	for i := range refused.Problems {
		p := &refused.Problems[i]
		if offset, found := s.at[p.Path]; found {
			p.Line, p.Column = s.lines.position(offset)
		}
	}
	return refused
}
