// Package apply brings a machine to a declaration: declaration, record and what
// is observed make a Plan, and the plan is carried out so that a crash at any
// moment loses nothing.
//
// For every act the intent is durable first, then the machine is touched, then
// the result is durable, and only then it is recorded as owned. What is owned
// and no longer declared is removed in reverse order of ownership, as far as it
// is still recognised.
//
// A resource that fails stops only the services that are to be restarted when
// it changes: they wait.
//
// host/agent, host/bundle and cmd/host may import it.
package apply

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"time"

	"mesh/host/declaration"
	"mesh/host/resource"
	"mesh/host/store"
	"mesh/host/system"
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
	What  string           `json:"what"` // "installing", "waiting for the package lock, which apt-get (process 811) holds"
}

// Config is what an Applier needs.
type Config struct {
	Machine resource.Machine
	Store   *store.Store
	Now     func() time.Time // wall clock, for the times in records
	Log     *slog.Logger     // nil means discard
	Watch   func(Activity)   // nil means nobody watches; called from the goroutine that runs Reconcile, at its end with the zero Activity

	// Said is what the pass before came to, if Log was told: what still fails, or
	// is still kept, for the same reason is not logged again.
	Said declaration.Outcome
}

// Applier applies declarations to one machine. One call runs at a time.
type Applier struct {
	scribe
	machine resource.Machine
	store   *store.Store
	log     *slog.Logger
	watch   func(Activity)
	said    []declaration.Result
	calm    *Calm
}

// New makes an Applier; it touches nothing.
func New(cfg Config) *Applier {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Watch == nil {
		cfg.Watch = func(Activity) {}
	}
	return &Applier{scribe: scribe{cfg.Now}, machine: cfg.Machine, store: cfg.Store, log: cfg.Log, watch: cfg.Watch, said: cfg.Said.Results}
}

// Plan says what Reconcile would do now, and touches nothing.
func (a *Applier) Plan(ctx context.Context, d Desired) (Plan, error) {
	return Foresee(ctx, a.machine, a.store.View(), d)
}

// Foresee says what a pass over d would do on m, of which record is the record.
// It looks, and touches nothing; record may be one that was read while another
// process has the store open.
func Foresee(ctx context.Context, m resource.Machine, record store.View, d Desired) (Plan, error) {
	keys, err := places(d, record)
	if err != nil {
		return Plan{}, err
	}
	seen, err := look(ctx, m, d, keys)
	if err != nil {
		return Plan{}, err
	}
	seen.Missing = missing(ctx, m, d, seen)
	return NewPlan(d, record, seen), nil
}

// missing looks for the directories of what is declared and not there. A pass
// finds out by trying.
func missing(ctx context.Context, m resource.Machine, d Desired, seen Seen) map[string]bool {
	var keys []store.Key
	listed := map[string]bool{"/": true}
	for _, r := range d.Resources {
		key := resource.KeyOf(r)
		found, in := seen.Found[key], path.Dir(key.Where)
		if resource.OnDisk(key.Kind) && found.Err == nil && found.State.Absent() && !listed[in] {
			listed[in] = true
			keys = append(keys, store.Key{Kind: declaration.KindDirectory, Where: in})
		}
	}
	absent := map[string]bool{}
	for key, found := range resource.Look(ctx, m, keys) {
		if found.Err == nil && found.State.Absent() {
			absent[key.Where] = true
		}
	}
	return absent
}

// known looks at everything a pass over d is about.
func (a *Applier) known(ctx context.Context, d Desired) (*known, error) {
	record := a.store.View()
	keys, err := places(d, record)
	if err != nil {
		return nil, err
	}
	seen, err := look(ctx, a.machine, d, keys)
	if err != nil {
		return nil, err
	}
	k := newKnown(d, record)
	k.places = keys
	k.saw(seen)
	return k, nil
}

