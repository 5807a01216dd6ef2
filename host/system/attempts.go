package system

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Delays between attempts at what needs somebody far away, and failed: others have
// their turn meanwhile, and whoever was asked is left in peace.
const (
	retryFirst = 15 * time.Second
	retryMost  = 10 * time.Minute
)

// attempts remembers what failed, so that it is tried ever more rarely. Safe for
// concurrent use.
type attempts struct {
	jitter func() float64 // in [0,1)

	mu     sync.Mutex
	failed map[string]attempt
}

// attempt is the last one at something, which failed.
type attempt struct {
	err   error
	as    string        // the state of what it depended on
	delay time.Duration // since then until the next
	next  time.Time
}

// newAttempts remembers nothing yet. A jitter of nil means at random.
func newAttempts(jitter func() float64) *attempts {
	if jitter == nil {
		jitter = rand.Float64
	}
	return &attempts{jitter: jitter, failed: map[string]attempt{}}
}

// rests says why something is not tried yet; nil when it may be. What depends on
// something else by now is not the same.
func (a *attempts) rests(what, as string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, failed := a.failed[what]
	if !failed || last.as != as || !time.Now().Before(last.next) {
		return nil
	}
	return fmt.Errorf("%w; it is tried again at %s", last.err, last.next.UTC().Format("15:04:05 UTC"))
}

// came keeps how an attempt ended.
func (a *attempts) came(what, as string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := a.failed[what]
	if err == nil {
		delete(a.failed, what)
		return
	}
	if last.as != as {
		last.delay = 0
	}
	delay := min(max(2*last.delay, retryFirst), retryMost)
	a.failed[what] = attempt{err, as, delay, time.Now().Add(delay/2 + time.Duration(a.jitter()*float64(delay/2)))}
}
