package dhcp_test

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"pgregory.net/rapid"

	"mesh/lab/world/dhcp"
)

var (
	known    = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	stranger = net.HardwareAddr{2, 0, 0, 0, 0, 9}
	declared = net.IPv4(192, 168, 1, 10)
	other    = net.IPv4(192, 168, 1, 77)
	server   = net.IPv4(192, 168, 1, 1)
)

func segment() dhcp.Config {
	return dhcp.Config{
		Segment: "home",
		Server:  netip.MustParseAddr("192.168.1.1"),
		Prefix:  netip.MustParsePrefix("192.168.1.0/24"),
		Router:  netip.MustParseAddr("192.168.1.1"),
		DNS:     []netip.Addr{netip.MustParseAddr("203.0.113.2")},
		Domain:  "world.test",
		Lease:   time.Hour,
		Leases: map[string]netip.Addr{
			known.String():      netip.MustParseAddr("192.168.1.10"),
			"02:00:00:00:00:02": netip.MustParseAddr("192.168.1.11"),
		},
	}
}

func message(t testing.TB, kind dhcpv4.MessageType, with ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	t.Helper()
	m, err := dhcpv4.New(append([]dhcpv4.Modifier{
		dhcpv4.WithHwAddr(known), dhcpv4.WithMessageType(kind),
	}, with...)...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func asking(a net.IP) dhcpv4.Modifier { return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(a)) }
func holding(a net.IP) dhcpv4.Modifier {
	return func(m *dhcpv4.DHCPv4) { m.ClientIPAddr = a }
}
func choosing(a net.IP) dhcpv4.Modifier { return dhcpv4.WithOption(dhcpv4.OptServerIdentifier(a)) }

// TestAnswer goes through what RFC 2131 lets a client say. Silence is "".
func TestAnswer(t *testing.T) {
	discover, request := dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest
	for name, c := range map[string]struct {
		message *dhcpv4.DHCPv4
		reply   string // message type
		address net.IP // zero: none
		to      string // zero: not looked at
	}{
		"discover":                      {message(t, discover), "OFFER", declared, "192.168.1.10 neighbour"},
		"discover, broadcast":           {message(t, discover, dhcpv4.WithBroadcast(true)), "OFFER", declared, "255.255.255.255"},
		"discover, wanting another":     {message(t, discover, asking(other)), "OFFER", declared, ""},
		"discover by a stranger":        {message(t, discover, dhcpv4.WithHwAddr(stranger)), "", nil, ""},
		"select":                        {message(t, request, choosing(server), asking(declared)), "ACK", declared, "192.168.1.10 neighbour"},
		"select another server":         {message(t, request, choosing(other), asking(declared)), "", nil, ""},
		"select another address":        {message(t, request, choosing(server), asking(other)), "NAK", nil, "255.255.255.255"},
		"select somebody else's":        {message(t, request, choosing(server), asking(net.IPv4(192, 168, 1, 11))), "NAK", nil, ""},
		"reboot (case L4)":              {message(t, request, asking(declared)), "ACK", declared, "192.168.1.10 neighbour"},
		"reboot with another":           {message(t, request, asking(other)), "NAK", nil, "255.255.255.255"},
		"reboot of a stranger":          {message(t, request, asking(declared), dhcpv4.WithHwAddr(stranger)), "", nil, ""},
		"renew or rebind (case L4)":     {message(t, request, holding(declared)), "ACK", declared, "192.168.1.10"},
		"renew another":                 {message(t, request, holding(other)), "NAK", nil, "255.255.255.255"},
		"request of nothing":            {message(t, request), "NAK", nil, "255.255.255.255"},
		"inform":                        {message(t, dhcpv4.MessageTypeInform, holding(other)), "ACK", nil, "192.168.1.77"},
		"inform without an address":     {message(t, dhcpv4.MessageTypeInform), "", nil, ""},
		"decline":                       {message(t, dhcpv4.MessageTypeDecline, asking(declared)), "", nil, ""},
		"release":                       {message(t, dhcpv4.MessageTypeRelease, holding(declared)), "", nil, ""},
		"an offer":                      {message(t, dhcpv4.MessageTypeOffer), "", nil, ""},
		"no message type":               {message(t, dhcpv4.MessageTypeNone), "", nil, ""},
		"a reply":                       {message(t, discover, func(m *dhcpv4.DHCPv4) { m.OpCode = dhcpv4.OpcodeBootReply }), "", nil, ""},
		"through a relay":               {message(t, discover, dhcpv4.WithGatewayIP(other)), "", nil, ""},
		"discover with a long MAC":      {message(t, discover, dhcpv4.WithHwAddr(make([]byte, 16))), "", nil, ""},
		"discover over another network": {message(t, discover, dhcpv4.WithHWType(6)), "", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := segment().Answer(c.message)
			if v.Why == "" {
				t.Error("no reason for the log")
			}
			if (v.Reply == nil) != (c.reply == "") {
				t.Fatalf("reply %v, want %q", v.Reply, c.reply)
			}
			if v.Reply == nil {
				return
			}
			if got := v.Reply.MessageType().String(); got != c.reply {
				t.Errorf("reply %s, want %s", got, c.reply)
			}
			if got := v.Reply.YourIPAddr; !got.Equal(zero(c.address)) {
				t.Errorf("address %v, want %v", got, c.address)
			}
			if got := dhcp.Destination(v.Reply); c.to != "" && got != c.to {
				t.Errorf("sent to %s, want %s", got, c.to)
			}
			if !bytes.Equal(v.Reply.TransactionID[:], c.message.TransactionID[:]) {
				t.Error("another transaction's id")
			}
		})
	}
}

