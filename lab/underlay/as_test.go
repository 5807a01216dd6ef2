package underlay_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mesh/lab/scenario/scenariotest"
	"mesh/lab/underlay"
)

// TestAs: an underlay under another run's id is what a plan with that id is,
// also by way of a kept one without any, which names nothing of either.
func TestAs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := scenariotest.Draw(t)
		var plans [2]underlay.Underlay
		for i, run := range []string{"0badcafe", "00c0ffee"} {
			u, err := underlay.Plan(s, run)
			if err != nil {
				t.Fatal(err)
			}
			plans[i] = *u
		}
		for _, r := range plans[0].Roamers() { // of which an underlay keeps where they stand
			to := rapid.SampledFrom(r.Segments).Draw(t, "where it goes")
			for i := range plans {
				var err error
				if plans[i], err = plans[i].Roam(r.Name, to); err != nil {
					t.Fatal(err)
				}
			}
		}
		kept := plans[0].As("")
		before := text(t, plans[0])
		for _, got := range []underlay.Underlay{plans[0].As("00c0ffee"), kept.As("00c0ffee")} {
			if diff := cmp.Diff(text(t, plans[1]), text(t, got)); diff != "" {
				t.Fatalf("(-planned +got):\n%s", diff)
			}
		}
		if diff := cmp.Diff(text(t, kept), text(t, plans[1].As(""))); diff != "" {
			t.Fatalf("what is kept depends on the run (-of one +of the other):\n%s", diff)
		}
		if diff := cmp.Diff(before, text(t, plans[0])); diff != "" {
			t.Fatalf("the first was changed:\n%s", diff)
		}
	})
}

func text(t *rapid.T, u underlay.Underlay) string {
	data, err := json.MarshalIndent(u, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
