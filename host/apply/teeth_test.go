package apply_test

import (
	"flag"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
)

var teeth = flag.Bool("teeth", false, "leave out one sync after the other and demand that it is noticed")

// equivalent are the syncs whose loss makes no difference, and why.
var equivalent = map[string]string{
	"(*Files).SetDirectory < (*Files).MakeDirectory < (*StateDirectory).Lock < Open": "the mode is the one mkdir gives, durable or not",
}

// TestTeeth leaves the syncs of one place in the program out after the other,
// and demands that the crashes of the other tests notice every time.
func TestTeeth(t *testing.T) {
	if !*teeth {
		t.Skip("it repeats the crashes once for each sync, which takes minutes: run it with -teeth")
	}
	places := map[string]bool{}
	count := newProof(t, func(place string) bool {
		places[place] = true
		return false
	})
	count.stopped(-1)
	if err := count.everyKill(); err != nil {
		t.Fatal(err)
	}
	var caught atomic.Int32
	t.Run("without", func(t *testing.T) {
		for _, place := range slices.Sorted(maps.Keys(places)) {
			t.Run(place, func(t *testing.T) {
				t.Parallel()
				p := newProof(t, func(at string) bool { return at == place })
				err := p.everyKill()
				if err == nil {
					_, err = p.everyPowerCut()
				}
				if err == nil && equivalent[place] == "" {
					t.Error("nothing is noticed")
				}
				if err != nil {
					caught.Add(1)
					t.Logf("%.160s", err)
				}
			})
		}
	})
	t.Logf("of %d places that sync, %d are missed when they do not, %d make no difference", len(places), caught.Load(), len(equivalent))
}
