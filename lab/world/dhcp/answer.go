// Package dhcp grants each machine of a segment the IPv4 address that the
// scenario declares for it, and nothing else.
//
// There is no pool and no lease state to be lost: the address follows from the
// MAC, so that renewing is granted after any time and after any restart. A
// message from a MAC that nobody declared is met with silence and a line in the
// log. Relays do not exist in a scenario; what comes through one is not answered.
//
// Only lab/world imports it.
package dhcp

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"
)

// Config is what one segment's server knows.
type Config struct {
	Segment string
	Server  netip.Addr            // its own address on the segment
	Prefix  netip.Prefix          // the segment's
	Router  netip.Addr            // zero: no way out, and the option is left out
	DNS     []netip.Addr          // IPv4 only; empty: the option is left out
	Domain  string                // empty: the option is left out
	Lease   time.Duration         // at least a second
	Leases  map[string]netip.Addr // MAC, as net.HardwareAddr prints it → address
}

// Verdict is what a message comes to.
type Verdict struct {
	Reply *dhcpv4.DHCPv4 // nil: silence
	Why   string         // one line for the log
	Odd   bool           // Why is worth a warning
}

// Answer decides what is said to a message. It is pure; m is not changed.
func (c Config) Answer(m *dhcpv4.DHCPv4) Verdict {
	switch {
	case m.OpCode != dhcpv4.OpcodeBootRequest:
		return Verdict{Why: "not a request", Odd: true}
	case m.HWType != iana.HWTypeEthernet || len(m.ClientHWAddr) != 6:
		return Verdict{Why: "not from Ethernet", Odd: true}
	case !unspecified(m.GatewayIPAddr):
		return Verdict{Why: "through a relay", Odd: true}
	}
	lease, known := c.Leases[m.ClientHWAddr.String()]
	if !known {
		return Verdict{Why: "nobody declared this MAC", Odd: true}
	}
	switch m.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		return Verdict{Reply: c.grant(m, dhcpv4.MessageTypeOffer, lease), Why: "offered"}
	case dhcpv4.MessageTypeRequest:
		return c.request(m, lease)
	case dhcpv4.MessageTypeInform:
		if unspecified(m.ClientIPAddr) {
			return Verdict{Why: "informed without an address", Odd: true}
		}
		reply := c.reply(m, dhcpv4.MessageTypeAck)
		reply.ClientIPAddr = m.ClientIPAddr
		c.configure(reply)
		return Verdict{Reply: reply, Why: "informed"}
	case dhcpv4.MessageTypeDecline:
		return Verdict{Why: "declined: somebody else has its address", Odd: true}
	case dhcpv4.MessageTypeRelease:
		return Verdict{Why: "released"}
	}
	return Verdict{Why: "not a message for a server: " + m.MessageType().String(), Odd: true}
}

// request answers DHCPREQUEST in the four states a client can send it in: RFC
// 2131, section 4.3.2.
func (c Config) request(m *dhcpv4.DHCPv4, lease netip.Addr) Verdict {
	wanted := address(m.RequestedIPAddress())
	if server := address(m.ServerIdentifier()); server.IsValid() && server != c.Server {
		return Verdict{Why: "chose another server: " + server.String(), Odd: true}
	}
	if !wanted.IsValid() {
		wanted = address(m.ClientIPAddr) // renewing or rebinding
	}
	if wanted != lease {
		reply := c.reply(m, dhcpv4.MessageTypeNak)
		reply.UpdateOption(dhcpv4.OptMessage("the declared address is " + lease.String()))
		return Verdict{Reply: reply, Why: fmt.Sprintf("refused %s", wanted), Odd: true}
	}
	reply := c.grant(m, dhcpv4.MessageTypeAck, lease)
	reply.ClientIPAddr = m.ClientIPAddr
	return Verdict{Reply: reply, Why: "granted"}
}

func (c Config) grant(m *dhcpv4.DHCPv4, kind dhcpv4.MessageType, lease netip.Addr) *dhcpv4.DHCPv4 {
	reply := c.reply(m, kind)
	reply.YourIPAddr = lease.AsSlice()
	reply.UpdateOption(dhcpv4.OptIPAddressLeaseTime(c.Lease))
	c.configure(reply)
	return reply
}

// reply is what all replies share: RFC 2131, table 3, and RFC 6842.
func (c Config) reply(m *dhcpv4.DHCPv4, kind dhcpv4.MessageType) *dhcpv4.DHCPv4 {
	reply := &dhcpv4.DHCPv4{
		OpCode:        dhcpv4.OpcodeBootReply,
		HWType:        m.HWType,
		TransactionID: m.TransactionID,
		Flags:         m.Flags,
		ClientIPAddr:  net.IPv4zero,
		YourIPAddr:    net.IPv4zero,
		ServerIPAddr:  net.IPv4zero,
		GatewayIPAddr: net.IPv4zero,
		ClientHWAddr:  m.ClientHWAddr,
		Options:       dhcpv4.Options{},
	}
	reply.UpdateOption(dhcpv4.OptMessageType(kind))
	reply.UpdateOption(dhcpv4.OptServerIdentifier(c.Server.AsSlice()))
	if id := m.Options.Get(dhcpv4.OptionClientIdentifier); id != nil {
		reply.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionClientIdentifier, id))
	}
	return reply
}

// configure adds what a machine is told beside its address.
func (c Config) configure(reply *dhcpv4.DHCPv4) {
	reply.UpdateOption(dhcpv4.OptSubnetMask(net.CIDRMask(c.Prefix.Bits(), 32)))
	if c.Router.IsValid() {
		reply.UpdateOption(dhcpv4.OptRouter(c.Router.AsSlice()))
	}
	if len(c.DNS) > 0 {
		servers := make([]net.IP, 0, len(c.DNS))
		for _, a := range c.DNS {
			servers = append(servers, a.AsSlice())
		}
		reply.UpdateOption(dhcpv4.OptDNS(servers...))
	}
	if c.Domain != "" {
		reply.UpdateOption(dhcpv4.OptDomainName(c.Domain))
	}
}

// destination is where a reply goes: RFC 2131, section 4.1. neighbour tells that
// the address is not the client's yet, so that it cannot be asked for its MAC.
func destination(reply *dhcpv4.DHCPv4) (to netip.Addr, neighbour bool) {
	switch {
	case reply.MessageType() == dhcpv4.MessageTypeNak:
		return broadcast, false
	case !unspecified(reply.ClientIPAddr):
		return address(reply.ClientIPAddr), false
	case reply.IsBroadcast():
		return broadcast, false
	}
	return address(reply.YourIPAddr), true
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

func unspecified(ip net.IP) bool { return len(ip) == 0 || ip.IsUnspecified() }

// address converts; the zero Addr means absent, malformed or 0.0.0.0.
func address(ip net.IP) netip.Addr {
	a, ok := netip.AddrFromSlice(ip.To4())
	if !ok || a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}
