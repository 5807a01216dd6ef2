package agent_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mesh/host/agent"
	"mesh/host/declaration"
	"mesh/host/link"
	"mesh/host/store"
)

// hand is a Passer that keeps what it accepted and says what it did, as text.
type hand struct {
	mu     sync.Mutex
	held   *store.Accepted
	fail   error              // what the next passes say
	status declaration.Status // of everything; empty means in sync
	block  chan struct{}      // passes wait for it, when not nil
	log    []string
	begun  time.Time
}

func (h *hand) Pass(ctx context.Context, accept *store.Accepted) (*store.Accepted, declaration.Outcome, error) {
	h.mu.Lock()
	block := h.block
	h.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return nil, declaration.Outcome{}, ctx.Err()
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	what := "pass"
	if accept != nil {
		what = fmt.Sprintf("accept %d/%d", accept.Epoch, accept.Generation)
	}
	if h.fail != nil {
		h.log = append(h.log, fmt.Sprintf("%s %s: %v", time.Since(h.begun), what, h.fail))
		return h.held, declaration.Outcome{}, h.fail
	}
	if accept != nil {
		h.held = accept
	}
	h.log = append(h.log, fmt.Sprintf("%s %s", time.Since(h.begun), what))
	if h.held == nil {
		return nil, declaration.Outcome{}, nil
	}
	status := h.status
	if status == "" {
		status = declaration.StatusInSync
	}
	return h.held, declaration.Outcome{Epoch: h.held.Epoch, Generation: h.held.Generation, Digest: h.held.Digest,
		Results: []declaration.Result{{ID: "a", Kind: declaration.KindFile, Where: "/x", Status: status}}}, nil
}

func (h *hand) did() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	log := h.log
	h.log = nil
	return log
}

func (h *hand) holds() *store.Accepted {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held
}

func (h *hand) set(change func(*hand)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(h)
}

// rig is an agent, its machine and its plane, on a wire, in a bubble of time.
type rig struct {
	t        *testing.T
	plane    *fakePlane
	wire     *wire
	hand     *hand
	identity *memory
	runtime  *memory
	changed  chan struct{}
	contents *contents
	clock    time.Duration // how far the machine's clock is off
	replaced atomic.Bool
	cancel   context.CancelFunc
	ended    chan error
	stop     func() // of the plane
}

const planeAddress = "192.0.2.1:7443"

// newRig is a machine that is enrolled, its plane running, the agent not.
func newRig(t *testing.T) *rig {
	r := &rig{
		t: t, plane: newPlane(t, 1), wire: newWire(), hand: &hand{begun: time.Now()},
		contents: &contents{kept: map[string]int{}, parts: map[string][]byte{}}, identity: newMemory(), runtime: newMemory(), changed: make(chan struct{}, 1), ended: make(chan error, 1),
	}
	r.startPlane()
	r.enrol(r.plane, "one")
	return r
}

func (r *rig) startPlane() { r.stop = r.plane.serve(r.wire.listen(planeAddress)) }

func (r *rig) enrol(p *fakePlane, node string) {
	r.t.Helper()
	e := agent.Enrolment{Identity: r.identity, Facts: facts, Random: rand.Reader, Now: time.Now, Dial: r.wire.dial}
	if _, err := e.Run(r.t.Context(), p.token(node, planeAddress).Encode()); err != nil {
		r.t.Fatal(err)
	}
	p.took()
}

func (r *rig) start() {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	a := agent.New(agent.Config{
		Identity: r.identity, Runtime: r.runtime, Hand: r.hand, Facts: facts,
		Process: agent.Process{PID: 7, Start: 1}, Changed: r.changed, Dial: r.wire.dial, Contents: r.contents,
		Replaced: func() bool { return r.replaced.Load() },
		Jitter:   func() float64 { return 0.5 },
		Now:      func() time.Time { return time.Now().Add(r.clock) },
	})
	go func() { r.ended <- a.Run(ctx) }()
	synctest.Wait()
}

// end stops everything and waits for it.
func (r *rig) end() {
	r.t.Helper()
	r.cancel()
	if err := <-r.ended; err != nil {
		r.t.Errorf("Run: %v", err)
	}
	r.stop()
	synctest.Wait()
}

func (r *rig) link() (s agent.LinkState) {
	b, err := r.runtime.Read("link.json")
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		r.t.Error(err)
	}
	return s
}

