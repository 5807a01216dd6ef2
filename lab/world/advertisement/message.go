// Package advertisement tells the machines of a segment its IPv6 prefix, its
// router and its DNS servers (RFC 4861, RFC 4862, RFC 8106). A machine's address
// follows from its MAC, so nothing is granted and nothing remembered.
//
// Only lab/world imports it.
package advertisement

import (
	"net"
	"net/netip"
	"time"

	"github.com/mdlayher/ndp"
)

// Config is what one segment's advertisements say.
type Config struct {
	Segment string
	Prefix  netip.Prefix // a /64
	Gateway bool         // the sender is the way out
	DNS     []netip.Addr // IPv6 only; may be empty
}

// Lifetimes of what is said. They outlast a scenario that is paused for a while,
// and are renewed by any advertisement.
const (
	routerLifetime = 30 * time.Minute // RFC 4861 allows up to 9000 s
	preferred      = 4 * time.Hour
	valid          = 24 * time.Hour
)

// Message is the advertisement of a router whose link has that MAC.
func (c Config) Message(mac net.HardwareAddr) *ndp.RouterAdvertisement {
	ra := &ndp.RouterAdvertisement{
		CurrentHopLimit: 64,
		Options: []ndp.Option{
			&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: mac},
			&ndp.PrefixInformation{
				PrefixLength:                   uint8(c.Prefix.Bits()),
				OnLink:                         true,
				AutonomousAddressConfiguration: true,
				ValidLifetime:                  valid,
				PreferredLifetime:              preferred,
				Prefix:                         c.Prefix.Masked().Addr(),
			},
		},
	}
	if c.Gateway {
		ra.RouterLifetime = routerLifetime
	}
	if len(c.DNS) > 0 {
		ra.Options = append(ra.Options, &ndp.RecursiveDNSServer{Lifetime: routerLifetime, Servers: c.DNS})
	}
	return ra
}
