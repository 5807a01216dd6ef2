package fault_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mesh/lab/fault"
	"mesh/lab/scenario"
	"mesh/lab/underlay"
	"mesh/nesting"
)

// town has machines, segments and routers, and one name of two things.
func town(t testing.TB) underlay.Underlay {
	t.Helper()
	s, err := scenario.Parse("town.yaml", strings.NewReader(`
name: town
segments:
  public: {kind: public, ipv4: 203.0.113.0/24}
  home: {kind: site, ipv4: 192.168.1.0/24}
routers:
  gate: {inside: home, outside: public}
machines:
  one: {segments: [public, home]}
  two: {segments: [home]}
  home: {segments: [home]}
`))
	if err != nil {
		t.Fatal(err)
	}
	u, err := underlay.Plan(s, "00000001")
	if err != nil {
		t.Fatal(err)
	}
	return *u
}

func TestValues(t *testing.T) {
	read := func(key, text string) string {
		var f fault.Fault
		if err := f.Set(key, text); err != nil {
			return "refused"
		}
		return strings.TrimPrefix(f.String(), " "+key+"=")
	}
	for key, cases := range map[string]map[string]string{
		"share": {"30%": "30%", "0.5%": "0.5%", "100%": "100%", "0%": "refused", "100.1%": "refused", "30": "refused", "-1%": "refused", "1e1%": "refused"},
		"delay": {
			"150ms": "150ms", "1d": "1d", "1d12h": "1d12h", "90m": "1h30m", "1h0m0s": "1h", "-2h": "-2h", "-1d1h": "-1d1h",
			"0s": "refused", "5": "refused", "1d-1h": "refused", "d": "refused", "99999d": "refused", "36500d": "36500d", "": "refused",
		},
		"rate":       {"2Mbit/s": "2Mbit/s", "1MiB/s": "8388608bit/s", "1.5Mbit/s": "1500kbit/s", "1bit/s": "refused", "2M": "refused", "Mbit/s": "refused"},
		"size":       {"64MiB": "64MiB", "1024MiB": "1GiB", "1.5KiB": "1536B", "0B": "refused", "64MB": "refused", "1.2.3B": "refused"},
		"operations": {"50": "50", "0": "refused", "+5": "refused", "x": "refused"},
		"drift":      {"500ppm": "500ppm", "-2%": "-20000ppm", "0ppm": "refused", "11%": "refused", "1.5%": "refused"},
		"direction":  {"out": "out", "up": "refused"},
		"how":        {"silent": "silent", "loud": "refused"},
		"from":       {"one,segment:home": "one,segment:home", "world": "world", "a,,b": "refused", "": "refused"},
		"nothing":    {"x": "refused"},
	} {
		for text, want := range cases {
			if got := read(key, text); got != want {
				t.Errorf("%s %q: %q, want %q", key, text, got, want)
			}
		}
	}
}

func TestTargets(t *testing.T) {
	for text, want := range map[string]string{
		"one": "one", "machine:one": "machine:one", "one@home": "one@home", "machine:one@home": "machine:one@home",
		"segment:home": "segment:home", "router:gate": "router:gate", "service:dns": "service:dns", "world": "world",
		"": "", ":": "", "machine:": "", "one@": "", "vm:one": "", "segment:a@b": "", "a b": "", "a,b": "", "a@b@c": "", "machine:a:b": "",
	} {
		got, err := fault.ParseTarget(text)
		if (err != nil) != (want == "") || err == nil && got.String() != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}

// TestResolve finds targets, and says everything that is wrong.
func TestResolve(t *testing.T) {
	u := town(t)
	for _, c := range []struct {
		fault fault.Fault
		want  string // its text, or what its problems say
	}{
		{fault.Fault{Kind: fault.Loss, On: on("one", "public"), Share: 1}, "loss machine:one segment:public share=0.0001%"},
		{fault.Fault{Kind: fault.Pause, On: on("home")}, "pause machine:home"},
		{fault.Fault{Kind: fault.Loss, On: on("home"), Share: 1}, `on: "home" is several: write machine:home or segment:home`},
		{fault.Fault{Kind: fault.Loss, On: on("onw"), Share: 1}, `did you mean "one"`},
		{fault.Fault{Kind: fault.LinkDown, On: on("two@public")}, `machine two stands in no segment "public"; known: home`},
		{fault.Fault{Kind: fault.Pause, On: on("one@home")}, "pause strikes a whole machine; write machine:one"},
		{fault.Fault{Kind: fault.Pause, On: on("segment:home")}, "pause cannot strike segment:home"},
		{fault.Fault{Kind: fault.Pause, On: on("one", "one")}, "one stands twice"},
		{fault.Fault{Kind: fault.Pause}, "pause needs a target: machine"},
		{fault.Fault{Kind: fault.Partition, On: on("one"), From: on("world", "two")}, "partition machine:one from=world,machine:two"},
		{fault.Fault{Kind: fault.Partition, On: on("one"), From: on("machine:one")}, "machine:one stands on both sides"},
		{fault.Fault{Kind: fault.Partition, On: on("one")}, "from: partition needs it"},
		{fault.Fault{Kind: fault.Delay, On: on("gate"), Delay: 5, Jitter: 6}, "jitter: 6ns is out of range"},
		{fault.Fault{Kind: fault.Delay, On: on("segment:home"), Delay: 5, Direction: fault.In}, "a segment has no inside"},
		{fault.Fault{Kind: fault.LinkDown, On: on("two", "gate")}, "machines and routers are struck by faults of their own"},
		{fault.Fault{Kind: fault.ServiceStopped, On: on("dsn")}, `did you mean "dns"`},
		{fault.Fault{Kind: fault.DNSFailing, How: fault.Reset}, `how: "reset" is not one of its values`},
		{fault.Fault{Kind: fault.DNSFailing, Zone: "a b"}, "zone: \"a b\" is no name"},
		{fault.Fault{Kind: fault.IssuerLimited, RetryIn: fault.Duration(time.Millisecond)}, "retry-after: 1ms is no number of whole seconds"},
		{fault.Fault{Kind: "los"}, `did you mean "loss"`},
		{fault.Fault{Kind: fault.IssuerExpired, Name: "all"}, `"all" cannot be a fault's name`},
	} {
		f, err := fault.Resolve(c.fault, u)
		got := f.String()
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%v: %q, want %q", c.fault, got, c.want)
		}
	}
}

