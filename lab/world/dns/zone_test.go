package dns_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	mdns "github.com/miekg/dns"

	"mesh/lab/underlay"
	"mesh/lab/world/dns"
)

func addrs(all ...string) (parsed []netip.Addr) {
	for _, a := range all {
		parsed = append(parsed, netip.MustParseAddr(a))
	}
	return parsed
}

func zone() *dns.Zone {
	return dns.NewZone([]underlay.Record{
		{Name: "acme.world.test", Addrs: addrs("203.0.113.2", "2001:db8::2")},
		{Name: "only4.World.Test", Addrs: addrs("203.0.113.4")},
		{Name: "only4.world.test.", Addrs: addrs("203.0.113.5", "203.0.113.4")},
		{Name: "a.b.deep.example.org", Addrs: addrs("2001:db8::9")},
		{Name: "nothing.world.test"},
	})
}

func TestAnswer(t *testing.T) {
	soa := "soa"
	for _, c := range []struct {
		name string
		kind uint16
		want string // rcode, answers, then "soa" where it is the authority
	}{
		{"acme.world.test.", mdns.TypeA, "NOERROR 203.0.113.2"},
		{"acme.world.test.", mdns.TypeAAAA, "NOERROR 2001:db8::2"},
		{"acme.world.test.", mdns.TypeANY, "NOERROR 203.0.113.2 2001:db8::2"},
		{"aCMe.WORLD.test.", mdns.TypeA, "NOERROR 203.0.113.2"},
		{"only4.world.test.", mdns.TypeA, "NOERROR 203.0.113.4 203.0.113.5"},
		{"only4.world.test.", mdns.TypeAAAA, "NOERROR " + soa},
		{"only4.world.test.", mdns.TypeMX, "NOERROR " + soa},
		{"nothing.world.test.", mdns.TypeA, "NOERROR " + soa},
		{"world.test.", mdns.TypeA, "NOERROR " + soa},            // it is above others: RFC 8020
		{"b.deep.example.org.", mdns.TypeNS, "NOERROR " + soa},   // likewise
		{"x.b.deep.example.org.", mdns.TypeA, "NXDOMAIN " + soa}, //
		{"no.world.test.", mdns.TypeA, "NXDOMAIN " + soa},
		{"x.acme.world.test.", mdns.TypeA, "NXDOMAIN " + soa},
		{"nowhere.net.", mdns.TypeAAAA, "NXDOMAIN " + soa},
		{"2.113.0.203.in-addr.arpa.", mdns.TypePTR, "NXDOMAIN " + soa},
		{".", mdns.TypeSOA, "NOERROR SOA"},
		{".", mdns.TypeNS, "NOERROR " + soa},
	} {
		t.Run(c.name+" "+mdns.TypeToString[c.kind], func(t *testing.T) {
			a := onWire(t, zone().Answer(new(mdns.Msg).SetQuestion(c.name, c.kind), mdns.MinMsgSize))
			if got := summary(a); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if !a.Authoritative || !a.RecursionAvailable || !a.Response {
				t.Errorf("header: %+v", a.MsgHdr)
			}
			for _, rr := range a.Answer {
				if rr.Header().Name != c.name {
					t.Errorf("owner %s is not spelled as asked, %s", rr.Header().Name, c.name)
				}
			}
		})
	}
}

// TestRefused: what is no plain question gets the code for it.
func TestRefused(t *testing.T) {
	ask := func() *mdns.Msg { return new(mdns.Msg).SetQuestion("acme.world.test.", mdns.TypeA) }
	chaos, update, none, two, version := ask(), ask(), ask(), ask(), ask()
	chaos.Question[0].Qclass = mdns.ClassCHAOS
	update.Opcode = mdns.OpcodeUpdate
	none.Question = nil
	two.Question = append(two.Question, two.Question[0])
	version.SetEdns0(1232, false)
	version.IsEdns0().SetVersion(1)
	for name, c := range map[string]struct {
		q    *mdns.Msg
		want int
	}{
		"another class": {chaos, mdns.RcodeRefused}, "update": {update, mdns.RcodeNotImplemented},
		"no question": {none, mdns.RcodeFormatError}, "two questions": {two, mdns.RcodeFormatError},
		"another EDNS": {version, mdns.RcodeBadVers},
	} {
		a := onWire(t, zone().Answer(c.q, mdns.MinMsgSize))
		code := a.Rcode
		if opt := a.IsEdns0(); opt != nil {
			code = opt.ExtendedRcode() | code&0xf
		}
		if code != c.want || len(a.Answer) > 0 {
			t.Errorf("%s: %s with %d answers, want %s", name, mdns.RcodeToString[code], len(a.Answer), mdns.RcodeToString[c.want])
		}
	}
}

