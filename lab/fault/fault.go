// Package fault is the vocabulary of what can be done to a running scenario: the
// kinds of faults, whom they strike, how hard, and by which name each is undone.
//
// It is pure. A Fault is a value that commands, timelines, records and the world
// pass on unchanged; Check holds it to what its kind asks for and to the scenario
// that it is meant for. Nothing here strikes anybody: the world does, for faults
// of networks and services, and lab/lifecycle, for those of machines.
//
// Anything of lab and cmd/lab may import it.
package fault

import (
	"fmt"
	"regexp"
	"strings"
)

// Fault is one fault, in force or to be. Which of its members may and must be
// set depends on its kind; see Kinds.
type Fault struct {
	// Name is what it is undone by; unique in a scenario. See CheckName.
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	// On are those that it strikes, From those that a partition cuts them off from.
	On   []Target `json:"on,omitzero"`
	From []Target `json:"from,omitzero"`

	Direction Direction `json:"direction,omitzero"`   // zero: both
	Share     Share     `json:"share,omitzero"`       // of frames lost, of requests refused
	Delay     Duration  `json:"delay,omitzero"`       // of each frame or request
	Jitter    Duration  `json:"jitter,omitzero"`      // at most that much more or less
	Reorder   Share     `json:"reorder,omitzero"`     // of frames that overtake the delayed ones
	Rate      Rate      `json:"rate,omitzero"`        // at most
	Ops       Count     `json:"operations,omitzero"`  // of a disk, a second, at most
	Size      Size      `json:"size,omitzero"`        // of memory held
	Leave     Size      `json:"leave,omitzero"`       // of a disk, that stays free
	By        Duration  `json:"by,omitzero"`          // of a clock's step; may be negative
	Drift     Drift     `json:"drift,omitzero"`       // of a clock; may be negative
	How       How       `json:"how,omitzero"`         // zero: the kind's first
	Zone      string    `json:"zone,omitzero"`        // of names; zero: all
	RetryIn   Duration  `json:"retry_after,omitzero"` // whole seconds; zero: an hour
}

// Direction is seen from those that a fault strikes.
type Direction string

// The directions.
const (
	Both Direction = "both"
	Out  Direction = "out" // what they send
	In   Direction = "in"  // what they receive
)

// Sends tells whether d holds for what is sent, Receives for what is received.
func (d Direction) Sends() bool    { return d != In }
func (d Direction) Receives() bool { return d != Out }

// Reverse is d as those on the other side see it.
func (d Direction) Reverse() Direction {
	switch d {
	case Out:
		return In
	case In:
		return Out
	}
	return d
}

// How is the manner of a fault that has several.
type How string

// The manners.
const (
	ServFail    How = "servfail"    // of DNS
	Silent      How = "silent"      // of DNS: no answer
	NXDomain    How = "nxdomain"    // of DNS: the name does not exist
	Unavailable How = "unavailable" // of the issuer: 503
	Internal    How = "internal"    // of the issuer: 500
	Reset       How = "reset"       // of the issuer: the connection is cut
	Reads       How = "reads"       // of a disk
	Writes      How = "writes"      // of a disk
	All         How = "all"         // of a disk: reads and writes
)

// nameForm keeps names usable as words of a shell and as parts of file names.
var nameForm = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

// CheckName tells why a fault cannot have a name.
func CheckName(name string) error {
	if nameForm.MatchString(name) && name != "all" {
		return nil
	}
	return fmt.Errorf("%q cannot be a fault's name: use at most 63 of a-z, 0-9 and -, beginning with a letter and not ending with -, and not \"all\"", name)
}

// Named gives f a name that tells what it is and that is none of taken, if it
// has none.
func Named(f Fault, taken func(name string) bool) Fault {
	if f.Name != "" {
		return f
	}
	base := string(f.Kind)
	if len(f.On) > 0 {
		base += "-" + f.On[0].Name
	}
	if len(base) > 56 {
		base = base[:56]
	}
	f.Name = strings.TrimRight(base, "-")
	for n := 2; taken(f.Name); n++ {
		f.Name = fmt.Sprintf("%s-%d", base, n)
	}
	return f
}

// String is f in one line, as a command would say it, without its name.
func (f Fault) String() string { return f.words(f.On) }

// Effect is String without those that f strikes.
func (f Fault) Effect() string { return f.words(nil) }

func (f Fault) words(on []Target) string {
	words := []string{string(f.Kind)}
	for _, t := range on {
		words = append(words, t.String())
	}
	for _, p := range parameters {
		if text := p.text(&f); text != "" {
			words = append(words, p.Key+"="+text)
		}
	}
	return strings.Join(words, " ")
}
