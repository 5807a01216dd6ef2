package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"mesh/host/apply"
	"mesh/host/declaration"
	"mesh/host/resource"
	"mesh/host/store"
)

// Hand makes passes over this machine. The store is locked for the time of one
// pass only, so that an operator's command and the agent take turns.
type Hand struct {
	Store   store.Config
	Machine resource.Machine
	Runtime Folder  // for those who look: see Inspect
	Process Process // this process, as those who look find it
	Now     func() time.Time
	Log     *slog.Logger // nil means discard

	// Prune takes away every content that keep does not want; nil: there is none.
	Prune func(keep func(digest string) bool) error

	// Once says that no pass follows: nothing is kept for one.
	Once bool

	// Waiting is called once in a pass that has to wait for another process's.
	// nil means nobody wants to know.
	Waiting func()

	// Whole is called before a pass that has more to do than to glance. nil means
	// nobody wants to know.
	Whole func()

	mu   sync.Mutex
	rest *rest               // nil: the next pass is a whole one
	said declaration.Outcome // of the last pass, which the log was told
}

// rest is what a pass left that found everything as declared. While nothing of it
// changes, a pass is a glance: the machine is looked at, and neither is the record
// read nor the declaration.
type rest struct {
	held    *store.Accepted // without its document
	stamp   string          // of the record
	calm    *apply.Calm
	outcome declaration.Outcome
}

// lockRetry is how often a lock held by another process is tried again: there
// is no way to wait for one and for a context at once.
const lockRetry = 200 * time.Millisecond

// roomOfResult is about how many bytes a result takes where it is published.
const roomOfResult = 128

// narrateEvery bounds how often the activity within a pass is published.
const narrateEvery = time.Second

// Pass implements Passer. It waits for the pass of another process to end, as
// long as ctx lasts. Where nothing changed since the pass before, what is held is
// returned without its document. Errors match those of store.Open and store.Append.
func (h *Hand) Pass(ctx context.Context, accept *store.Accepted) (held *store.Accepted, outcome declaration.Outcome, err error) {
	if h.Log == nil {
		h.Log = slog.New(slog.DiscardHandler)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if accept == nil && h.restsLocked(ctx) {
		return h.rest.held, h.rest.outcome, nil
	}
	h.rest = nil
	if h.Whole != nil {
		h.Whole()
	}
	record, err := h.open(ctx)
	if err != nil {
		h.note(PassState{Started: h.Now().UTC(), Finished: h.Now().UTC(), Error: oneLine(err.Error())})
		return nil, declaration.Outcome{}, err
	}
	defer func() { err = errors.Join(err, record.Close()) }()

	held = record.View().Accepted
	switch {
	case isNew(held, accept):
		if err := record.Append(*accept); err != nil {
			return held, declaration.Outcome{}, err
		}
		held = accept
	case accept != nil && accept.Resources != nil:
		held.Resources, accept.Document = accept.Resources, nil // of the same document, which is let go
	default:
		whole, err := record.Held()
		if err != nil {
			h.note(PassState{Started: h.Now().UTC(), Finished: h.Now().UTC(), Error: oneLine(err.Error())})
			return held, declaration.Outcome{}, err
		}
		held = whole
	}
	if held == nil {
		return nil, declaration.Outcome{}, nil
	}
	desired, err := Desired(*held)
	if err != nil {
		err = fmt.Errorf("read the declaration held: %w", err)
		h.note(PassState{Started: h.Now().UTC(), Finished: h.Now().UTC(), Error: oneLine(err.Error())})
		return held, declaration.Outcome{}, err
	}
	outcome, calm, err := h.apply(ctx, record, desired)
	if err == nil { // else more may have been recorded than is known now
		err = h.prune(record.View(), desired)
	}
	if stamp := store.Stamp(h.Store.Directory); err == nil && calm != nil && stamp != "" { // as long as nobody else may write
		h.rest = &rest{held: bare(held), stamp: stamp, calm: calm, outcome: outcome}
	}
	return held, outcome, err
}

// restsLocked says whether nothing changed since the last pass, and publishes that
// it was looked at.
func (h *Hand) restsLocked(ctx context.Context) bool {
	if h.rest == nil || store.Stamp(h.Store.Directory) != h.rest.stamp {
		return false
	}
	started := h.Now().UTC()
	if !h.rest.calm.Still(ctx, h.Machine) {
		return false
	}
	h.note(PassState{Started: started, Finished: h.Now().UTC()})
	return true
}

// prune keeps of the contents what is declared, and the copies that are recorded.
func (h *Hand) prune(record store.View, desired apply.Desired) error {
	if h.Prune == nil {
		return nil
	}
	wanted := map[string]bool{}
	for _, b := range declaration.Blobs(desired.Resources) {
		wanted[b.Digest] = true
	}
	for _, c := range record.Copies {
		wanted[c.Digest] = true
	}
	if err := h.Prune(func(digest string) bool { return wanted[digest] }); err != nil {
		return fmt.Errorf("take away content that nothing needs: %w", err)
	}
	return nil
}

// isNew says whether accept is there, and another declaration than the one held.
func isNew(held, accept *store.Accepted) bool {
	return accept != nil && (held == nil || !sameDocument(*held, *accept))
}

func sameDocument(a, b store.Accepted) bool {
	return a.Source == b.Source && a.Mesh == b.Mesh && a.Epoch == b.Epoch && a.Generation == b.Generation && a.Digest == b.Digest
}

func (h *Hand) open(ctx context.Context) (*store.Store, error) {
	for waiting := false; ; waiting = true {
		record, _, err := store.Open(h.Store) // what it found damaged it logs itself
		if !errors.Is(err, store.ErrLocked) {
			return record, err
		}
		if !waiting && h.Waiting != nil {
			h.Waiting()
		}
		timer := time.NewTimer(lockRetry)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		case <-timer.C:
		}
	}
}

