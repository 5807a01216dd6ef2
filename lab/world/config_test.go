package world_test

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"mesh/lab/world"
)

func TestConfigRoundTrip(t *testing.T) {
	want := config(t, plan(t, town, "00000020"))
	path := filepath.Join(t.TempDir(), "world.json")
	if err := world.WriteConfig(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := world.ReadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestConfigRefused(t *testing.T) {
	const good = `"underlay":{"namespace":"ml-1"},"repositories":{},"log":"/l"`
	for name, c := range map[string]struct{ text, says string }{
		"unknown key":    {`{` + good + `,"control":"/c","contrl":""}`, "contrl"},
		"duplicate key":  {`{` + good + `,"control":"/c","control":"/d"}`, "duplicate"},
		"other case":     {`{` + good + `,"Control":"/c"}`, "Control"},
		"cut short":      {`{` + good, "EOF"},
		"more than one":  {`{` + good + `,"control":"/c"}{}`, "after top-level value"},
		"not absolute":   {`{` + good + `,"control":"c"}`, `"c" is not an absolute path`},
		"long socket":    {`{` + good + `,"control":"/` + strings.Repeat("c", 107) + `"}`, "at most 107"},
		"no namespace":   {`{"control":"/c","log":"/l"}`, "underlay.namespace"},
		"repository":     {`{"underlay":{"namespace":"x"},"control":"/c","log":"/l","repositories":{"a/b":"/r"}}`, "a/b"},
		"all at once":    {`{"repositories":{"..":"r"}}`, `".."`},
		"all at once, 2": {`{"repositories":{"..":"r"}}`, "control"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := world.ParseConfig(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an error with %q", err, c.says)
			}
		})
	}
}

// FuzzParseConfig: no input panics, and what is accepted is written and read back
// the same.
func FuzzParseConfig(f *testing.F) {
	path := filepath.Join(f.TempDir(), "world.json")
	if err := world.WriteConfig(path, config(f, plan(f, town, "00000021"))); err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"underlay":{"namespace":"x"},"control":"/c","log":"/l"}`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, text []byte) {
		first, err := world.ParseConfig(bytes.NewReader(text))
		if err != nil {
			return
		}
		path := filepath.Join(t.TempDir(), "world.json")
		if err := world.WriteConfig(path, first); err != nil {
			t.Fatal(err)
		}
		second, err := world.ReadConfig(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first, second, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("(-first +second):\n%s", diff)
		}
	})
}
