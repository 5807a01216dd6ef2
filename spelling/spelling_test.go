package spelling_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"mesh/spelling"
)

func TestNearest(t *testing.T) {
	known := []string{"name", "image", "memory", "segments", "mtu", "nat", "österreich"}
	for word, want := range map[string]string{
		"nmae":                           "name",  // a swap
		"Image":                          "image", // another case
		"imge":                           "image",
		"memmory":                        "memory",
		"segmnets":                       "segments",
		"mtv":                            "mtu",
		"oesterreich":                    "österreich",
		"n":                              "nat",
		"kernel":                         "",
		"":                               "",
		"österreichs":                    "österreich",
		strings.Repeat("segments", 20):   "",
		"\xff\xfe":                       "",
		strings.Repeat("x", 1000) + "ab": "",
	} {
		if got := spelling.Nearest(word, known); got != want {
			t.Errorf("%q was meant to be %q, want %q", word, got, want)
		}
	}
	if got := spelling.Nearest("aaaa", []string{"aaab", "aaac"}); got != "aaab" {
		t.Errorf("of two that are as near it is %q, not the first", got)
	}
	if got := spelling.Nearest("any", nil); got != "" {
		t.Errorf("of none it is %q", got)
	}
}

// A known word is nearest to itself, and to itself with one slip, unless another
// one is as near.
func TestOneSlip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		known := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{4,12}`), 1, 5, rapid.ID).Draw(t, "known")
		meant := known[rapid.IntRange(0, len(known)-1).Draw(t, "meant")]
		if got := spelling.Nearest(strings.ToUpper(meant), known); got != meant {
			t.Fatalf("%q is nearest to %q", meant, got)
		}
		at := rapid.IntRange(0, len(meant)-2).Draw(t, "at")
		slip := []byte(meant)
		switch rapid.IntRange(0, 3).Draw(t, "slip") {
		case 0:
			slip = slices.Delete(slip, at, at+1)
		case 1:
			slip = slices.Insert(slip, at, 'x')
		case 2:
			slip[at] = 'x'
		case 3:
			slip[at], slip[at+1] = slip[at+1], slip[at]
		}
		if spelling.Nearest(string(slip), []string{meant}) != meant {
			t.Fatalf("%q is not near to %q", slip, meant)
		}
	})
}

func FuzzNearest(f *testing.F) {
	f.Add("nmae", "name")
	f.Add("", "")
	f.Add("\xff", strings.Repeat("ö", 200))
	f.Add(strings.Repeat("a", 10_000), "İ")
	f.Fuzz(func(t *testing.T, word, known string) {
		if got := spelling.Nearest(word, []string{known}); got != "" && got != known {
			t.Errorf("it is %q, which is not known", got)
		}
	})
}
