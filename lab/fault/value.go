package fault

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Share is a part of a whole, in millionths. Its text is "30%" or "0.5%".
type Share int64

// Whole is all of it.
const Whole Share = 1_000_000

var shareForm = regexp.MustCompile(`^[0-9]{1,3}(\.[0-9]{1,4})?%$`)

// UnmarshalText reads a share of more than nothing.
func (s *Share) UnmarshalText(text []byte) error {
	if !shareForm.Match(text) {
		return fmt.Errorf("%q is no share; write a number of per cent, such as 30%%", text)
	}
	n, err := strconv.ParseFloat(strings.TrimSuffix(string(text), "%"), 64)
	*s = Share(math.Round(n * 1e4))
	if err != nil || *s <= 0 || *s > Whole {
		return fmt.Errorf("%q is out of range; give more than 0%% and at most 100%%", text)
	}
	return nil
}

func (s Share) String() string { return trim(float64(s)/1e4) + "%" }

// MarshalText is String's.
func (s Share) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Duration is a time span; its text is Go's, with days: "150ms", "1d12h", "-2h".
type Duration time.Duration

const day = 24 * time.Hour

var daysForm = regexp.MustCompile(`^([+-]?)([0-9]{1,5})d(.*)$`)

// UnmarshalText reads a duration, not zero, of at most 36500 days either way.
func (d *Duration) UnmarshalText(text []byte) error {
	rest, sign, days := string(text), "", int64(0)
	if m := daysForm.FindStringSubmatch(rest); m != nil {
		sign, rest = m[1], m[3]
		days, _ = strconv.ParseInt(m[2], 10, 64) // five digits at most
		if rest == "" {
			rest = "0"
		}
		if strings.ContainsAny(rest[:1], "+-") {
			rest = "?"
		}
	}
	span, err := time.ParseDuration(rest)
	if err != nil || len(text) > 40 {
		return fmt.Errorf("%q is no duration; write a number and its unit, such as 150ms, 30s, 2h or 1d", text)
	}
	const most = 36500 * day
	if days > 36500 || span > most || span < -most {
		return fmt.Errorf("%q is out of range; give at most 36500d", text)
	}
	span += time.Duration(days) * day
	if sign == "-" {
		span = -span
	}
	if span == 0 || span > most || span < -most {
		return fmt.Errorf("%q is out of range; give more than nothing and at most 36500d", text)
	}
	*d = Duration(span)
	return nil
}

func (d Duration) String() string {
	span, sign := time.Duration(d), ""
	if span < 0 {
		span, sign = -span, "-"
	}
	text := ""
	if days := span / day; days > 0 {
		text, span = fmt.Sprintf("%dd", days), span%day
	}
	if span > 0 || text == "" {
		rest := span.String()
		if strings.HasSuffix(rest, "m0s") {
			rest = strings.TrimSuffix(rest, "0s")
		}
		if strings.HasSuffix(rest, "h0m") {
			rest = strings.TrimSuffix(rest, "0m")
		}
		text += rest
	}
	return sign + text
}

// MarshalText is String's.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// unit is one spelling of a multiple.
type unit struct {
	name string
	of   int64
}

// measure reads a whole or decimal number followed by one of units.
func measure(text, example string, units []unit) (int64, error) {
	end := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end > 0 && end <= 16 {
		n, err := strconv.ParseFloat(text[:end], 64)
		for _, u := range units {
			if u.name != text[end:] || err != nil {
				continue
			}
			if value := n * float64(u.of); value >= 1 && value < 1<<53 {
				return int64(math.Round(value)), nil
			}
			return 0, fmt.Errorf("%q is out of range", text)
		}
	}
	names := make([]string, len(units))
	for i, u := range units {
		names[i] = u.name
	}
	return 0, fmt.Errorf("%q is not understood; write a number and one of %s, such as %s", text, strings.Join(names, ", "), example)
}

// spell writes value in the largest of units that divides it; the first has size 1.
func spell(value int64, units []unit) string {
	best := units[0]
	for _, u := range units {
		if u.of > best.of && value%u.of == 0 {
			best = u
		}
	}
	return strconv.FormatInt(value/best.of, 10) + best.name
}

// Rate is bits a second. Its text is "2Mbit/s" or "1MiB/s".
type Rate int64

var rateUnits = []unit{
	{"bit/s", 1}, {"kbit/s", 1e3}, {"Mbit/s", 1e6}, {"Gbit/s", 1e9},
	{"B/s", 8}, {"kB/s", 8e3}, {"MB/s", 8e6}, {"KiB/s", 8 << 10}, {"MiB/s", 8 << 20},
}

// UnmarshalText reads a rate of at least 8 kbit/s.
func (r *Rate) UnmarshalText(text []byte) error {
	n, err := measure(string(text), "2Mbit/s", rateUnits)
	if err == nil && n < 8000 {
		err = fmt.Errorf("%q is out of range; give at least 8kbit/s", text)
	}
	*r = Rate(n)
	return err
}

func (r Rate) String() string { return spell(int64(r), rateUnits[:4]) }

// MarshalText is String's.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Bytes is the rate in bytes a second.
func (r Rate) Bytes() int64 { return int64(r) / 8 }

// Size is a number of bytes. Its text is "64MiB".
type Size int64

var sizeUnits = []unit{{"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}}

// UnmarshalText reads a size of at least one byte.
func (s *Size) UnmarshalText(text []byte) error {
	n, err := measure(string(text), "64MiB", sizeUnits)
	*s = Size(n)
	return err
}

func (s Size) String() string { return spell(int64(s), sizeUnits) }

// MarshalText is String's.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Count is a number of things. Its text is "50".
type Count int64

// UnmarshalText reads a count of at least one.
func (c *Count) UnmarshalText(text []byte) error {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 1 || n > 1e9 || text[0] == '+' {
		return fmt.Errorf("%q is no number from 1 to 1000000000", text)
	}
	*c = Count(n)
	return nil
}

func (c Count) String() string { return strconv.FormatInt(int64(c), 10) }

// MarshalText is String's.
func (c Count) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Drift is how much faster than time a clock goes, in parts per million. Its
// text is "500ppm" or "-2%".
type Drift int64

// MostDrift is what the kernel can do: a tenth, adjtimex(2).
const MostDrift Drift = 100_000

var driftForm = regexp.MustCompile(`^[+-]?[0-9]{1,6}(ppm|%)$`)

// UnmarshalText reads a drift that is not zero.
func (d *Drift) UnmarshalText(text []byte) error {
	if !driftForm.Match(text) {
		return fmt.Errorf("%q is no drift; write a number of ppm or %%, such as 500ppm or -1%%", text)
	}
	word, percent := strings.CutSuffix(string(text), "%")
	n, err := strconv.ParseInt(strings.TrimSuffix(word, "ppm"), 10, 64)
	if percent {
		n *= 10_000
	}
	*d = Drift(n)
	if err != nil || *d == 0 || *d > MostDrift || *d < -MostDrift {
		return fmt.Errorf("%q is out of range; give at most 10%% either way, and not nothing", text)
	}
	return nil
}

func (d Drift) String() string { return strconv.FormatInt(int64(d), 10) + "ppm" }

// MarshalText is String's.
func (d Drift) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func trim(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

const second = time.Second

// maxDelay bounds what is kept waiting.
const maxDelay = time.Minute
