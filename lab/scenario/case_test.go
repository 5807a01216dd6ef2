package scenario_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/scenario"
)

// base is a sound document with one place for everything that a case changes.
const base = `name: lab
segments:
  public:
    kind: public
    ipv4: 203.0.113.0/24
  home:
    kind: site
    ipv4: 192.168.1.0/24
routers:
  gateway:
    inside: home
    outside: public
    nat: easy
machines:
  one:
    memory: 512MiB
    segments: [public]
`

// TestCaseL11Names: names of 63 characters, upper case, non-ASCII, leading
// digits are refused where they stand; nothing is ever shortened.
func TestCaseL11Names(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, c := range []struct{ name, why string }{
		{long, "it has 63 characters, 32 are allowed"},
		{strings.Repeat("a", 33), "it has 33 characters, 32 are allowed"},
		{"One", `'O' is not allowed in it; write "one"`},
		{"café", `'é' is not allowed in it`},
		{"ωμέγα", `'ω' is not allowed in it`},
		{"1one", `it begins with '1'`},
		{"-one", `it begins with '-'`},
		{"one-", `it ends with '-'`},
		{"a_b", `'_' is not allowed in it`},
		{"a.b", `'.' is not allowed in it`},
		{"a b", `' ' is not allowed in it`},
	} {
		why := fmt.Sprintf("%q cannot be a name: %s", c.name, c.why)
		for _, place := range []struct{ from, to, at string }{
			{"name: lab", "name: %s", "1:7: name: "},
			{"  home:\n", "  %s:\n", "6:3: segment: "},
			{"  gateway:\n", "  %s:\n", "10:3: router: "},
			{"  one:\n", "  %s:\n", "15:3: machine: "},
		} {
			document := strings.Replace(base, place.from, fmt.Sprintf(place.to, c.name), 1)
			refuse(t, document, place.at+why)
		}
		if err := scenario.CheckName(c.name); err == nil {
			t.Errorf("CheckName accepts %q", c.name)
		}
	}
	for _, good := range []string{"a", "a1", "a-b", strings.Repeat("a", 32)} {
		document := strings.NewReplacer("one", good).Replace(base)
		if _, err := scenario.Parse("case.yaml", strings.NewReader(document)); err != nil {
			t.Errorf("the name %q is refused: %v", good, err)
		}
	}
}

// TestCaseL12Mistyped: what is mistyped is refused where it stands, and the
// nearest name is given.
func TestCaseL12Mistyped(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"memory", "memroy", `16:5: machine "one": unknown key "memroy"; did you mean "memory"?`},
		{"memory", "Memory", `16:5: machine "one": unknown key "Memory"; did you mean "memory"?`},
		{"machines", "machine", `14:1: scenario: unknown key "machine"; did you mean "machines"?`},
		{"    segments", "    image: a\n    image: b\n    segments", `18:5: machine "one": the key "image" stands twice, first in line 17`},
		{"memory: 512MiB", "display: yes", `16:14: machine "one": display: true or false is wanted and this is text`},
		{"512MiB", "512 MB?", `16:13: machine "one": memory: "512 MB?" is not a size; write a whole number followed by MiB or GiB, for example 512MiB`},
		{"512MiB", "512", `16:13: machine "one": memory: "512" is not a size`},
		{"512MiB", "0.5GiB", `16:13: machine "one": memory: "0.5GiB" is not a size`},
		{"512MiB", "255MiB", `16:13: machine "one": memory: 255MiB is out of range; give 256MiB to 256GiB`},
		{"512MiB", "257GiB", `16:13: machine "one": memory: 257GiB is out of range`},
		{"[public]", "[pubilc]", `17:16: machine "one": there is no segment "pubilc"; did you mean "public"? (known: public, home)`},
		{"outside: public", "outside: publik", `12:14: router "gateway": there is no segment "publik"; did you mean "public"?`},
		{"nat: easy", "nat: no", `13:10: router "gateway": nat: "no" is not one of its values; did you mean "none"? (known: easy, hard, one-to-one, none)`},
		{"kind: site", "kind: carier", `7:11: segment "home": kind: "carier" is not one of its values; did you mean "carrier"?`},
		{"nat: easy", "nat: symetric", `13:10: router "gateway": nat: "symetric" is not one of its values; known: easy, hard, one-to-one, none`},
		{"nat: easy", "firewal: closed", `13:5: router "gateway": unknown key "firewal"; did you mean "firewall"?`},
		{"nat: easy", "firewall: close", `13:15: router "gateway": firewall: "close" is not one of its values; did you mean "closed"?`},
		{"nat: easy", "mtu: 1279", `13:10: router "gateway": mtu: 1279 is out of range; give 1280 to 1500`},
		{"nat: easy", "too-big: lost", `13:14: router "gateway": too-big says what happens beyond an mtu, and there is none; add ` + "`mtu`"},
		{"[public]", "[public]\n    roams: [hom]", `18:13: machine "one": roams: there is no segment "hom"; did you mean "home"?`},
		{"[public]", "[no]", `17:16: machine "one": segments, number 1: no without quotes is no text to many readers of YAML; write "no" if the word is meant`},
		{"  one:", "  no:", `15:3: machine: no without quotes is no text to many readers of YAML; choose another name`},
		{"name: lab", "name: yes", `1:7: name: yes without quotes is no text`},
		{"kind: site", "kind: null", `7:11: segment "home": kind: "null" is not one of its values; known: public, site, carrier, isolated`},
		{"192.168.1.0/24", "203.0.113.128/25", `8:11: segment "home": 203.0.113.128/25 overlaps 203.0.113.0/24 of segment "public"`},
		{"  one:\n", "  one: {segments: [home]}\n  one:\n", `16:3: machines: the key "one" stands twice, first in line 15`},
	} {
		refuse(t, strings.Replace(base, c.from, c.to, 1), c.want)
	}
}

