package agent_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mesh/host/declaration"
	"mesh/host/link"
)

// What is refused is refused as a whole: nothing is accepted, what is held stays,
// the reason can be read, it is not fetched again and again (issue "Bad input",
// cases H10, P3).
func TestCaseH10AgentRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		give func(r *rig)
		want string
	}{
		{"lower generation", func(r *rig) { r.plane.declare(generation(2, 4)) }, "its generation 4 is lower than 5, which is held"},
		{"lower epoch", func(r *rig) { r.plane.declare(generation(1, 9)) }, "its epoch 1 is lower than 2, which is held"},
		{"another of the same generation", func(r *rig) {
			d := generation(2, 5)
			d.Resources = nil
			r.plane.declare(d)
		}, "another declaration of generation 5 is held"},
		{"another key", func(r *rig) {
			signed, digest, _ := declaration.Sign(generation(2, 6), newPlane(r.t, 9).sign)
			r.plane.give(link.Offer{Epoch: 2, Generation: 6, Digest: digest}, signed)
		}, "open declaration: declaration is not signed by this mesh: the signature is not one of declkey:"},
		{"unknown key in it", func(r *rig) {
			b, _ := generation(2, 6).Canonical()
			signed, digest := r.plane.seal(strings.Replace(string(b), `"path"`, `"paht"`, 1))
			r.plane.give(link.Offer{Epoch: 2, Generation: 6, Digest: digest}, signed)
		}, `unknown member "paht"; did you mean "path"?`},
		{"newer format", func(r *rig) {
			b, _ := generation(2, 6).Canonical()
			signed, digest := r.plane.seal(strings.Replace(string(b), `"format":1`, `"format":7`, 1))
			r.plane.give(link.Offer{Epoch: 2, Generation: 6, Digest: digest}, signed)
		}, "the host is too old, upgrade mesh-host"},
		{"empty answer", func(r *rig) { r.plane.give(link.Offer{Epoch: 2, Generation: 6, Digest: "d"}, nil) }, "the envelope is missing"},
		{"for another node", func(r *rig) {
			d := generation(2, 6)
			d.Node = "two"
			r.plane.declare(d)
		}, "it is for node two of mesh home, and this is node one of mesh home"},
		{"not what was offered", func(r *rig) {
			signed, digest, _ := declaration.Sign(generation(2, 6), r.plane.sign)
			r.plane.give(link.Offer{Epoch: 2, Generation: 7, Digest: digest}, signed)
		}, "it is not what was offered: epoch 2, generation 6"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				defer r.end()
				r.start()
				r.plane.declare(generation(2, 5))
				synctest.Wait()
				r.hand.did()
				r.plane.took()
				tc.give(r)
				synctest.Wait()
				asked := r.plane.took() // it may fetch once, and tells the plane
				if reports := r.plane.reported(); asked[len(asked)-1] != "report by one on 2/5" || len(asked) > 2 ||
					!strings.Contains(reports[len(reports)-1].Refused.Reason, tc.want) {
					t.Errorf("the plane was asked %q and told %+v", asked, reports[len(reports)-1].Refused)
				}
				r.pass(55 * time.Second) // keepalives repeat the offer
				if len(r.hand.did()) != 0 || r.hand.held.Generation != 5 {
					t.Errorf("something was accepted: %+v", r.hand.held)
				}
				s := r.link()
				if s.Refused == nil || !strings.Contains(s.Refused.Reason, tc.want) || !s.Up {
					t.Errorf("link: %+v\nrefused: %+v\nwant: …%s…", s, s.Refused, tc.want)
				}
				if again := r.plane.took(); len(again) != 0 {
					t.Errorf("it went on with %q", again)
				}
				r.plane.declare(generation(3, 1)) // a restored plane
				synctest.Wait()
				reports := r.plane.reported()
				if r.hand.held.Epoch != 3 || r.link().Refused != nil || reports[len(reports)-1].Refused != nil {
					t.Errorf("held %+v, refused %+v, told %+v", r.hand.held, r.link().Refused, reports[len(reports)-1].Refused)
				}
			})
		})
	}
}

// A declaration that is far too long is read as far as one can be, once, and the
// link bears it.
func TestBadInputDeclarationFarTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.end()
		r.plane.declare(generation(1, 1))
		r.start()
		r.plane.give(link.Offer{Epoch: 1, Generation: 2, Digest: "long"}, make([]byte, 2*declaration.MaxBytes))
		r.plane.took()
		r.pass(10 * time.Minute)
		s := r.link()
		if !s.Up || s.Refused == nil || s.Refused.Generation != 2 || !strings.Contains(s.Refused.Reason, "it is longer than any declaration") {
			t.Errorf("%+v, refused %+v", s, s.Refused)
		}
		if n := strings.Count(strings.Join(r.plane.took(), "\n"), "fetch"); n != 1 {
			t.Errorf("it was fetched %d times", n)
		}
		r.plane.declare(generation(1, 3))
		r.pass(time.Second)
		if held := r.hand.holds(); held == nil || held.Generation != 3 {
			t.Errorf("what came behind it is not held")
		}
	})
}

// A refusal is told even where nothing was ever held, and is over when the plane
// offers again what is held.
func TestRefusalBeginsAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.end()
		signed, digest, _ := declaration.Sign(generation(1, 1), newPlane(t, 9).sign)
		r.plane.give(link.Offer{Epoch: 1, Generation: 1, Digest: digest}, signed)
		r.start()
		synctest.Wait()
		if reports := r.plane.reported(); len(reports) != 1 || reports[0].Refused == nil || reports[0].Outcome.Digest != "" {
			t.Errorf("told %+v", reports)
		}
		r.plane.declare(generation(1, 2))
		synctest.Wait()
		r.plane.declare(generation(1, 1))
		synctest.Wait()
		if s := r.link(); s.Refused == nil || s.Refused.Generation != 1 {
			t.Errorf("refused %+v", s.Refused)
		}
		r.plane.declare(generation(1, 2))
		synctest.Wait()
		reports := r.plane.reported()
		if r.link().Refused != nil || reports[len(reports)-1].Refused != nil || r.hand.held.Generation != 2 {
			t.Errorf("refused %+v, told %+v", r.link().Refused, reports[len(reports)-1].Refused)
		}
	})
}
