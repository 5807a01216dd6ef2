package gateway

import "net"

// Guard is what Run does to its listener.
func Guard(l net.Listener, limits Limits) net.Listener { return newStrangers(limits).guard(l) }