func (r *rig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *rig) expect(what string, want, got []string) {
	r.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// generation is a declaration for node one of home.
func generation(epoch, generation uint64) declaration.Declaration {
	return declaration.Declaration{Format: 1, Mesh: "home", Node: "one", Epoch: epoch, Generation: generation,
		Resources: []declaration.Resource{{ID: "a", File: &declaration.File{Path: "/x", Content: fmt.Sprint(generation)}}}}
}

// The way of a declaration: offered, fetched, durable, applied, reported; and
// "same" when the link comes back.
func TestAgentFollowsThePlane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.end()
		r.start()
		r.expect("asked before anything is declared", []string{"watch one holds 0/0"}, r.plane.took())
		if s := r.link(); !s.Up || s.Address != planeAddress {
			t.Errorf("link: %+v", s)
		}
		r.plane.declare(generation(1, 1))
		synctest.Wait()
		r.expect("asked", []string{"fetch by one", "report by one on 1/1"}, r.plane.took())
		r.expect("done", []string{"0s pass", "0s accept 1/1"}, r.hand.did())

		r.pass(61 * time.Second) // drift passes; nothing changed, so nothing is reported
		r.expect("done", []string{"1m0s pass"}, r.hand.did())
		r.expect("asked when nothing changed", nil, r.plane.took())

		r.hand.set(func(h *hand) { h.status = declaration.StatusChanged })
		r.pass(60 * time.Second)
		r.expect("asked after a change", []string{"report by one on 1/1"}, r.plane.took())

		r.stop()
		r.startPlane()
		r.pass(10 * time.Second)
		r.expect("asked after the plane was away", []string{"watch one holds 1/1", "report by one on 1/1"}, r.plane.took())
	})
}

// What is held is applied before the network is touched, at every start.
func TestAgentAppliesWhatIsHeldFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.end()
		dials := r.wire.dials
		r.hand.block = make(chan struct{})
		r.start()
		r.pass(time.Hour)
		if r.wire.dials != dials {
			t.Error("the plane was dialled before the first pass was over")
		}
		close(r.hand.block)
		synctest.Wait()
		r.expect("asked", []string{"watch one holds 0/0"}, r.plane.took())
	})
}

// A first pass that fails does not keep the link down.
func TestAgentConnectsWhenThePassFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.end()
		r.hand.fail = errors.New("input/output error")
		r.start()
		if !r.link().Up {
			t.Errorf("link: %+v", r.link())
		}
	})
}

// The plane is away for an hour: passes go on, the state says so, and the link
// is back within ten seconds of the plane.
func TestAgentDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.end()
		r.start()
		r.plane.declare(generation(1, 1))
		synctest.Wait()
		down := time.Now()
		r.stop()
		r.pass(time.Hour)
		if s := r.link(); s.Up || !s.Since.Equal(down) || s.Error != "192.0.2.1:7443: dial 192.0.2.1:7443: connection refused" {
			t.Errorf("link: %+v", s)
		}
		if passes := len(r.hand.did()); passes < 60 {
			t.Errorf("%d passes in an hour", passes)
		}
		if dials := r.wire.dials; dials < 360 || dials > 720 {
			t.Errorf("%d dials in an hour", dials)
		}
		r.startPlane()
		r.pass(10 * time.Second)
		if s := r.link(); !s.Up || s.Error != "" {
			t.Errorf("link: %+v", s)
		}
	})
}

// A plane that holds the connection and says nothing is found out.
func TestAgentNoticesSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.end()
		r.start()
		r.plane.mu.Lock()
		r.plane.mute = true
		r.plane.mu.Unlock()
		r.pass(link.LinkTimeout + time.Second)
		if s := r.link(); s.Up || s.Error != "the plane has said nothing for 30s" {
			t.Errorf("link: %+v", s)
		}
		r.plane.mu.Lock()
		r.plane.mute = false
		r.plane.mu.Unlock()
		r.pass(time.Minute)
		if !r.link().Up {
			t.Errorf("link: %+v", r.link())
		}
	})
}

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

// A digest the plane offers and does not give is asked for with the next offer,
// and nothing else happens.
func TestCaseP3AgentOutlivesAPlaneThatGivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.end()
		r.start()
		r.plane.took()
		r.plane.give(link.Offer{Epoch: 1, Generation: 1, Digest: "gone"}, nil)
		r.plane.mu.Lock()
		delete(r.plane.signed, "gone")
		r.plane.mu.Unlock()
		r.pass(25 * time.Second)
		r.expect("asked", []string{"fetch by one", "fetch by one", "fetch by one"}, r.plane.took())
		if !r.link().Up || r.link().Refused != nil {
			t.Errorf("link: %+v", r.link())
		}
	})
}