// places lists everything that is declared, brought by what is declared, owned, or
// announced and left open.
func places(d Desired, record store.View) ([]store.Key, error) {
	keys := make([]store.Key, 0, len(d.Resources))
	listed := make(map[store.Key]bool, len(d.Resources))
	for _, r := range d.Resources {
		key := resource.KeyOf(r)
		if listed[key] {
			return nil, fmt.Errorf("plan: %s is declared twice", key)
		}
		listed[key] = true
		keys = append(keys, key)
	}
	add := func(key store.Key) {
		if !listed[key] && resource.Known(key.Kind) {
			listed[key] = true
			keys = append(keys, key)
		}
	}
	for _, r := range d.Resources {
		if image, ok := resource.ImageOf(r); ok {
			add(image)
		}
	}
	for _, o := range record.Owned {
		add(o.Key)
	}
	for _, in := range record.Intents {
		add(in.Key)
	}
	return keys, nil
}

func look(ctx context.Context, m resource.Machine, d Desired, keys []store.Key) (Seen, error) {
	accounts, err := m.Accounts()
	if err != nil {
		return Seen{}, err
	}
	seen := Seen{Found: resource.Look(ctx, m, keys), Accounts: accounts, Contents: map[string]bool{}, Offered: map[string]string{}, Broken: map[string][]resource.Broken{}}
	for _, r := range d.Resources {
		found, wanted := seen.Found[resource.KeyOf(r)]
		if !wanted {
			continue
		}
		if b := r.Blob(); b != nil && !holds(r, accounts, found) {
			seen.Contents[b.Digest] = m.HasContent(b.Digest)
		}
		// What is offered is not known while apt cannot say; what is installed stays.
		if version, err := resource.Offered(ctx, m, r); err == nil && version != "" {
			seen.Offered[r.Where()] = version
		}
		broken, err := resource.BrokenVersions(m, r)
		if err != nil {
			return Seen{}, err
		}
		if len(broken) > 0 {
			seen.Broken[r.Where()] = broken
		}
	}
	return seen, nil
}

// holds says whether what is found at r is as declared, and so needs no content.
func holds(r declaration.Resource, accounts system.Accounts, found resource.Found) bool {
	target, err := resource.Target(r, accounts)
	return err == nil && found.Err == nil && resource.Differs(r.Kind(), target, found.State) == ""
}

// Reconcile brings the machine to d, as far as it can, and says what became of
// every resource. The outcome is complete even when there is an error; the error
// is for the pass as a whole: the store cannot be written, the machine cannot be
// looked at, or ctx ended.
func (a *Applier) Reconcile(ctx context.Context, d Desired) (declaration.Outcome, error) {
	a.calm = nil
	if _, err := a.Recover(ctx); err != nil {
		return a.nothing(d, err), err
	}
	k, err := a.known(ctx, d)
	if err != nil {
		return a.nothing(d, err), err
	}
	plan := k.plan()
	p := &pass{Applier: a, known: k, became: map[string]declaration.Status{}, results: make([]declaration.Result, 0, len(plan.Steps))}
	p.execute(ctx, plan)
	a.watch(Activity{})
	out := declaration.Outcome{Epoch: d.Epoch, Generation: d.Generation, Digest: d.Digest, Results: p.results}
	if ctx.Err() != nil {
		p.errs = append(p.errs, context.Cause(ctx))
	}
	if err := errors.Join(p.errs...); err != nil {
		return out, err
	}
	a.calm = newCalm(d, plan, a.store.View(), k)
	return out, nil
}

// Calm is what the last pass saw; nil where it had something to do, or left
// something to be done.
func (a *Applier) Calm() *Calm { return a.calm }

// nothing is the outcome of a pass that could not begin.
func (a *Applier) nothing(d Desired, err error) declaration.Outcome {
	out := declaration.Outcome{Epoch: d.Epoch, Generation: d.Generation, Digest: d.Digest}
	for _, r := range d.Resources {
		out.Results = append(out.Results, declaration.Result{
			ID: r.ID, Kind: r.Kind(), Where: r.Where(), Status: declaration.StatusFailed, Reason: line(err.Error()),
		})
	}
	return out
}
