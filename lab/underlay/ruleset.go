package underlay

import (
	"fmt"
	"strings"

	"mesh/lab/scenario"
)

// The names of a router's links, inside its own namespace.
const (
	linkInside  = "inside"
	linkOutside = "outside"
)

// ruleset is a router's whole filter, one nftables table, which names no address
// of the router's outside unless those cannot change: it holds wherever the
// router stands.
//
// What comes from inside goes out, and what answers it comes back in; firewall
// and NAT say what else comes in. What calls the router itself from outside is
// dropped, so that it leaves no connection behind that a later mapping of the
// same port would have to avoid: hole punching meets closed ports before they
// are opened. No kind has a hairpin: the outside address is not reached from
// inside.
func ruleset(r Router) string {
	b := &table{}
	nat := scenario.NAT(r.NAT)
	b.line(0, `table inet lab {`)
	if nat == scenario.NATEasy {
		b.maps()
	}
	b.chain("forward", "filter hook forward priority filter; policy drop", arriving(r)...)
	b.chain("input", "filter hook input priority filter; policy accept",
		`iifname "outside" meta l4proto { tcp, udp } ct state new drop`)
	if r.BlackHole {
		b.chain("output", "filter hook output priority filter; policy accept",
			`icmp type destination-unreachable icmp code frag-needed drop`,
			`icmpv6 type packet-too-big drop`)
	}
	if into := inwards(r); len(into) > 0 {
		b.chain("prerouting", "nat hook prerouting priority dstnat; policy accept", into...)
	}
	if out := outwards(r); len(out) > 0 {
		b.chain("postrouting", "nat hook postrouting priority srcnat; policy accept", out...)
	}
	if nat == scenario.NATEasy {
		b.chain("remember", "filter hook postrouting priority srcnat + 1; policy accept", remembering...)
	}
	b.line(0, `}`)
	return b.String()
}

// table writes nftables text.
type table struct{ strings.Builder }

func (t *table) line(depth int, text string) {
	t.WriteString(strings.Repeat("\t", depth) + text + "\n")
}

// chain writes a chain, apart from what is before it.
func (t *table) chain(name, kind string, rules ...string) {
	if name != "forward" {
		t.line(0, "")
	}
	t.line(1, "chain "+name+" {")
	t.line(2, "type "+kind+";")
	for _, rule := range rules {
		t.line(2, rule)
	}
	t.line(1, "}")
}

// maps are what an endpoint-independent router remembers (RFC 4787, REQ-1 and
// REQ-5), by protocol: as which address and port the outside sees a machine's,
// whose an outside port is, and which are somebody's.
func (t *table) maps() {
	const pair = "ipv4_addr . inet_service"
	for _, m := range [][2]string{
		{"map seen", "inet_proto . " + pair + " : " + pair},
		{"map owner", "inet_proto . inet_service : " + pair},
		{"set taken", "inet_proto . inet_service"},
	} {
		t.line(1, m[0]+" {")
		t.line(2, "type "+m[1])
		t.line(2, "flags dynamic,timeout")
		t.line(2, "timeout 5m")
		t.line(2, "size 65535")
		t.line(1, "}")
		t.line(0, "")
	}
}

// arriving are the rules of what passes the router.
func arriving(r Router) []string {
	rules := []string{`ct state established,related accept`, `iifname "inside" oifname "outside" accept`}
	nat, firewall := scenario.NAT(r.NAT), scenario.Firewall(r.Firewall)
	switch {
	case firewall != scenario.FirewallClosed && nat == scenario.NATNone:
		rules = append(rules, `iifname "outside" meta nfproto ipv4 accept`)
	case len(inwards(r)) > 0: // what is translated inwards is let in
		rules = append(rules, `iifname "outside" ct status dnat accept`)
	}
	if firewall == scenario.FirewallOpen {
		rules = append(rules, `iifname "outside" meta nfproto ipv6 accept`)
	}
	return rules
}

// inwards are the translations of what calls from outside.
func inwards(r Router) (rules []string) {
	const called = `iifname "outside" fib daddr type local `
	if len(r.Forwards) > 0 {
		var ports []string
		for _, f := range r.Forwards {
			ports = append(ports, fmt.Sprintf("%s . %d : %s . %d", f.Protocol, f.Port, f.To.Addr(), f.To.Port()))
		}
		rules = append(rules, called+`dnat ip to meta l4proto . th dport map { `+strings.Join(ports, ", ")+` }`)
	}
	if scenario.Firewall(r.Firewall) == scenario.FirewallClosed {
		return rules
	}
	switch {
	case scenario.NAT(r.NAT) == scenario.NATEasy:
		rules = append(rules, called+`dnat ip to meta l4proto . th dport map @owner`)
	case len(r.Translated) > 0:
		var pairs []string
		for _, t := range r.Translated {
			pairs = append(pairs, fmt.Sprintf("%s : %s", t.Outside.Addr(), t.Inside))
		}
		rules = append(rules, `iifname "outside" dnat ip to ip daddr map { `+strings.Join(pairs, ", ")+` }`)
	}
	return rules
}

// outwards are the translations of what calls from inside.
//
// NATEasy keeps the port where it is free. A machine whose port another one has
// gets another, by chance, and keeps that.
func outwards(r Router) (rules []string) {
	const rest = `oifname "outside" meta nfproto ipv4 masquerade`
	switch scenario.NAT(r.NAT) {
	case scenario.NATEasy:
		return []string{
			`oifname "outside" snat ip to meta l4proto . ip saddr . th sport map @seen`,
			`oifname "outside" meta nfproto ipv4 meta l4proto { tcp, udp } meta l4proto . th sport @taken masquerade to :32768-60999`,
			rest,
		}
	case scenario.NATHard:
		return []string{rest + ` random,fully-random`}
	case scenario.NATOne:
		if len(r.Translated) == 0 {
			return []string{rest}
		}
		var pairs []string
		for _, t := range r.Translated {
			pairs = append(pairs, fmt.Sprintf("%s : %s", t.Inside, t.Outside.Addr()))
		}
		return []string{`oifname "outside" snat ip to ip saddr map { ` + strings.Join(pairs, ", ") + ` }`, rest}
	}
	return nil
}

// remembering fills the maps from each packet on its way out, once it is
// translated, whichever side called.
var remembering = []string{remember("original"), remember("reply")}

func remember(direction string) string {
	return strings.ReplaceAll(`oifname "outside" meta nfproto ipv4 meta l4proto { tcp, udp } ct direction WAY `+
		`update @seen { meta l4proto . ct WAY ip saddr . ct WAY proto-src : ip saddr . th sport } `+
		`update @owner { meta l4proto . th sport : ct WAY ip saddr . ct WAY proto-src } `+
		`update @taken { meta l4proto . th sport }`, "WAY", direction)
}
