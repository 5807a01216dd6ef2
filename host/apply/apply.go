// Package apply brings a machine to a declaration: declaration, record and what
// is observed make a Plan, and the plan is carried out so that a crash at any
// moment loses nothing.
//
// For every act the intent is durable first, then the machine is touched, then
// the result is durable, and only then it is recorded as owned. What is owned
// and no longer declared is removed in reverse order of ownership, as far as it
// is still recognised.
//
// host/agent, host/bundle and cmd/host may import it.
package apply

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"mesh/host/declaration"
	"mesh/host/resource"
	"mesh/host/store"
)

// Desired is one declaration to apply. It has passed declaration's checks and
// is recorded in the store as accepted already.
type Desired struct {
	Source     store.Source
	Epoch      uint64 // 0 for a bundle
	Generation uint64 // 0 for a bundle
	Digest     string
	Resources  []declaration.Resource
}

// Activity is what an Applier is doing right now, for people who watch.
type Activity struct {
	ID    string           `json:"id"`
	Kind  declaration.Kind `json:"kind"`
	Where string           `json:"where"`
	What  string           `json:"what"` // "installing", "waiting for the package lock held by apt-get (pid 811)"
}

// Config is what an Applier needs.
type Config struct {
	Machine resource.Machine
	Store   *store.Store
	Now     func() time.Time // wall clock, for the times in records
	Log     *slog.Logger     // nil means discard
	Watch   func(Activity)   // nil means nobody watches; called from the goroutine that runs Reconcile
}

// Applier applies declarations to one machine. One call runs at a time.
type Applier struct {
	cfg Config
}

// New makes an Applier; it touches nothing.
func New(cfg Config) *Applier {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Watch == nil {
		cfg.Watch = func(Activity) {}
	}
	return &Applier{cfg: cfg}
}

// Recover resolves every intent that a crash left open, by looking at what is
// there, and says one line for each. Reconcile does it too; calling it first is
// for whoever wants to say what was found.
func (a *Applier) Recover(ctx context.Context) ([]string, error) {
	return nil, errors.New("recover: not built yet")
}

// Plan says what Reconcile would do now, and touches nothing.
func (a *Applier) Plan(ctx context.Context, d Desired) (Plan, error) {
	return Plan{}, errors.New("plan: not built yet")
}

// Reconcile brings the machine to d, as far as it can, and says what became of
// every resource: a resource that fails does not stop those that do not need
// it. The outcome is complete even when there is an error; the error is for the
// pass as a whole: the store cannot be written, or ctx ended.
func (a *Applier) Reconcile(ctx context.Context, d Desired) (declaration.Outcome, error) {
	return declaration.Outcome{}, errors.New("reconcile: not built yet")
}