// What was taken from the plane and could not be made durable is tried again,
// sooner than the interval, until it is.
func TestAgentRetriesUntilDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.end()
		r.start()
		r.hand.did()
		r.hand.set(func(h *hand) { h.fail = errors.New("no space") })
		r.plane.declare(generation(1, 1))
		r.pass(20 * time.Second)
		r.hand.set(func(h *hand) { h.fail = nil })
		r.pass(40 * time.Second)
		r.expect("done", []string{
			"0s accept 1/1: no space", "3.75s accept 1/1: no space", "11.25s accept 1/1: no space", "26.25s accept 1/1",
		}, r.hand.did())
	})
}

// Something left undone is tried again sooner than the interval, with growing
// delays up to it.
func TestAgentRetriesWhatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.end()
		r.hand.status = declaration.StatusWaiting
		r.hand.held = &store.Accepted{Source: store.SourceBundle, Digest: "b"}
		r.start()
		r.pass(150 * time.Second)
		r.expect("done", []string{"0s pass", "3.75s pass", "11.25s pass", "26.25s pass", "56.25s pass", "1m41.25s pass", "2m26.25s pass"}, r.hand.did())
		r.expect("a bundle is nothing to report", []string{"watch one holds 0/0"}, r.plane.took())
	})
}

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

func TestAgentOnlyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.end()
		r.start()
		second := agent.New(agent.Config{Identity: r.identity, Runtime: r.runtime, Hand: r.hand, Facts: facts})
		if err := second.Run(t.Context()); !errors.Is(err, agent.ErrRunning) {
			t.Errorf("Run: %v", err)
		}
	})
}

// The same over a real network: a connection, a declaration, an end.
func TestAgentOverLoopback(t *testing.T) {
	p := newPlane(t, 1)
	address := loopback(t, p)
	folder, h := newMemory(), &hand{begun: time.Now()}
	e := agent.Enrolment{Identity: folder, Facts: facts, Random: rand.Reader, Now: time.Now}
	if _, err := e.Run(t.Context(), p.token("one", address).Encode()); err != nil {
		t.Fatal(err)
	}
	p.declare(generation(1, 1))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	a := agent.New(agent.Config{Identity: folder, Runtime: newMemory(), Hand: h, Facts: facts})
	go func() { ended <- a.Run(ctx) }()
	for len(p.reported()) == 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond) // polls; nothing depends on how long
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := p.reported(); len(got) == 0 || got[0].Outcome.Generation != 1 || got[0].Inventory.Hostname != "box" {
		t.Errorf("reported: %+v", got)
	}
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

// TestAwayWithAWrongClock: away from its plane a node goes on alone; it was rebooted
// meanwhile and its clock says 1970. It is back at once, takes what was declared
// meanwhile, and says so. Three hours stand for three weeks: the delays are at their
// longest after a minute.
func TestAwayWithAWrongClock(t *testing.T) {
	for name, clock := range map[string]time.Duration{"1970": -30 * 365 * 24 * time.Hour, "a day ahead": 24 * time.Hour, "fifty years ahead": 50 * 365 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.start()
				r.plane.declare(generation(1, 1))
				synctest.Wait()
				r.stop()
				r.pass(time.Hour)
				r.cancel()
				if err := <-r.ended; err != nil {
					t.Fatal(err)
				}
				r.clock = clock
				r.hand.did()
				r.start()
				r.pass(3 * time.Hour)
				if n := len(r.hand.did()); n < 3*60-1 {
					t.Errorf("%d passes alone", n)
				}
				r.startPlane()
				defer r.end()
				r.plane.declare(generation(1, 7))
				r.plane.took()
				r.pass(15 * time.Second)
				r.expect("done", []string{"accept 1/7"}, []string{last(r.hand.did())})
				r.expect("asked", []string{"watch one holds 1/1", "fetch by one", "report by one on 1/1", "report by one on 1/7"}, r.plane.took())
			})
		})
	}
}

// last is what was done last, without its time.
func last(did []string) string {
	if len(did) == 0 {
		return ""
	}
	_, what, _ := strings.Cut(did[len(did)-1], " ")
	return what
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
