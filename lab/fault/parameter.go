package fault

import (
	"encoding"
	"fmt"
	"slices"
	"strings"
)

// Parameter is one thing that can be said of a fault beside whom it strikes.
type Parameter struct {
	Key   string `json:"key"`
	About string `json:"about"`
	// Example is a value that it takes.
	Example string `json:"example"`

	set  func(f *Fault, text string) error
	text func(f *Fault) string // empty where it is not set
}

// number is a parameter whose zero value means that it is not set.
func number[T interface {
	~int64
	fmt.Stringer
}, P interface {
	*T
	encoding.TextUnmarshaler
}](key, example, about string, field func(*Fault) *T) Parameter {
	return Parameter{Key: key, About: about, Example: example,
		set: func(f *Fault, text string) error { return P(field(f)).UnmarshalText([]byte(text)) },
		text: func(f *Fault) string {
			if v := *field(f); v != 0 {
				return v.String()
			}
			return ""
		},
	}
}

// word is a parameter that is one of some words; known may be nil for any.
func word[T ~string](key, example, about string, known []string, field func(*Fault) *T) Parameter {
	return Parameter{Key: key, About: about, Example: example,
		set: func(f *Fault, text string) error {
			if known != nil && !slices.Contains(known, text) {
				return fmt.Errorf("%q is not one of its values; %s", text, suggest(text, known))
			}
			*field(f) = T(text)
			return nil
		},
		text: func(f *Fault) string { return string(*field(f)) },
	}
}

var hows = []string{
	string(ServFail), string(Silent), string(NXDomain), string(Unavailable), string(Internal), string(Reset),
	string(Reads), string(Writes), string(All),
}

// parameters are all there are, in the order of String. Their keys are those of
// timelines and, with two hyphens, of the command line.
var parameters = []Parameter{
	{
		Key: "from", Example: "two,segment:home", About: "those that they are cut off from, separated by commas",
		set: func(f *Fault, text string) error {
			f.From = nil
			for one := range strings.SplitSeq(text, ",") {
				t, err := ParseTarget(one)
				if err != nil {
					return err
				}
				f.From = append(f.From, t)
			}
			return nil
		},
		text: func(f *Fault) string {
			all := make([]string, len(f.From))
			for i, t := range f.From {
				all[i] = t.String()
			}
			return strings.Join(all, ",")
		},
	},
	word("direction", "out", "both, out (what they send) or in (what they receive); default both",
		[]string{string(Both), string(Out), string(In)}, func(f *Fault) *Direction { return &f.Direction }),
	number("share", "30%", "how much of it", func(f *Fault) *Share { return &f.Share }),
	number("delay", "150ms", "how much later", func(f *Fault) *Duration { return &f.Delay }),
	number("jitter", "20ms", "at most that much sooner or later", func(f *Fault) *Duration { return &f.Jitter }),
	number("reorder", "5%", "how much of it is not delayed, and overtakes", func(f *Fault) *Share { return &f.Reorder }),
	number("rate", "2Mbit/s", "at most that fast", func(f *Fault) *Rate { return &f.Rate }),
	number("operations", "50", "at most that many a second", func(f *Fault) *Count { return &f.Ops }),
	number("size", "64MiB", "how much memory is held", func(f *Fault) *Size { return &f.Size }),
	number("leave", "1MiB", "how much stays free; default nothing", func(f *Fault) *Size { return &f.Leave }),
	number("by", "-1d", "how far the clock is set", func(f *Fault) *Duration { return &f.By }),
	number("drift", "500ppm", "how much too fast the clock goes; below zero, too slow", func(f *Fault) *Drift { return &f.Drift }),
	word("how", "servfail", "the manner, as \"lab fault kinds\" lists them", hows, func(f *Fault) *How { return &f.How }),
	word("zone", "world.test", "names in this zone only; default all", nil, func(f *Fault) *string { return &f.Zone }),
	number("retry-after", "30s", "when a client may come again; default 1h", func(f *Fault) *Duration { return &f.RetryIn }),
}

// Parameters are all there are; which of them a kind takes is in Kinds.
func Parameters() []Parameter { return slices.Clone(parameters) }

func parameter(key string) (Parameter, bool) {
	i := slices.IndexFunc(parameters, func(p Parameter) bool { return p.Key == key })
	if i < 0 {
		return Parameter{}, false
	}
	return parameters[i], true
}

// Set reads one parameter of f. An error leaves nothing said of f that holds.
func (f *Fault) Set(key, text string) error {
	p, known := parameter(key)
	if !known {
		return fmt.Errorf("there is no parameter %q", key)
	}
	return p.set(f, text)
}