// TestCut cuts what does not fit, says so, and leaves it whole where it does.
func TestCut(t *testing.T) {
	var many []netip.Addr
	for i := range 100 {
		many = append(many, netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))
	}
	z := dns.NewZone([]underlay.Record{{Name: "many.test", Addrs: many}})
	ask := new(mdns.Msg).SetQuestion("many.test.", mdns.TypeA)
	packed, err := z.Answer(ask, mdns.MinMsgSize).Pack()
	if err != nil {
		t.Fatal(err)
	}
	if a := onWire(t, z.Answer(ask, mdns.MinMsgSize)); !a.Truncated || len(packed) > mdns.MinMsgSize {
		t.Errorf("cut %v, %d bytes, want at most %d", a.Truncated, len(packed), mdns.MinMsgSize)
	}
	if a := onWire(t, z.Answer(ask, mdns.MaxMsgSize)); a.Truncated || len(a.Answer) != 100 {
		t.Errorf("cut %v, %d answers, want all 100", a.Truncated, len(a.Answer))
	}
}

// FuzzAnswer: no question panics, and every answer is a message with that
// question and nothing that nobody declared.
func FuzzAnswer(f *testing.F) {
	for _, name := range []string{"acme.world.test.", "x.example.", "."} {
		packed, err := new(mdns.Msg).SetQuestion(name, mdns.TypeA).Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed)
	}
	z := zone()
	f.Fuzz(func(t *testing.T, packed []byte) {
		q := new(mdns.Msg)
		if q.Unpack(packed) != nil {
			return
		}
		a := z.Answer(q, mdns.MinMsgSize)
		if a.Id != q.Id || !a.Response {
			t.Errorf("not an answer to it: %v", a)
		}
		if _, err := a.Pack(); err != nil && len(q.Question) == 1 {
			if _, err := q.Pack(); err == nil {
				t.Errorf("cannot be sent: %v", err)
			}
		}
	})
}

func TestEveryRecordIsAnswered(t *testing.T) {
	var records []underlay.Record
	for i := range 50 {
		records = append(records, underlay.Record{
			Name: fmt.Sprintf("m%d.world.test", i), Addrs: addrs(fmt.Sprintf("10.0.0.%d", i)),
		})
	}
	z := dns.NewZone(records)
	for _, r := range records {
		a := z.Answer(new(mdns.Msg).SetQuestion(strings.ToUpper(r.Name)+".", mdns.TypeA), mdns.MinMsgSize)
		if diff := cmp.Diff("NOERROR "+r.Addrs[0].String(), summary(a)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", r.Name, diff)
		}
	}
}

// onWire is what the asker reads.
func onWire(t *testing.T, m *mdns.Msg) *mdns.Msg {
	t.Helper()
	packed, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	read := new(mdns.Msg)
	if err := read.Unpack(packed); err != nil {
		t.Fatal(err)
	}
	return read
}

func summary(m *mdns.Msg) string {
	words := []string{mdns.RcodeToString[m.Rcode]}
	for _, rr := range m.Answer {
		switch rr := rr.(type) {
		case *mdns.A:
			words = append(words, rr.A.String())
		case *mdns.AAAA:
			words = append(words, rr.AAAA.String())
		default:
			words = append(words, mdns.TypeToString[rr.Header().Rrtype])
		}
	}
	for _, rr := range m.Ns {
		words = append(words, strings.ToLower(mdns.TypeToString[rr.Header().Rrtype]))
	}
	return strings.Join(words, " ")
}
