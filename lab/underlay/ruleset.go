package underlay

import (
	"strings"

	"mesh/lab/scenario"
)

// The names of a router's links, inside its own namespace.
const (
	linkInside  = "inside"
	linkOutside = "outside"
)

// ruleset is a router's whole filter, one nftables table.
//
// Both families: what comes from inside goes out, and only what answers it comes
// back in. Under NATNone IPv4 is plainly routed both ways.
//
// NATEasy is masquerading that keeps the source port. It is endpoint-independent
// in its mapping as long as no two machines inside use the same source port at
// once: every destination then sees the same outside port, which is what hole
// punching needs. The second machine to use a port gets another one for each
// destination; netfilter has no mapping that holds across connections. Filtering
// is per connection, not endpoint-independent.
func ruleset(nat scenario.NAT) string {
	var b strings.Builder
	line := func(text string) { b.WriteString(text + "\n") }
	line(`table inet lab {`)
	line(`	chain forward {`)
	line(`		type filter hook forward priority filter; policy drop;`)
	if nat == scenario.NATNone {
		line(`		meta nfproto ipv4 accept`)
	}
	line(`		ct state established,related accept`)
	line(`		iifname "` + linkInside + `" oifname "` + linkOutside + `" accept`)
	line(`	}`)
	if nat == scenario.NATEasy {
		line(``)
		line(`	chain postrouting {`)
		line(`		type nat hook postrouting priority srcnat; policy accept;`)
		line(`		meta nfproto ipv4 oifname "` + linkOutside + `" masquerade`)
		line(`	}`)
	}
	line(`}`)
	return b.String()
}
