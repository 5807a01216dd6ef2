package apply_test

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"mesh/host/system/systemtest"
)

var teeth = flag.Bool("teeth", false, "leave out one sync after the other, swap one pair of operations after the other, and demand that it is noticed")

// mistakes are the ways in which a program can be wrong at a place.
var mistakes = map[string]func(match func(place string) bool, next hook) hook{
	"without": func(match func(string) bool, next hook) hook { return systemtest.WithoutSync(match, next) },
	"swapped": func(match func(string) bool, next hook) hook {
		return systemtest.Swapped(func(first, second string) bool { return match(first + " and " + second) }, next)
	},
}

// equivalent are the mistakes that make no difference, and why. They are not
// tried: that nothing is noticed shows nothing.
var equivalent = map[string]string{
	"swapped unlink < sweep < (*StateDirectory).Lock < Open and sync directory < (*StateDirectory).Lock < Open":                                                                                                                                     "a temporary that comes back is swept the next time",
	"swapped rmdir < sweep < (*StateDirectory).Lock < Open and sync directory < (*StateDirectory).Lock < Open":                                                                                                                                      "a temporary that comes back is swept the next time",
	"swapped sync < (*Store).open < Open and write < write < (*Store).Append":                                                                                                                                                                       "the record has a sync of its own, of the same file, before anything else is done",
	"swapped sync directory < (*Files).SetDirectory < (*Files).MakeDirectory < (*StateDirectory).Lock < Open and rename < (*Files).MakeDirectory < (*StateDirectory).Lock < Open":                                                                   "the mode is the one mkdir gives, durable or not",
	"swapped sync directory < (*Files).SetDirectory < (*Files).MakeDirectory < (*Contents).ready < (*Contents).keep < (*Contents).KeepContent and rename < (*Files).MakeDirectory < (*Contents).ready < (*Contents).keep < (*Contents).KeepContent": "the mode is the one mkdir gives, durable or not",
	"without (*Files).Settle < (*Contents).ready < (*Contents).keep < (*Contents).KeepContent":                                                                                                                                                      "here the directory lies in that of the store, whose names last since it was locked; elsewhere, or after a sync that failed, nobody else does it",
	"without (*Files).SetDirectory < (*Files).MakeDirectory < (*Contents).ready < (*Contents).keep < (*Contents).KeepContent":                                                                                                                       "the mode is the one mkdir gives, durable or not",
	"without (*Files).SetDirectory < (*Files).MakeDirectory < (*StateDirectory).Lock < Open":                                                                                                                                                        "the mode is the one mkdir gives, durable or not",
}

// TestTeeth makes one mistake after the other in the program, and demands that
// the crashes of the other tests notice every time: each sync is left out, and
// each operation is swapped with the one behind it.
func TestTeeth(t *testing.T) {
	if !*teeth {
		t.Skip("it repeats the crashes once for each mistake, which takes minutes: run it with -teeth")
	}
	for how, mistake := range mistakes {
		t.Run(how, func(t *testing.T) {
			r := &row{Level: "teeth", What: map[string]string{"without": "each sync left out", "swapped": "each ordered pair swapped"}[how]}
			defer tried(t, r)()
			var mu sync.Mutex
			t.Run("at", func(t *testing.T) {
				places := placesOf(t, mistake)
				r.Mutants = len(places)
				for mutant := range equivalent {
					if place, of := strings.CutPrefix(mutant, how+" "); of && !slices.Contains(places, place) {
						t.Errorf("there is no such mistake any more: %s", mutant)
					}
				}
				for _, place := range places {
					if why := equivalent[how+" "+place]; why != "" {
						r.Equivalent++
						continue
					}
					t.Run(place, func(t *testing.T) {
						t.Parallel()
						points, err := bite(t, mistake, place)
						mu.Lock()
						defer mu.Unlock()
						r.Points += points
						if err == nil {
							t.Error("nothing is noticed")
							return
						}
						t.Logf("%.160s", err)
						r.Caught++
					})
				}
			})
		})
	}
}

// placesOf lists where in the program a mistake can be made.
func placesOf(t *testing.T, mistake func(func(string) bool, hook) hook) []string {
	places := map[string]bool{}
	p := newProof(t, func(next hook) hook {
		return mistake(func(place string) bool {
			places[place] = true
			return false
		}, next)
	})
	p.stopped(-1)
	if err := p.everyKill(); err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(places))
}

// bite puts the program with a mistake to the crashes until they notice.
func bite(t *testing.T, mistake func(func(string) bool, hook) hook, place string) (points int, err error) {
	p := newProof(t, func(next hook) hook { return mistake(func(at string) bool { return at == place }, next) })
	if err = p.everyKill(); err == nil {
		_, err = p.everyPowerCut()
	}
	return p.crashes, err
}