func on(words ...string) (targets []fault.Target) {
	for _, w := range words {
		t, err := fault.ParseTarget(w)
		if err != nil {
			panic(err)
		}
		targets = append(targets, t)
	}
	return targets
}

// TestNamed gives names that are free, and that can be names.
func TestNamed(t *testing.T) {
	taken := []string{"loss-one"}
	free := func(n string) bool { return slices.Contains(taken, n) }
	for want, f := range map[string]fault.Fault{
		"loss-one-2":  {Kind: fault.Loss, On: on("one", "two")},
		"dns-failing": {Kind: fault.DNSFailing},
		"mine":        {Kind: fault.Loss, Name: "mine"},
	} {
		if got := fault.Named(f, free).Name; got != want {
			t.Errorf("%v: %q, want %q", f, got, want)
		}
	}
	for _, k := range fault.Kinds() {
		long := fault.Named(fault.Fault{Kind: k.Kind, On: on(strings.Repeat("x", 32))}, func(string) bool { return false })
		if err := fault.CheckName(long.Name); err != nil {
			t.Error(err)
		}
	}
}

// TestForms: what a kind needs and takes are parameters, and its example is taken.
func TestForms(t *testing.T) {
	u := town(t)
	for _, k := range fault.Kinds() {
		f := fault.Fault{Kind: k.Kind}
		if len(k.On) > 0 {
			candidates := fault.Candidates(k, u)
			if len(candidates) == 0 {
				t.Errorf("%s strikes nobody", k.Kind)
				continue
			}
			f.On = on(candidates[0])
		}
		for _, key := range slices.Concat(k.Needs, k.Takes) {
			i := slices.IndexFunc(fault.Parameters(), func(p fault.Parameter) bool { return p.Key == key })
			if i < 0 {
				t.Errorf("%s takes %q, which is none", k.Kind, key)
				continue
			}
			example := fault.Parameters()[i].Example
			if key == "how" {
				example = string(k.Hows[0])
			}
			if key == "from" {
				example = "world"
			}
			if err := f.Set(key, example); err != nil {
				t.Errorf("%s: %s: %v", k.Kind, key, err)
			}
		}
		if _, err := fault.Resolve(f, u); err != nil {
			t.Errorf("%v: %v", f, err)
		}
	}
}

// Whatever is read is written so that it is read again as it was, as text and as JSON.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := fault.Fault{
			Name: "x", Kind: fault.Loss, On: on("machine:one@home", "segment:home"), From: on("world"),
			Share:   fault.Share(rapid.Int64Range(0, int64(fault.Whole)).Draw(rt, "share")),
			Delay:   fault.Duration(rapid.Int64Range(-int64(36499*24*time.Hour), int64(36499*24*time.Hour)).Draw(rt, "delay")),
			Rate:    fault.Rate(rapid.Int64Range(8000, 1e12).Draw(rt, "rate")),
			Size:    fault.Size(rapid.Int64Range(0, 1<<40).Draw(rt, "size")),
			Drift:   fault.Drift(rapid.Int64Range(-int64(fault.MostDrift), int64(fault.MostDrift)).Draw(rt, "drift")),
			Ops:     fault.Count(rapid.Int64Range(0, 1e9).Draw(rt, "operations")),
			RetryIn: fault.Duration(rapid.Int64Range(0, 1e6).Draw(rt, "retry")) * fault.Duration(time.Second),
		}
		data, err := json.Marshal(f)
		if err != nil {
			rt.Fatal(err)
		}
		var again fault.Fault
		if err := json.Unmarshal(data, &again); err != nil {
			rt.Fatalf("%s: %v", data, err)
		}
		if diff := cmp.Diff(f, again); diff != "" {
			rt.Fatalf("%s (-want +got):\n%s", data, diff)
		}
	})
}

