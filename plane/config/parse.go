package config

import (
	"fmt"
	"net/netip"
	"path"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// MaxBytes is the largest text that is read.
const MaxBytes = 64 << 10

// The longest path of a UNIX socket on Linux, unix(7): sun_path less the zero.
const maxSocketPath = 107

// Parse reads the text of a configuration. name is how problems call the file.
// The error is always an *Error holding every problem found.
func Parse(name string, text []byte) (Config, error) {
	r := &reader{file: name}
	c := Config{Listen: DefaultListen, Store: DefaultStore, Socket: DefaultSocket}
	if root := r.document(text); root != nil {
		r.mapping(root, "", []key{
			{"mesh", required, func(n ast.Node) { c.Mesh = r.label(n) }},
			{"listen", optional, func(n ast.Node) { c.Listen = r.listen(n) }},
			{"addresses", required, func(n ast.Node) { c.Addresses = r.addresses(n) }},
			{"overlay", required, func(n ast.Node) { c.Overlay = r.overlay(n) }},
			{"store", optional, func(n ast.Node) { c.Store = r.absolute(n) }},
			{"socket", optional, func(n ast.Node) { c.Socket = r.socket(n) }},
		})
	}
	r.addressesOutside(c.Overlay)
	if len(r.problems) > 0 {
		return Config{}, r.failure()
	}
	return c, nil
}

func (r *reader) label(n ast.Node) string {
	s, ok := r.text(n)
	if ok && !IsLabel(s) {
		r.problem(n, "%q is not a name: 1 to 63 of a-z, 0-9 and -, not beginning or ending with -", s)
	}
	return s
}

// IsLabel tells whether s can be a name: a DNS label of a-z, 0-9 and -.
func IsLabel(s string) bool {
	return len(s) >= 1 && len(s) <= 63 && s[0] != '-' && s[len(s)-1] != '-' &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

func (r *reader) listen(n ast.Node) string {
	s, ok := r.text(n)
	if !ok {
		return ""
	}
	if err := checkListen(s); err != nil {
		r.problem(n, "%q is not where to listen: %v; wanted \":7443\" or \"192.0.2.10:7443\"", s, err)
	}
	return s
}

func checkListen(s string) error {
	colon := strings.LastIndexByte(s, ':')
	if colon < 0 {
		return fmt.Errorf("it has no port")
	}
	port, err := strconv.ParseUint(s[colon+1:], 10, 16)
	if err != nil || port == 0 {
		return fmt.Errorf("%q is not a port", s[colon+1:])
	}
	if colon == 0 {
		return nil
	}
	if _, err := netip.ParseAddrPort(s); err != nil {
		return fmt.Errorf("%q is not an IP address", s[:colon])
	}
	return nil
}

func (r *reader) addresses(n ast.Node) []netip.AddrPort {
	var all []netip.AddrPort
	for _, item := range r.sequence(n) {
		s, ok := r.text(item)
		if !ok {
			continue
		}
		a, err := netip.ParseAddrPort(s)
		switch {
		case err != nil:
			r.problem(item, "%q is not an address: wanted an IP address with a port, \"192.0.2.10:7443\" or \"[2001:db8::10]:7443\"", s)
			continue
		case a.Port() == 0 || a.Addr().IsUnspecified() || a.Addr().IsMulticast() || a.Addr().Zone() != "" || a.Addr().Is4In6():
			r.problem(item, "%q cannot be dialled by a machine: wanted the address and port of this plane as other machines see it", s)
			continue
		}
		for _, other := range all {
			if other == a {
				r.problem(item, "%s is listed twice", a)
			}
		}
		all = append(all, a)
		r.dialled = append(r.dialled, dialled{a.Addr(), item})
	}
	if len(all) == 0 && len(r.problems) == 0 {
		r.problem(n, "it is empty: at least one address at which machines reach this plane is wanted")
	}
	return all
}

func (r *reader) overlay(n ast.Node) Overlay {
	var o Overlay
	before := len(r.problems)
	r.mapping(n, "overlay", []key{
		{"ipv4", optional, func(n ast.Node) { o.IPv4 = r.prefix(n, checkIPv4) }},
		{"ipv6", optional, func(n ast.Node) { o.IPv6 = r.prefix(n, checkIPv6) }},
	})
	if !o.IPv4.IsValid() && !o.IPv6.IsValid() && len(r.problems) == before {
		r.problem(n, "it names no range: at least one of ipv4 and ipv6 is wanted")
	}
	return o
}

func (r *reader) prefix(n ast.Node, check func(netip.Prefix) string) netip.Prefix {
	s, ok := r.text(n)
	if !ok {
		return netip.Prefix{}
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		r.problem(n, "%q is not a range: wanted an address and a length, \"10.77.0.0/16\"", s)
		return netip.Prefix{}
	}
	if p != p.Masked() {
		r.problem(n, "%s has bits set beyond its length: did you mean %q?", s, p.Masked())
		return netip.Prefix{}
	}
	if wrong := check(p); wrong != "" {
		r.problem(n, "%s %s", s, wrong)
		return netip.Prefix{}
	}
	return p
}

// cgnat is the shared address space of RFC 6598, as private as those of RFC 1918.
var cgnat = netip.MustParsePrefix("100.64.0.0/10")

func checkIPv4(p netip.Prefix) string {
	switch {
	case !p.Addr().Is4():
		return "is not an IPv4 range"
	case p.Bits() < 8 || p.Bits() > 30:
		return "has a length outside /8 to /30"
	case !p.Addr().IsPrivate() && !cgnat.Contains(p.Addr()):
		return "is not private: inside the mesh it would hide the machines it belongs to; take one from 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 or 100.64.0.0/10"
	}
	return ""
}

func checkIPv6(p netip.Prefix) string {
	switch {
	case !p.Addr().Is6() || p.Addr().Is4In6():
		return "is not an IPv6 range"
	case !p.Addr().IsPrivate():
		return "is not a unique local range: it must lie in fd00::/8 (RFC 4193)"
	case p.Bits() < 48 || p.Bits() > 126:
		return "has a length outside /48 to /126"
	}
	return ""
}

// addressesOutside refuses a plane that would be dialled over its own overlay.
func (r *reader) addressesOutside(o Overlay) {
	for _, d := range r.dialled {
		for _, p := range o.Prefixes() {
			if p.Contains(d.addr) {
				r.problem(d.node, "%s lies in the overlay %s: machines dial the plane over the network they already have", d.addr, p)
			}
		}
	}
}

func (r *reader) absolute(n ast.Node) string {
	s, ok := r.text(n)
	if ok && (!path.IsAbs(s) || path.Clean(s) != s || s == "/" || !printable(s)) {
		r.problem(n, "%q is not a path: wanted an absolute one without \"..\", \"//\" or a final \"/\"", s)
	}
	return s
}

func printable(s string) bool {
	return strings.IndexFunc(s, func(c rune) bool { return !strconv.IsPrint(c) }) < 0
}

func (r *reader) socket(n ast.Node) string {
	s := r.absolute(n)
	if len(s) > maxSocketPath {
		r.problem(n, "it has %d bytes, and the path of a socket at most %d", len(s), maxSocketPath)
	}
	return s
}
