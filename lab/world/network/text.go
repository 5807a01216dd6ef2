package network

import (
	"fmt"
	"net/netip"
	"strings"

	"mesh/lab/underlay"
)

// worldSettings make the namespace a router that answers only for what is on
// the interface it is asked at. IPv6 is off on links unless they have an address.
//
// https://www.kernel.org/doc/Documentation/networking/ip-sysctl.rst
func worldSettings() []Setting {
	return append(routerSettings(),
		// Frames between machines of a segment never meet a filter. Only where
		// br_netfilter is loaded.
		Setting{Path: "bridge/bridge-nf-call-iptables", Value: "0", Optional: true},
		Setting{Path: "bridge/bridge-nf-call-ip6tables", Value: "0", Optional: true},
		Setting{Path: "bridge/bridge-nf-call-arptables", Value: "0", Optional: true},
	)
}

func routerSettings() []Setting {
	return []Setting{
		{Path: "ipv4/ip_forward", Value: "1"},
		{Path: "ipv4/conf/all/arp_ignore", Value: "1"},
		{Path: "ipv4/conf/all/arp_announce", Value: "2"},
		{Path: "ipv4/conf/all/rp_filter", Value: "0"},
		{Path: "ipv4/conf/default/rp_filter", Value: "0"},
		{Path: "ipv4/conf/all/send_redirects", Value: "0"},
		{Path: "ipv4/conf/default/send_redirects", Value: "0"},
		{Path: "ipv6/conf/all/forwarding", Value: "1"},
		{Path: "ipv6/conf/all/accept_ra", Value: "0"},
		{Path: "ipv6/conf/default/accept_ra", Value: "0"},
		{Path: "ipv6/conf/all/accept_dad", Value: "0"},
		{Path: "ipv6/conf/default/accept_dad", Value: "0"},
		{Path: "ipv6/conf/default/addr_gen_mode", Value: "1"}, // addresses only as planned
		{Path: "ipv6/conf/default/disable_ipv6", Value: "1"},
		// A machine that goes back to a snapshot sends what the router has seen long
		// ago; its connections are to stay its own.
		{Path: "netfilter/nf_conntrack_tcp_be_liberal", Value: "1", Optional: true},
	}
}

// worldRuleset lets in only what comes from a public segment and can come from
// it: its own prefixes, and what is routed to behind its routers; and questions
// for addresses from where the world is the only one to ask. What is translated
// nowhere, and what else a site's machine sends to the bridge itself, ends here.
func worldRuleset(u underlay.Underlay) string {
	var b strings.Builder
	b.WriteString(replacing("inet world"))
	b.WriteString("table inet world {\n")
	b.WriteString("\tchain arriving {\n")
	b.WriteString("\t\ttype filter hook prerouting priority raw; policy drop;\n")
	b.WriteString("\t\tiifname \"lo\" accept\n")
	for _, s := range u.Segments {
		if !public(s) {
			b.WriteString(questions(u, s))
			continue
		}
		four, six := sources(u, s)
		if len(four) > 0 {
			fmt.Fprintf(&b, "\t\tiifname %q ip saddr { %s } accept\n", s.Bridge, strings.Join(four, ", "))
		}
		if len(six) > 0 {
			fmt.Fprintf(&b, "\t\tiifname %q ip6 saddr { %s } accept\n", s.Bridge, strings.Join(six, ", "))
		}
	}
	b.WriteString("\t}\n}\n")
	return b.String()
}

// replacing begins a ruleset that replaces one table and touches no other.
func replacing(table string) string {
	// Declared before it is deleted, so that it may be absent: nft(8).
	return fmt.Sprintf("table %[1]s\ndelete table %[1]s\n", table)
}

// questions are what the world hears on a site that has no other keeper, and
// what it never passes on.
func questions(u underlay.Underlay, s underlay.Segment) (rules string) {
	keeper := KeeperOf(u, s)
	if keeper.Namespace != u.Namespace {
		return ""
	}
	if keeper.Addr4.IsValid() {
		rules += fmt.Sprintf("\t\tiifname %q ip daddr { 255.255.255.255, %s } udp dport 67 accept\n",
			s.Bridge, keeper.Addr4)
	}
	if s.IPv6.IsValid() {
		rules += fmt.Sprintf("\t\tiifname %q ip6 daddr { fe80::/10, ff02::/16 } icmpv6 type "+
			"{ nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert } accept\n", s.Bridge)
	}
	return rules
}

// sources are the addresses that packets on a segment may come from, those of a
// machine that has none yet among them.
func sources(u underlay.Underlay, s underlay.Segment) (four, six []string) {
	add := func(p netip.Prefix) {
		switch {
		case !p.IsValid():
		case p.Addr().Is4():
			four = append(four, p.Masked().String())
		default:
			six = append(six, p.Masked().String())
		}
	}
	if s.IPv4.IsValid() {
		four = append(four, "0.0.0.0")
	}
	if s.IPv6.IsValid() {
		six = append(six, "::", "fe80::/10")
	}
	add(s.IPv4)
	add(s.IPv6)
	for _, r := range routesOn(u, s.Name, "") {
		add(r.To)
	}
	return four, six
}
