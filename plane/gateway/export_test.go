package gateway

import (
	"net"

	"mesh/host/identity"
)

// Guard is what Run does to its listener.
func Guard(l net.Listener, limits Limits) net.Listener { return newStrangers(limits).guard(l) }

// Known is what a call of the node with this key does to its connection.
func Known(c net.Conn, key identity.NodePublicKey) { c.(*accepted).known(key) }
