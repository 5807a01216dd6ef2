// Package config is the plane's configuration: what /etc/mesh-plane/plane.yaml
// may say, how it is read, and how it is written.
//
// It is pure: text in, value out. Reading is strict: unknown keys, keys given
// twice, values of the wrong form are refused, every one at once, each with its
// file, line and column. Writing is canonical: one configuration has one text,
// which is the file that the module plane declares.
package config

import (
	"net/netip"
	"path"
	"strings"
)

// Path is where the configuration of a running plane lies.
const Path = "/etc/mesh-plane/plane.yaml"

// What a key that is left out means.
const (
	DefaultListen = ":7443"
	DefaultStore  = "/var/lib/mesh-plane"
	DefaultSocket = "/run/mesh-plane/api.sock"
)

// Config is a whole, checked configuration, defaults filled in.
type Config struct {
	Mesh      string           // name of the mesh: a DNS label; never changes afterwards
	Listen    string           // "host:port" the link is accepted on; an empty host means every address
	Addresses []netip.AddrPort // where machines reach the plane, in the order they try; one or more
	Overlay   Overlay
	Store     string // directory of the plane's own state, absolute
	Socket    string // UNIX socket of the operator API, absolute
}

// Overlay holds the ranges that overlay addresses are granted from, one per
// family. A zero prefix means the mesh has none of that family; one at least is
// set.
type Overlay struct {
	IPv4 netip.Prefix // private range, /8 to /30
	IPv6 netip.Prefix // unique local range, /48 to /126
}

// Prefixes lists the ranges that are set, IPv4 first.
func (o Overlay) Prefixes() []netip.Prefix {
	var all []netip.Prefix
	for _, p := range []netip.Prefix{o.IPv4, o.IPv6} {
		if p.IsValid() {
			all = append(all, p)
		}
	}
	return all
}

var header = strings.TrimLeft(`
# The plane's configuration. mesh-host keeps this file: what is written here by
# hand is put back to what the mesh declares. To change it, run
# mesh-plane config apply FILE.
`, "\n")

// Render writes c as the one text that means c: every key, in a fixed order.
// Parse reads it back as c.
func (c Config) Render() string {
	var s strings.Builder
	s.WriteString(header)
	s.WriteString("mesh: " + quote(c.Mesh) + "\n")
	s.WriteString("listen: " + quote(c.Listen) + "\n")
	s.WriteString("addresses:\n")
	for _, a := range c.Addresses {
		s.WriteString("  - " + quote(a.String()) + "\n")
	}
	s.WriteString("overlay:\n")
	if c.Overlay.IPv4.IsValid() {
		s.WriteString("  ipv4: " + quote(c.Overlay.IPv4.String()) + "\n")
	}
	if c.Overlay.IPv6.IsValid() {
		s.WriteString("  ipv6: " + quote(c.Overlay.IPv6.String()) + "\n")
	}
	s.WriteString("store: " + quote(c.Store) + "\n")
	s.WriteString("socket: " + quote(c.Socket) + "\n")
	return s.String()
}

// Database is the file of the plane's store.
func (c Config) Database() string { return path.Join(c.Store, "plane.db") }

// quote writes a double-quoted YAML scalar. Checked values hold printable
// characters only, so these two are all that need escaping.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