// refuse expects one problem of a document to begin with what is wanted.
func refuse(t *testing.T, document, want string) {
	t.Helper()
	s, err := scenario.Parse("case.yaml", strings.NewReader(document))
	var problems scenario.Problems
	if !errors.As(err, &problems) {
		t.Errorf("accepted, want %s\n%+v", want, s)
		return
	}
	for _, p := range problems {
		if strings.HasPrefix(p.String(), "case.yaml:"+want) {
			return
		}
	}
	t.Errorf("got  %v\nwant case.yaml:%s", err, want)
}

// TestDefaults: a document from before a key was there means what it meant.
func TestDefaults(t *testing.T) {
	s, err := scenario.Parse("case.yaml", strings.NewReader(`name: defaults
segments:
  public: {kind: public, ipv6: 2001:db8:1::/64}
  home: {kind: site, ipv6: 2001:db8:2::/64}
routers:
  gateway: {inside: home, outside: public}
machines:
  one: {segments: [home]}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := scenario.Machine{
		Name: "one", Image: "debian-13", ImageAt: scenario.Position{Line: 8, Column: 3},
		MemoryBytes: 512 << 20, CPUs: 1, Segments: []string{"home"},
	}
	if diff := cmp.Diff(want, s.Machines[0]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s.Routers[0].NAT != scenario.NATEasy {
		t.Errorf("nat is %q, want easy", s.Routers[0].NAT)
	}
}

func TestSizes(t *testing.T) {
	for written, want := range map[string]int64{"256MiB": 256 << 20, "1GiB": 1 << 30, "2048MiB": 2 << 30, "256GiB": 256 << 30} {
		s, err := scenario.Parse("case.yaml", strings.NewReader(strings.Replace(base, "512MiB", written, 1)))
		if err != nil {
			t.Error(err)
		} else if got := s.Machines[0].MemoryBytes; got != want {
			t.Errorf("%s is %d bytes, want %d", written, got, want)
		}
	}
}

func TestCheckImages(t *testing.T) {
	document := strings.Replace(base, "    memory: 512MiB\n", "    image: debian-31\n", 1) + "  two:\n    segments: [home]\n"
	s, err := scenario.Parse("case.yaml", strings.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CheckImages([]string{"debian-13", "debian-31"}).Err(); err != nil {
		t.Error(err)
	}
	want := `case.yaml:16:12: machine "one": there is no image recipe "debian-31"; did you mean "debian-13"? (known: debian-12, debian-13)`
	if got := s.CheckImages([]string{"debian-12", "debian-13"}).Error(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	want = `case.yaml:18:3: machine "two": there is no image recipe "debian-13"; did you mean "debian-31"? (known: debian-31)`
	if got := s.CheckImages([]string{"debian-31"}).Error(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestCheckFiles(t *testing.T) {
	document := base + `place:
  - {on: one, file: lab/there, to: /a}
  - {on: one, file: lab/absent, to: /b}
  - {on: one, file: lab, to: /c}
`
	s, err := scenario.Parse("case.yaml", strings.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	got := s.CheckFiles(fstest.MapFS{"lab/there": {}}).Error()
	want := `case.yaml:20:21: file "lab/absent" cannot be read beside the scenario: file does not exist; put it there or correct the name
case.yaml:21:21: "lab" is not a file; name one file for each step`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// TestReadFails tells a document that is wrong from one that was not read.
func TestReadFails(t *testing.T) {
	broken := errors.New("the disk is on fire")
	_, err := scenario.Parse("case.yaml", failing{broken})
	var problems scenario.Problems
	if !errors.Is(err, broken) || errors.As(err, &problems) {
		t.Errorf("got %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestBoundedWork: what is large or deep is refused before much is done with it.
func TestBoundedWork(t *testing.T) {
	refuse(t, base+strings.Repeat("#", scenario.SizeLimit), "1:1: the document has more than 64 KiB")
	refuse(t, strings.Repeat("[", 17), "1:17: more than 16 brackets are open here")
	refuse(t, strings.Repeat("{a: ", 17), "1:65: more than 16 brackets are open here")

	endless := &endless{}
	if _, err := scenario.Parse("case.yaml", endless); err == nil || endless.read > 2*scenario.SizeLimit {
		t.Errorf("read %d bytes: %v", endless.read, err)
	}
}

// endless is a document without end, up to where a test gives up.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	if e.read > 100*scenario.SizeLimit {
		return 0, io.EOF
	}
	for i := range b {
		b[i] = '#'
	}
	e.read += len(b)
	return len(b), nil
}
