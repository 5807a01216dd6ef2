package gateway

import (
	"sync"
	"time"

	"mesh/host/identity"
	"mesh/plane/registry"
)

// Links knows which nodes have a link open, and wakes them when a change that
// concerns them was committed. The zero value is ready. Safe for concurrent use.
type Links struct {
	mu   sync.Mutex
	open map[identity.NodePublicKey]*openLink
}

// openLink is one Watch call. Its channels are its own; offer is guarded by
// Links.mu.
type openLink struct {
	key   identity.NodePublicKey
	since time.Time
	offer registry.Declared // the newest committed since it was opened
	wake  chan struct{}     // holds one: offer changed
	ended chan struct{}     // closed once: the link is over
	why   error             // set before ended is closed
}

// Committed wakes the nodes that a change concerns, and ends the links of keys
// that it forgets. It does not block.
func (l *Links) Committed(c registry.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Enrol != nil && !c.Enrol.Replaces.IsZero() {
		l.endLocked(c.Enrol.Replaces, notANode())
	}
	if c.Remove != nil {
		l.endLocked(c.Remove.Key, notANode())
	}
	for _, d := range c.Declare {
		if o := l.open[d.Node.Key]; o != nil {
			o.offer = d.Declared
			select {
			case o.wake <- struct{}{}:
			default: // it is awake already and will find this one
			}
		}
	}
}

// Since tells when the link of the node with this key was opened.
func (l *Links) Since(key identity.NodePublicKey) (since time.Time, open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o := l.open[key]; o != nil {
		return o.since, true
	}
	return time.Time{}, false
}

// keys lists the nodes with a link open.
func (l *Links) keys() []identity.NodePublicKey {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]identity.NodePublicKey, 0, len(l.open))
	for k := range l.open {
		all = append(all, k)
	}
	return all
}

// begin opens the link of key. A node has one: an older one ends.
func (l *Links) begin(key identity.NodePublicKey, now time.Time) *openLink {
	o := &openLink{key: key, since: now, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked(key, errReplaced)
	if l.open == nil {
		l.open = map[identity.NodePublicKey]*openLink{}
	}
	l.open[key] = o
	return o
}

// finish takes o out, unless another has taken its place.
func (l *Links) finish(o *openLink) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[o.key] == o {
		delete(l.open, o.key)
	}
}

// newest is the later of held and what was committed since o was opened.
func (l *Links) newest(o *openLink, held registry.Declared) registry.Declared {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o.offer.Epoch > held.Epoch || o.offer.Epoch == held.Epoch && o.offer.Generation > held.Generation {
		return o.offer
	}
	return held
}

func (l *Links) endLocked(key identity.NodePublicKey, why error) {
	if o := l.open[key]; o != nil {
		o.why = why
		close(o.ended)
		delete(l.open, key)
	}
}
