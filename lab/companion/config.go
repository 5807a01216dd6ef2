package companion

import (
	"fmt"
	"io"
	"os"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Config is how a companion's configuration, a C, goes from who starts it to the
// process: as strict JSON in a file.
type Config[C any] struct {
	What  string        // it is, in errors: "world configuration"
	Check func(C) error // finds what the companion could not run with
}

// Parse reads a configuration as Write wrote it. Unknown and repeated members, and
// what Check finds, are refused.
func (k Config[C]) Parse(r io.Reader) (C, error) {
	var c, none C
	if err := json.UnmarshalRead(r, &c, json.RejectUnknownMembers(true)); err != nil {
		return none, fmt.Errorf("read %s: %v", k.What, err)
	}
	return c, k.Check(c)
}

// Read reads a configuration from a file.
func (k Config[C]) Read(path string) (C, error) {
	var none C
	f, err := os.Open(path)
	if err != nil {
		return none, fmt.Errorf("read %s: %v", k.What, err)
	}
	defer f.Close()
	c, err := k.Parse(f)
	if err != nil {
		return none, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// Write replaces a file with a configuration that Check finds nothing in.
func (k Config[C]) Write(path string, c C) error {
	err := k.Check(c)
	var text []byte
	if err == nil {
		text, err = json.Marshal(c, jsontext.WithIndent("  "), json.Deterministic(true))
	}
	if err == nil {
		err = os.WriteFile(path+".new", append(text, '\n'), 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("write %s %s: %w", k.What, path, err)
	}
	return nil
}
