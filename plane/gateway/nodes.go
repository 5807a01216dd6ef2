package gateway

import (
	"slices"
	"sync"

	"mesh/host/identity"
)

// nodes bounds the connections of each node: a host has one, and two for a while
// when it dials anew. Where there are more, the oldest ends.
type nodes struct {
	most int // of one node

	mu sync.Mutex
	of map[identity.NodePublicKey][]*accepted // oldest first
}

func newNodes(l Limits) *nodes {
	return &nodes{most: l.ConnectionsPerNode, of: map[identity.NodePublicKey][]*accepted{}}
}

// take counts c as one of the node with this key, once.
func (n *nodes) take(key identity.NodePublicKey, c *accepted) {
	if oldest := n.add(key, c); oldest != nil {
		oldest.Close()
	}
}

// add returns the connection that is one too many and no longer counted.
func (n *nodes) add(key identity.NodePublicKey, c *accepted) (oldest *accepted) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.node != nil || c.closed {
		return nil
	}
	c.node = &key
	all := append(n.of[key], c)
	if len(all) > n.most {
		oldest, all = all[0], all[1:]
	}
	n.of[key] = all
	return oldest
}

// closed takes c out.
func (n *nodes) closed(c *accepted) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c.closed = true
	if c.node == nil {
		return
	}
	rest := slices.DeleteFunc(n.of[*c.node], func(o *accepted) bool { return o == c })
	if n.of[*c.node] = rest; len(rest) == 0 {
		delete(n.of, *c.node)
	}
}
