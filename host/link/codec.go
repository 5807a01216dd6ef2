package link

import (
	"fmt"

	"github.com/go-json-experiment/json"

	"mesh/host/declaration"
)

// MaxMessageBytes bounds every message either end reads. It leaves room for the
// largest declaration in base64.
const MaxMessageBytes = declaration.MaxBytes/3*4 + 1<<20

// Codec writes messages as JSON. It is a connect.Codec for both ends; its name
// replaces Connect's own "json". Unknown members are ignored, so that a newer
// end can say more; names given twice, and text that is not UTF-8, are refused.
type Codec struct{}

// Name is "json".
func (Codec) Name() string { return "json" }

// Marshal writes a message of this package, given by pointer.
func (Codec) Marshal(message any) ([]byte, error) {
	b, err := json.Marshal(message, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("write %T: %v", message, err)
	}
	return b, nil
}

// Unmarshal reads a message of this package into the pointer given.
func (Codec) Unmarshal(b []byte, message any) error {
	if len(b) > MaxMessageBytes {
		return fmt.Errorf("read %T: %d bytes, at most %d are read", message, len(b), MaxMessageBytes)
	}
	if err := json.Unmarshal(b, message); err != nil {
		return fmt.Errorf("read %T: %v", message, err)
	}
	return nil
}