// FuzzFault: no text of any parameter or target makes a fault that is not written
// as it is read.
func FuzzFault(f *testing.F) {
	for _, p := range fault.Parameters() {
		f.Add(p.Key, p.Example)
	}
	f.Add("on", "machine:one@home")
	f.Add("delay", "1d12h30m0.5s")
	f.Fuzz(func(t *testing.T, key, text string) {
		if key == "on" {
			target, err := fault.ParseTarget(text)
			if again, errAgain := fault.ParseTarget(target.String()); err == nil && (errAgain != nil || again != target) {
				t.Errorf("%q became %q, %v", text, again, errAgain)
			}
			return
		}
		var one, two fault.Fault
		if one.Set(key, text) != nil {
			return
		}
		written := strings.TrimPrefix(one.String(), " "+key+"=")
		if err := two.Set(key, written); err != nil || !cmp.Equal(one, two) {
			t.Errorf("%s %q: %+v, written %q and read %+v, %v", key, text, one, written, two, err)
		}
	})
}

// FuzzTimeline: a timeline that is taken has steps in order that can be done.
func FuzzTimeline(f *testing.F) {
	f.Add("steps:\n  - at: 10s\n    fault: loss\n    on: [two]\n    share: 30%\n    for: 1m\n  - at: 2m\n    undo: all\n")
	f.Add("steps: [{at: 0s, fault: partition, on: one, from: [two, world], name: split}, {at: 1d, undo: split}]")
	f.Add("steps:\n  - &a {at: 1s}\n  - *a\n")
	f.Add("steps: [[[")
	f.Add("steps: [{at: 1s, fault: loss, on: [Q], share: 3%}]")
	f.Fuzz(func(t *testing.T, text string) {
		timeline, err := fault.ParseTimeline("t.yaml", strings.NewReader(text))
		if err != nil {
			var problems scenario.Problems
			if !errors.As(err, &problems) || len(problems) == 0 {
				t.Errorf("refused without a place: %v", err)
			}
			return
		}
		for i, s := range timeline.Steps {
			if (s.Add == nil) == (s.Undo == "") || s.At < 0 || s.Line < 1 {
				t.Errorf("step %+v", s)
			}
			if i > 0 && s.At < timeline.Steps[i-1].At {
				t.Errorf("step %d is before the one before it", i)
			}
			if s.Add != nil && len(fault.Check(*s.Add)) > 0 {
				t.Errorf("%v: %v", s.Add, fault.Check(*s.Add))
			}
		}
	})
}

// TestTimelineRefused says everything at once, each with its place.
func TestTimelineRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "t.yaml:1:1: a timeline is one document",
		"stops: []":                             `t.yaml:1:1: timeline: unknown key "stops"; did you mean "steps"`,
		"steps: {}":                             "t.yaml:1:8: steps: a list is wanted",
		"steps:\n  - at: 1s":                    `t.yaml:2:5: steps, number 1: exactly one of the keys "fault" and "undo"`,
		"steps: [{at: 1s, undo: all, for: 1s}]": `beside "undo" there is only "at"`,
		"steps: [{at: 1s, fault: reset, on: one, for: 1s}]":                                         `reset is over at once`,
		"steps: [{at: 1s, fault: pause, on: one}, {at: 2s, undo: pause-won}]":                       `did you mean "pause-one"`,
		"steps: [{at: 1s, fault: pause, on: one, name: a}, {at: 2s, fault: pause, on: b, name: a}]": `the name "a" is that of the fault in line 1`,
		"steps: [{at: -1s, undo: all}]":                                                             "it is below zero",
		"steps: [{at: 1s, fault: loss, on: one}]":                                                   "share: loss needs it",
		"steps: [{at: 1s, fault: pause, on: vm:one}]":                                               `"vm" is no kind of target`,
		"steps: [{at: 1s, fault: pause, on: [one, {a: b}]}]":                                        "a word is wanted",
		"steps: [": "not YAML",
		"steps:\n- [" + strings.Repeat("[", nesting.Limit): "t.yaml:2:19: more than 16 brackets",
		"a: 1\n---\nb: 2": "this has 2",
	} {
		_, err := fault.ParseTimeline("t.yaml", strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}

// Of a step that is wrong in one way everything else that is wrong is told, and
// nothing is that only follows from it.
func TestTimelineTellsAllAtOnce(t *testing.T) {
	_, err := fault.ParseTimeline("t.yaml", strings.NewReader(`steps:
  - at: 1s
    fault: los
    name: split
    on: one
    shar: 30%
  - at: 2s
    fault: lass
    share: 300%%
  - at: 3s
    undo: split
`))
	if err == nil {
		t.Fatal("it is accepted")
	}
	var told []string
	for line := range strings.Lines(err.Error()) {
		line, _, _ = strings.Cut(line, "; ")
		told = append(told, line)
	}
	want := []string{
		`t.yaml:3:12: steps, number 1: kind: there is no kind "los"`,
		`t.yaml:6:5: steps, number 1: unknown key "shar"`,
		`t.yaml:8:12: steps, number 2: kind: there is no kind "lass"`,
		`t.yaml:9:12: steps, number 2: share: "300%%" is no share`,
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Error(diff)
	}
}
