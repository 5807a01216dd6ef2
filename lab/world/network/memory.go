package network

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

// Memory is what a router remembers of what passed it. A router that begins
// without it makes other translations than those its machines' peers know, and
// lets nobody in whom they wait for. The zero value is that of a router that
// nothing has passed.
type Memory struct {
	// Connections are those of TCP and UDP, each as conntrack(8) writes it with
	// --output save.
	Connections []string `json:"connections,omitempty"`
	// Mappings are those of a router of easy NAT: its maps.
	Mappings []Mapping `json:"mappings,omitempty"`
}

// Mapping is as whom the outside sees a port of a machine.
type Mapping struct {
	Protocol string         `json:"protocol"` // tcp or udp
	Inside   netip.AddrPort `json:"inside"`
	Outside  netip.AddrPort `json:"outside"`
}

// connectionForm is an entry that adds a connection of TCP or UDP, and nothing
// that would make conntrack do anything else.
var connectionForm = regexp.MustCompile(`^-A( (-t \d{1,10}|-u [A-Z_]+(,[A-Z_]+)*|-[sdrqng] [0-9a-f.:]{2,45}` +
	`|-p (tcp|udp)|--(sport|dport|reply-port-src|reply-port-dst) \d{1,5}|--state [A-Z0-9_]+))+$`)

// Check finds what no router can remember, all of it.
func (m Memory) Check() error {
	var problems []error
	for _, c := range m.Connections {
		if !connectionForm.MatchString(c) {
			problems = append(problems, fmt.Errorf("connection %.200q is no entry of TCP or UDP", c))
		}
	}
	for _, p := range m.Mappings {
		if p.Protocol != "tcp" && p.Protocol != "udp" || !p.Inside.Addr().Is4() || !p.Outside.Addr().Is4() {
			problems = append(problems, fmt.Errorf("mapping %.20q %s to %s: wanted tcp or udp, and IPv4", p.Protocol, p.Inside, p.Outside))
		}
	}
	return errors.Join(problems...)
}

// elements fills the maps of an easy router in one transaction, for as long as
// if the mappings had just been used: that they end is of no use to anybody.
func elements(mappings []Mapping) string {
	var b strings.Builder
	b.WriteString("flush map inet lab seen\nflush map inet lab owner\nflush set inet lab taken\n")
	for _, m := range mappings {
		outside := fmt.Sprintf("%s . %d", m.Protocol, m.Outside.Port())
		fmt.Fprintf(&b, "add element inet lab seen { %s . %s . %d : %s . %d }\n",
			m.Protocol, m.Inside.Addr(), m.Inside.Port(), m.Outside.Addr(), m.Outside.Port())
		fmt.Fprintf(&b, "add element inet lab owner { %s : %s . %d }\n", outside, m.Inside.Addr(), m.Inside.Port())
		fmt.Fprintf(&b, "add element inet lab taken { %s }\n", outside)
	}
	return b.String()
}
