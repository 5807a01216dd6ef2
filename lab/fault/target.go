package fault

import (
	"cmp"
	"fmt"
	"strings"

	"mesh/lab/scenario"
)

// TargetKind is what a target is.
type TargetKind string

// The kinds of targets.
const (
	Machine TargetKind = "machine" // all of its NICs, or the one in Segment
	Segment TargetKind = "segment" // in a partition: all machines there
	Router  TargetKind = "router"  // its link outside
	Service TargetKind = "service" // of the world
	World   TargetKind = "world"   // in a partition: the world's services
)

// Target is whom a fault strikes. Its text is "machine:one", "machine:one@home",
// "segment:home", "router:gate", "service:dns" or "world". A mere word has no
// kind until Resolve has looked for it.
type Target struct {
	Kind    TargetKind
	Name    string // empty for World
	Segment string // of a machine's NIC; empty: all of them
}

// ParseTarget reads a target's text: its names are such as a scenario may have.
// Whether it exists is Resolve's to say.
func ParseTarget(text string) (Target, error) {
	kind, name, qualified := strings.Cut(text, ":")
	if !qualified {
		kind, name = "", text
	}
	if text == string(World) {
		return Target{Kind: World}, nil
	}
	t := Target{Kind: TargetKind(kind), Name: name}
	switch t.Kind {
	case "", Machine:
		t.Name, t.Segment, _ = strings.Cut(name, "@")
		if strings.HasSuffix(name, "@") {
			t.Name = "" // refused below
		}
	case Segment, Router, Service:
	default:
		return Target{}, fmt.Errorf("%q is no kind of target; write machine:NAME, machine:NAME@SEGMENT, segment:NAME, router:NAME, service:NAME or world", kind)
	}
	if t.Name == "" || strings.ContainsAny(t.Name+t.Segment, "@: \t\n,") {
		return Target{}, fmt.Errorf("%q is no target; write NAME, machine:NAME, machine:NAME@SEGMENT, segment:NAME, router:NAME, service:NAME or world", text)
	}
	for _, name := range []string{t.Name, cmp.Or(t.Segment, t.Name)} {
		if err := scenario.CheckName(name); err != nil {
			return Target{}, fmt.Errorf("%q is no target: %v", text, err)
		}
	}
	return t, nil
}

// String is t's text.
func (t Target) String() string {
	text := t.Name
	if t.Segment != "" {
		text += "@" + t.Segment
	}
	switch t.Kind {
	case "":
		return text
	case World:
		return string(World)
	}
	return string(t.Kind) + ":" + text
}

// MarshalText is String's.
func (t Target) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText is ParseTarget's.
func (t *Target) UnmarshalText(text []byte) (err error) {
	*t, err = ParseTarget(string(text))
	return err
}
