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

// A declaration comes however long a slow link takes for it, as long as whoever is at
// the other end is there.
func TestAgentOverASlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.end()
		r.start()
		r.plane.took()
		r.plane.slower = 4 * time.Minute
		r.plane.declare(generation(1, 1))
		r.pass(5 * time.Minute)
		r.expect("asked", []string{"fetch by one", "report by one on 1/1"}, r.plane.took())
		if s := r.link(); !s.Up || time.Since(s.Since) < 5*time.Minute {
			t.Errorf("link: %+v", s)
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
