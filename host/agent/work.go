package agent

import (
	"context"
	"errors"
	"time"

	"mesh/host/declaration"
	"mesh/host/store"
)

// firstRetry is the delay before a pass is repeated that left something undone.
// It doubles up to the interval.
const firstRetry = 5 * time.Second

// work makes pass after pass: at once, when a declaration comes in, after each
// interval, and sooner while something is left undone. first is closed when the
// first pass is over.
func (a *Agent) work(ctx context.Context, first chan struct{}) error {
	retry := backoff{first: firstRetry, most: a.cfg.Interval, jitter: a.cfg.Jitter}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var accept *store.Accepted // handed over by the link and not durable yet
	said := ""                 // why the pass before failed
	for {
		select {
		case <-ctx.Done():
			return nil
		case fresh := <-a.accepted:
			accept = &fresh
		case <-a.arrived:
		case <-timer.C:
		}
		now, whole, err := a.pass(ctx, accept)
		if ctx.Err() != nil {
			return nil
		}
		why := ""
		if err != nil {
			why = err.Error()
		}
		if why != "" && why != said {
			a.cfg.Log.Error("the pass over this machine failed", "err", why)
		}
		said = why
		if err == nil || errors.Is(err, store.ErrOlder) {
			accept = nil
		}
		put(a.passed, now)
		if whole && a.cfg.Spent != nil {
			a.cfg.Spent()
		}
		if first != nil {
			close(first)
			first = nil
		}
		if a.cfg.Replaced() {
			return errReplaced
		}
		wait := a.cfg.Interval
		if err != nil || !Converged(now.outcome) {
			wait = retry.next()
		} else {
			retry.reset()
		}
		timer.Reset(wait)
	}
}

// pass makes one, and says whether what is held was read for it.
func (a *Agent) pass(ctx context.Context, accept *store.Accepted) (now passed, whole bool, err error) {
	held, outcome, err := a.cfg.Hand.Pass(ctx, accept)
	now = passed{held: bare(held), outcome: outcome}
	if !Converged(outcome) {
		now.missing = missing(a.cfg.Contents, held)
	}
	return now, held.HasDocument(), err
}

// bare is a without its document, which may be large and is in the store.
func bare(a *store.Accepted) *store.Accepted {
	if a == nil {
		return nil
	}
	b := *a
	b.Document, b.Record, b.Resources = nil, nil, nil
	return &b
}

// Converged tells whether a pass left nothing to be done by a later one.
func Converged(o declaration.Outcome) bool {
	for _, r := range o.Results {
		if r.Status == declaration.StatusFailed || r.Status == declaration.StatusWaiting {
			return false
		}
	}
	return true
}

// backoff gives growing, jittered delays.
type backoff struct {
	first, most time.Duration
	jitter      func() float64
	step        time.Duration
}

// next is between half of and the whole step, which doubles up to most.
func (b *backoff) next() time.Duration {
	b.step = min(max(2*b.step, b.first), b.most)
	return b.step/2 + time.Duration(b.jitter()*float64(b.step/2))
}

func (b *backoff) reset() { b.step = 0 }
