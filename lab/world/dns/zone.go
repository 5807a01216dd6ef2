// Package dns answers for every name of the outside, from what the scenario
// declares and from nothing else. It is the whole of the names there are: a name
// that nobody declared does not exist, and no question is ever passed on.
//
// It says of itself that it is authoritative and that it recurses, since
// machines use it as their resolver and ask for no other.
//
// Only lab/world imports it.
package dns

import (
	"net/netip"
	"slices"

	"github.com/miekg/dns"

	"mesh/lab/underlay"
)

// Time for which answers, and denials, may be remembered, in seconds.
const (
	ttl         = 60
	negativeTTL = 5
)

// maxUDP is the greatest answer sent in one datagram: https://www.dnsflagday.net/2020/
const maxUDP = 1232

// Zone is every name there is. It is immutable.
type Zone struct {
	addrs map[string][]netip.Addr // canonical name → addresses
	names map[string]bool         // canonical names that exist, those between included
}

// NewZone makes a zone of records. Several records of one name add up.
func NewZone(records []underlay.Record) *Zone {
	z := &Zone{addrs: map[string][]netip.Addr{}, names: map[string]bool{".": true}}
	for _, r := range records {
		name := dns.CanonicalName(r.Name)
		for _, a := range r.Addrs {
			if !slices.Contains(z.addrs[name], a) {
				z.addrs[name] = append(z.addrs[name], a)
			}
		}
		for i, end := 0, false; !end; i, end = dns.NextLabel(name, i) {
			z.names[name[i:]] = true
		}
	}
	return z
}

// Answer answers one message. limit is the greatest size in bytes that the
// transport takes; what does not fit is cut and marked as cut.
func (z *Zone) Answer(q *dns.Msg, limit int) *dns.Msg {
	a := new(dns.Msg)
	if q.Opcode != dns.OpcodeQuery {
		return a.SetRcode(q, dns.RcodeNotImplemented)
	}
	if len(q.Question) != 1 {
		return a.SetRcode(q, dns.RcodeFormatError)
	}
	a.SetReply(q)
	a.Authoritative, a.RecursionAvailable, a.Compress = true, true, true
	if opt := q.IsEdns0(); opt != nil {
		a.SetEdns0(maxUDP, opt.Do())
		if opt.Version() != 0 {
			a.Rcode = dns.RcodeBadVers
			return a
		}
	}
	z.resolve(a, q.Question[0])
	a.Truncate(limit)
	return a
}

func (z *Zone) resolve(a *dns.Msg, q dns.Question) {
	if q.Qclass != dns.ClassINET && q.Qclass != dns.ClassANY {
		a.Rcode = dns.RcodeRefused
		return
	}
	name := dns.CanonicalName(q.Name)
	for _, addr := range z.addrs[name] {
		if rr := record(q, addr); rr != nil {
			a.Answer = append(a.Answer, rr)
		}
	}
	if name == "." && (q.Qtype == dns.TypeSOA || q.Qtype == dns.TypeANY) {
		a.Answer = append(a.Answer, authority())
	}
	if !z.names[name] {
		a.Rcode = dns.RcodeNameError
	}
	if len(a.Answer) == 0 {
		a.Ns = append(a.Ns, authority())
	}
}

// record is the answer to q that addr gives, nil if none. Its owner is spelled
// as it was asked, upper and lower case.
func record(q dns.Question, addr netip.Addr) dns.RR {
	h := dns.RR_Header{Name: q.Name, Class: dns.ClassINET, Ttl: ttl, Rrtype: dns.TypeAAAA}
	if addr.Is4() {
		h.Rrtype = dns.TypeA
	}
	switch {
	case q.Qtype != h.Rrtype && q.Qtype != dns.TypeANY:
		return nil
	case addr.Is4():
		return &dns.A{Hdr: h, A: addr.AsSlice()}
	}
	return &dns.AAAA{Hdr: h, AAAA: addr.AsSlice()}
}

// authority is the start of authority of all names: RFC 2308.
func authority() dns.RR {
	return &dns.SOA{
		Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: negativeTTL},
		Ns:  dns.Fqdn(underlay.Domain), Mbox: dns.Fqdn("nobody." + underlay.Domain),
		Serial: 1, Refresh: 3600, Retry: 600, Expire: 86400, Minttl: negativeTTL,
	}
}
