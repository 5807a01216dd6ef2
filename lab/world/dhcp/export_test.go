package dhcp

import "github.com/insomniacslk/dhcp/dhcpv4"

// Destination shows where a reply would go.
func Destination(reply *dhcpv4.DHCPv4) string {
	to, neighbour := destination(reply)
	if neighbour {
		return to.String() + " neighbour"
	}
	return to.String()
}