// apply runs one pass, and keeps those who look informed.
func (h *Hand) apply(ctx context.Context, record *store.Store, desired apply.Desired) (declaration.Outcome, *apply.Calm, error) {
	state := PassState{Started: h.Now().UTC()}
	h.note(state)

	var mu sync.Mutex
	var now *apply.Activity // guarded by mu
	applier := apply.New(apply.Config{
		Machine: h.Machine, Store: record, Now: h.Now, Log: logFor(h.Log, desired), Said: h.said,
		Watch: func(a apply.Activity) {
			mu.Lock()
			defer mu.Unlock()
			now = &a
		},
	})
	over := make(chan struct{})
	var narrator sync.WaitGroup
	narrator.Go(func() {
		ticker := time.NewTicker(narrateEvery)
		defer ticker.Stop()
		for {
			select {
			case <-over:
				return
			case <-ticker.C:
			}
			mu.Lock()
			changed := now != nil && (state.Activity == nil || *now != *state.Activity)
			state.Activity = now
			mu.Unlock()
			if changed {
				h.note(state)
			}
		}
	})
	outcome, err := applier.Reconcile(ctx, desired)
	var calm *apply.Calm
	if !h.Once {
		calm = applier.Calm()
	}
	close(over)
	narrator.Wait()

	h.said = outcome
	publish(h.Runtime, h.Log, outcomeName, outcome, len(outcome.Results)*roomOfResult)
	state.Finished, state.Activity = h.Now().UTC(), nil
	if err != nil {
		state.Error = oneLine(err.Error())
	}
	h.note(state)
	return outcome, calm, err
}

// logFor names in every entry the declaration that it is about; a bundle has no
// number.
func logFor(log *slog.Logger, desired apply.Desired) *slog.Logger {
	if desired.Generation == 0 {
		return log
	}
	return log.With("epoch", desired.Epoch, "generation", desired.Generation)
}

func (h *Hand) note(state PassState) {
	state.Process = h.Process
	publish(h.Runtime, h.Log, passName, state, 0)
}

// Desired reads the document of an accepted declaration. It was verified when
// it was accepted; the store is nobody else's to write.
func Desired(held store.Accepted) (apply.Desired, error) {
	desired := apply.Desired{Source: held.Source, Epoch: held.Epoch, Generation: held.Generation, Digest: held.Digest, Resources: held.Resources}
	if held.Resources != nil {
		return desired, nil
	}
	document, err := held.Received()
	if err != nil {
		return apply.Desired{}, err
	}
	switch held.Source {
	case store.SourceBundle:
		b, err := declaration.ParseBundle(document)
		desired.Resources = b.Resources
		return desired, err
	case store.SourcePlane:
		d, _, err := declaration.Reopen(document)
		desired.Resources = d.Resources
		return desired, err
	}
	return apply.Desired{}, fmt.Errorf("its source %q is not one this mesh-host knows", held.Source)
}
