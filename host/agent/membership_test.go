package agent_test

import (
	"testing"
	"testing/synctest"
	"time"

	"mesh/host/agent"
	"mesh/host/declaration"
	"mesh/host/store"
)

// An enrolment made while the agent runs is noticed at once.
func TestAgentNoticesAnEnrolment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.end()
		_ = r.identity.Remove("identity")
		r.start()
		r.pass(30 * time.Second)
		r.expect("asked while a member of nothing", nil, r.plane.took())
		r.enrol(r.plane, "two")
		r.changed <- struct{}{}
		synctest.Wait()
		r.expect("asked", []string{"watch two holds 0/0"}, r.plane.took())
	})
}

// A machine that moves to another mesh tells the new plane nothing of the old
// one's declaration.
func TestAgentMovesToAnotherMesh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.end()
		r.start()
		r.plane.declare(generation(1, 8))
		synctest.Wait()
		r.stop()
		other := newPlane(t, 2)
		other.mesh = "firm"
		r.stop = other.serve(r.wire.listen(planeAddress))
		_ = r.identity.Remove("identity")
		r.enrol(other, "desk")
		r.changed <- struct{}{}
		synctest.Wait()
		r.expect("asked", []string{"watch desk holds 0/0"}, other.took())
		d := generation(1, 1)
		d.Mesh, d.Node = "firm", "desk"
		other.declare(d)
		synctest.Wait()
		r.expect("asked", []string{"fetch by desk", "report by desk on 1/1"}, other.took())
	})
}

// A node that the plane does not know any more goes on alone.
func TestAgentRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.end()
		clear(r.plane.nodes)
		r.hand.held = &store.Accepted{Source: store.SourcePlane, Mesh: "home", Epoch: 1, Generation: 1, Digest: "d"}
		r.start()
		r.pass(time.Minute)
		if s := r.link(); s.Up || s.Error != "this key is no node's" {
			t.Errorf("link: %+v", s)
		}
		r.expect("done", []string{"0s pass", "1m0s pass"}, r.hand.did())
	})
}

func TestAgentEndsWhenReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		r.replaced.Store(true)
		r.pass(60 * time.Second)
		select {
		case err := <-r.ended:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		default:
			t.Error("it runs on")
		}
		if s := r.link(); s.Up || s.Error != "mesh-host was stopped" {
			t.Errorf("link: %+v", s)
		}
		r.cancel()
		r.stop()
	})
}

// final is the last declaration of node one of home.
func final(n uint64) declaration.Declaration {
	d := generation(1, n)
	d.Format, d.Resources, d.Final = 2, []declaration.Resource{}, true
	return d
}

// member tells whether the rig's machine is one of a mesh.
func (r *rig) member() bool {
	m, err := agent.ReadMembership(r.identity)
	if err != nil {
		r.t.Error(err)
	}
	return m != nil
}

// TestRetire: the last declaration is carried out, reported, and then the
// membership ends; not before everything is gone.
func TestRetire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.end()
		r.start()
		r.plane.declare(generation(1, 1))
		synctest.Wait()
		r.hand.set(func(h *hand) { h.status = declaration.StatusFailed })
		r.plane.declare(final(2))
		r.pass(time.Minute)
		if !r.member() {
			t.Fatal("something is left, and it is no member any more")
		}
		r.hand.set(func(h *hand) { h.status = declaration.StatusRemoved })
		r.pass(2 * time.Minute)
		if r.member() {
			t.Fatal("it is a member still")
		}
		reports := r.plane.reported()
		last := reports[len(reports)-1].Outcome
		if last.Generation != 2 || last.Results[0].Status != declaration.StatusRemoved {
			t.Errorf("the plane was not told: %+v", last)
		}
		r.plane.took()
		r.pass(time.Hour)
		r.expect("asked when it is hosted", nil, r.plane.took())
	})
}

// TestRetireCutBehindTheReport: the plane has forgotten the node when it comes
// back; that it is none is enough then, and is not before.
func TestRetireCutBehindTheReport(t *testing.T) {
	for _, last := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			defer r.end()
			d := generation(1, 2)
			if last {
				d = final(2)
			}
			signed, digest, err := declaration.Sign(d, r.plane.sign)
			if err != nil {
				t.Fatal(err)
			}
			r.hand.held = &store.Accepted{Source: store.SourcePlane, Mesh: "home", Epoch: 1, Generation: 2, Digest: digest, Final: d.Final, Document: signed}
			clear(r.plane.nodes)
			r.start()
			r.pass(time.Minute)
			if r.member() == last {
				t.Errorf("the last one: %v, a member: %v", last, r.member())
			}
		})
	}
}
