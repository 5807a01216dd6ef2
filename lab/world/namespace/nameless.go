package namespace

import (
	"fmt"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Nameless is a namespace that nothing names: it ends when it is closed and the
// last of its sockets and processes is gone, with the process that made it at
// the latest, however that ends. Make it with New. Safe for concurrent use.
type Nameless struct {
	handle netns.NsHandle
}

// New makes a namespace without a name. Its loopback link is down.
func New() (*Nameless, error) {
	var made netns.NsHandle
	err := apart(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		var err error
		made, err = netns.Get()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make a namespace: %w", err)
	}
	return &Nameless{made}, nil
}

// Do is as the function Do, in n.
func (n *Nameless) Do(f func() error) error {
	return apart(func() error {
		if err := netns.Set(n.handle); err != nil {
			return fmt.Errorf("enter a namespace: %w", err)
		}
		return f()
	})
}

// Descriptor is the open file of the namespace, for moving links into it; it
// stays n's.
func (n *Nameless) Descriptor() int { return int(n.handle) }

// Close gives the namespace up. What is still open in it works on.
func (n *Nameless) Close() error { return n.handle.Close() }