func zero(ip net.IP) net.IP {
	if ip == nil {
		return net.IPv4zero
	}
	return ip
}

// TestOptions are those that a machine is given, as bytes on the wire say them.
func TestOptions(t *testing.T) {
	id := []byte{1, 2, 3}
	ask := message(t, dhcpv4.MessageTypeDiscover, dhcpv4.WithOption(dhcpv4.OptClientIdentifier(id)))
	offer, err := dhcpv4.FromBytes(segment().Answer(ask).Reply.ToBytes())
	if err != nil {
		t.Fatal(err)
	}
	type options struct {
		Mask, Router, DNS, Domain, Server, Client string
		Lease                                     time.Duration
	}
	got := options{
		Mask: offer.SubnetMask().String(), Router: offer.Router()[0].String(), DNS: offer.DNS()[0].String(),
		Domain: offer.DomainName(), Server: offer.ServerIdentifier().String(), Lease: offer.IPAddressLeaseTime(0),
		Client: string(offer.Options.Get(dhcpv4.OptionClientIdentifier)),
	}
	want := options{
		Mask: "ffffff00", Router: "192.168.1.1", DNS: "203.0.113.2", Domain: "world.test",
		Server: "192.168.1.1", Client: string(id), Lease: time.Hour,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	bare := segment()
	bare.Router, bare.DNS, bare.Domain = netip.Addr{}, nil, ""
	offer = bare.Answer(ask).Reply
	for _, code := range []dhcpv4.OptionCode{dhcpv4.OptionRouter, dhcpv4.OptionDomainNameServer, dhcpv4.OptionDomainName} {
		if offer.Options.Has(code) {
			t.Errorf("option %s is given, with nothing to say", code)
		}
	}
	if inform := segment().Answer(message(t, dhcpv4.MessageTypeInform, holding(other))).Reply; inform.Options.Has(dhcpv4.OptionIPAddressLeaseTime) {
		t.Error("a lease for one who only wants to be informed: RFC 2131, section 4.3.5")
	}
}

// TestOnlyDeclared: whatever is asked, nobody is given any address but its own.
func TestOnlyDeclared(t *testing.T) {
	c := segment()
	rapid.Check(t, func(r *rapid.T) {
		mac := net.HardwareAddr{2, 0, 0, 0, 0, rapid.Byte().Draw(r, "mac")}
		address := rapid.Custom(func(r *rapid.T) net.IP { return net.IPv4(192, 168, 1, rapid.Byte().Draw(r, "last")) })
		with := []dhcpv4.Modifier{dhcpv4.WithHwAddr(mac)}
		for _, part := range []func(net.IP) dhcpv4.Modifier{asking, holding, choosing} {
			if rapid.Bool().Draw(r, "has") {
				with = append(with, part(address.Draw(r, "address")))
			}
		}
		v := c.Answer(message(t, dhcpv4.MessageType(rapid.IntRange(0, 10).Draw(r, "type")), with...))
		lease, known := c.Leases[mac.String()]
		switch {
		case v.Reply == nil:
		case !known:
			r.Errorf("a stranger is answered: %s", v.Reply.Summary())
		case !v.Reply.YourIPAddr.IsUnspecified() && v.Reply.YourIPAddr.String() != lease.String():
			r.Errorf("%s is given %s, declared is %s", mac, v.Reply.YourIPAddr, lease)
		}
	})
}

// FuzzAnswer: no bytes panic, and every reply is one that its receiver can read.
func FuzzAnswer(f *testing.F) {
	f.Add(message(f, dhcpv4.MessageTypeDiscover).ToBytes())
	f.Add(message(f, dhcpv4.MessageTypeRequest, asking(other)).ToBytes())
	f.Add(message(f, dhcpv4.MessageTypeInform, holding(other)).ToBytes())
	f.Add([]byte{1, 1, 6})
	f.Fuzz(func(t *testing.T, packet []byte) {
		m, err := dhcpv4.FromBytes(packet)
		if err != nil {
			return
		}
		v := segment().Answer(m)
		if v.Reply == nil {
			return
		}
		dhcp.Destination(v.Reply)
		if _, err := dhcpv4.FromBytes(v.Reply.ToBytes()); err != nil {
			t.Errorf("reply cannot be read: %v", err)
		}
	})
}
