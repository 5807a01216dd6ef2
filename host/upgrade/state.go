package upgrade

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// stateFormat is the version of the document. Members may be added and never
// change meaning: it is read by older and newer versions than the one that wrote
// it.
const stateFormat = 1

// State is what is known of the versions of the program.
type State struct {
	Kept   *Kept    `json:"kept,omitempty"`   // nil: none proved itself yet
	Trial  *Trial   `json:"trial,omitempty"`  // nil: none is on trial
	Broken []Broken `json:"broken,omitempty"` // oldest first
}

// Kept is the version that proved itself last.
type Kept struct {
	Version string    `json:"version"`
	Digest  string    `json:"digest"`            // of the program
	Package string    `json:"package,omitempty"` // digest of the Debian package it came in, where that is kept
	Since   time.Time `json:"since"`
}

// Trial is a version that has not proved itself.
type Trial struct {
	Version  string    `json:"version,omitempty"` // empty: dpkg does not know it
	Digest   string    `json:"digest"`
	Since    time.Time `json:"since"`
	Starts   int       `json:"starts"`              // that began and were not called off
	Reason   string    `json:"reason,omitempty"`    // why one of them did not become healthy
	ReasonOf int       `json:"reason_of,omitempty"` // which one
}

// Broken is a version that did not become healthy.
type Broken struct {
	Version string    `json:"version,omitempty"` // empty: dpkg did not know it
	Digest  string    `json:"digest"`
	Since   time.Time `json:"since"`
	Reason  string    `json:"reason"`
}

type document struct {
	Format int `json:"format"`
	State
}

func (s State) text() ([]byte, error) {
	b, err := json.Marshal(document{stateFormat, s}, json.Deterministic(true))
	return append(b, '\n'), err
}

// parseState reads a document of this or another version.
func parseState(b []byte) (State, error) {
	var d document
	if err := json.Unmarshal(b, &d); err != nil {
		return State{}, err
	}
	if d.Format < 1 || d.Trial != nil && d.Trial.Starts < 0 {
		return State{}, fmt.Errorf("it is of format %d, and makes no sense", d.Format)
	}
	return d.State, nil
}

// String is what happened to a version, in one line.
func (b Broken) String() string {
	return fmt.Sprintf("version %s is broken since %s: %s", named(b.Version, b.Digest), b.Since.UTC().Format(time.RFC3339), b.Reason)
}

// named is a version's name: its digest where dpkg does not know it.
func named(version, digest string) string { return cmp.Or(version, digest) }

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
