// Package agent is what runs on a machine for good: it keeps the link to the
// plane, takes what the plane declares, and puts the machine right again and
// again from its own record, link or no link.
//
// It decides nothing: what a declaration means is host/apply's, what is durable
// is host/store's. It does not restart itself; when its own binary was replaced
// it ends, and whoever supervises it starts the new one.
//
// cmd/host may import it.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"mesh/host/declaration"
	"mesh/host/inventory"
	"mesh/host/store"
)

// DefaultInterval is how often a machine is looked at when nothing happens.
const DefaultInterval = 60 * time.Second

// Passer makes one pass over what is held; Hand is the real one.
type Passer interface {
	// Pass first accepts a declaration durably, unless it is nil, then applies
	// what is held. It returns what is held (nil: nothing) even when there is an
	// error. The error matches store.ErrOlder when accept was refused for its
	// age; nothing was applied then. What a pass returns without its document it
	// did not have to read.
	Pass(ctx context.Context, accept *store.Accepted) (*store.Accepted, declaration.Outcome, error)
}

// Facts collects what the plane is told about this machine. What a link begins
// with and what is reported after each pass are two things, read when needed.
type Facts struct {
	Profile   func() (inventory.Profile, error)
	Inventory func() (inventory.Inventory, error)
}

// Config is what an Agent needs.
type Config struct {
	Identity Folder // who this machine is; see Enrol
	Runtime  Folder // for those who look: see Inspect
	Hand     Passer
	Contents Contents // nil: what a declaration names by digest is not fetched
	Facts    Facts
	Process  Process // this process, as those who look find it

	Changed  <-chan struct{} // a value says that Identity may have changed; nil: it is read at each Interval only
	Replaced func() bool     // whether the program on disk is another than the one that runs; nil means never
	Dial     Dial            // nil means the network of this machine
	Spent    func()          // called after a pass that had to read what is held, once nothing of it is needed; nil: nobody wants to know
	Interval time.Duration   // between passes that nobody asked for; 0 means DefaultInterval
	Now      func() time.Time
	Jitter   func() float64 // from [0,1); nil means math/rand
	Log      *slog.Logger   // nil means discard
}

// Agent is the loop. Make one with New and call Run once.
type Agent struct {
	cfg   Config
	board *board

	// One sender each; a value not taken yet is replaced by a newer one.
	accepted chan store.Accepted // link → work: verified, not durable yet
	passed   chan passed         // work → link: what came of a pass
	arrived  chan struct{}       // link → work: content that was missing is there
}

// passed is what the link has to know of a pass.
type passed struct {
	held    *store.Accepted
	outcome declaration.Outcome
	missing []declaration.Blob // content that what is held needs
}

// New makes an Agent; it starts nothing.
func New(cfg Config) *Agent {
	cfg.Interval = cmp.Or(cfg.Interval, DefaultInterval)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Jitter == nil {
		cfg.Jitter = rand.Float64
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Replaced == nil {
		cfg.Replaced = func() bool { return false }
	}
	if cfg.Dial == nil {
		cfg.Dial = dialNetwork
	}
	return &Agent{
		cfg:      cfg,
		board:    &board{folder: cfg.Runtime, log: cfg.Log, process: cfg.Process, now: cfg.Now},
		accepted: make(chan store.Accepted, 1),
		passed:   make(chan passed, 1),
		arrived:  make(chan struct{}, 1),
	}
}

// ErrRunning says that there is an agent on this machine already.
var ErrRunning = errors.New("mesh-host is running on this machine already")

// errReplaced ends Run when there is another program to be started.
var errReplaced = errors.New("the program was replaced")

// Run works until ctx ends or the program on disk was replaced; nil for both.
// What is held is applied once before the network is touched. The error matches
// ErrRunning when another agent runs on this machine.
func (a *Agent) Run(ctx context.Context) error {
	lock, err := a.cfg.Runtime.Lock("agent.lock")
	if errors.Is(err, store.ErrLocked) {
		return fmt.Errorf("run: %w", ErrRunning)
	}
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	defer lock.Close()

	a.board.begin()

	group, ctx := errgroup.WithContext(ctx)
	first := make(chan struct{})
	group.Go(func() error { return a.work(ctx, first) })
	group.Go(func() error {
		select {
		case <-first:
			a.keepLink(ctx)
		case <-ctx.Done():
		}
		return nil
	})
	err = group.Wait()
	a.board.stopped()
	if errors.Is(err, errReplaced) {
		a.cfg.Log.Info("another version of this program is installed; ending so that it is started")
		return nil
	}
	return err
}

// put leaves v for the one receiver of a channel of capacity one. There must be
// one sender only.
func put[T any](ch chan T, v T) {
	select {
	case <-ch:
	default:
	}
	ch <- v
}
