package config_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mesh/plane/config"
)

const whole = `mesh: home
listen: "192.0.2.10:7443"
addresses: ["192.0.2.10:7443", "[2001:db8::10]:7443"]
overlay:
  ipv4: 10.77.0.0/16
  ipv6: fd5e:8b6f:3a21::/48
store: /srv/plane
socket: /run/plane/api.sock
`

var wholeValue = config.Config{
	Mesh:      "home",
	Listen:    "192.0.2.10:7443",
	Addresses: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.10:7443"), netip.MustParseAddrPort("[2001:db8::10]:7443")},
	Overlay: config.Overlay{
		IPv4: netip.MustParsePrefix("10.77.0.0/16"),
		IPv6: netip.MustParsePrefix("fd5e:8b6f:3a21::/48"),
	},
	Store:  "/srv/plane",
	Socket: "/run/plane/api.sock",
}

var compare = cmp.Options{cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })}

func TestParse(t *testing.T) {
	small := wholeValue
	small.Listen, small.Store, small.Socket = ":7443", "/var/lib/mesh-plane", "/run/mesh-plane/api.sock"
	small.Addresses = small.Addresses[:1]
	small.Overlay.IPv6 = netip.Prefix{}
	for name, tt := range map[string]struct {
		text string
		want config.Config
	}{
		"every key":    {whole, wholeValue},
		"needful keys": {"mesh: home\naddresses:\n  - 192.0.2.10:7443\noverlay:\n  ipv4: 10.77.0.0/16\n", small},
		"one pair, flow, comment": {
			"# ours\noverlay: {ipv4: 10.77.0.0/16}\naddresses: [\"192.0.2.10:7443\"]\nmesh: 'home' # named\n", small},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := config.Parse("plane.yaml", []byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got, compare); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestCaseP8 holds that what is mistyped, given twice, null, empty or absent is
// refused with file, line, column and the nearest name, all at once.
func TestCaseP8ConfigurationRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"mistyped keys": {
			"mesh: home\nadresses: [\"192.0.2.10:7443\"]\noverlay:\n  ipv4: 10.77.0.0/16\n  ivp6: fd5e::/48\nzzzzzz: 1\n",
			[]string{
				`plane.yaml:1:1: key "addresses" is missing`,
				`plane.yaml:2:1: unknown key "adresses"; did you mean "addresses"?`,
				`plane.yaml:5:3: unknown key "ivp6"; did you mean "ipv6"?`,
				`plane.yaml:6:1: unknown key "zzzzzz"; known are mesh, listen, addresses, overlay, store, socket`,
			}},
		"a key twice": {
			whole + "mesh: away\n",
			[]string{`plane.yaml:9:1: key "mesh" is given twice, first in line 1`}},
		"null": {
			"mesh:\naddresses: null\noverlay: ~\nstore: null\n",
			[]string{
				`plane.yaml:1:6: nothing where text is wanted`,
				`plane.yaml:2:12: nothing where a list is wanted`,
				`plane.yaml:3:10: nothing where a mapping of ipv4, ipv6 is wanted`,
				`plane.yaml:4:8: nothing where text is wanted`,
			}},
		"empty lists and mappings": {
			"mesh: home\naddresses: []\noverlay: {}\n",
			[]string{
				`plane.yaml:2:12: it is empty: at least one address at which machines reach this plane is wanted`,
				`plane.yaml:3:10: it names no range: at least one of ipv4 and ipv6 is wanted`,
			}},
		"absent": {
			"listen: \":7443\"\n",
			[]string{
				`plane.yaml:1:1: key "mesh" is missing`,
				`plane.yaml:1:1: key "addresses" is missing`,
				`plane.yaml:1:1: key "overlay" is missing`,
			}},
		"nothing at all": {"", []string{`plane.yaml:1:1: it is empty: wanted at least mesh, addresses and overlay`}},
		"only a comment": {"# later\n", []string{`plane.yaml:1:1: it is empty: wanted at least mesh, addresses and overlay`}},
		"a list":         {"- mesh\n", []string{`plane.yaml:1:1: a list where a mapping of mesh, listen, addresses, overlay, store, socket is wanted`}},
		"two documents":  {whole + "---\nmesh: b\n", []string{`plane.yaml:9:1: a second document begins: wanted one`}},
		"other types": {
			strings.Replace(strings.Replace(whole, "mesh: home", "mesh: 12", 1), "/srv/plane", "true", 1),
			[]string{
				`plane.yaml:1:7: a number where text is wanted: quote it, "12"`,
				`plane.yaml:7:8: true or false where text is wanted: quote it, "true"`,
			}},
		"an alias": {
			strings.Replace(whole, "mesh: home", "mesh: &m home", 1),
			[]string{`plane.yaml:1:7: an alias, anchor or tag where text is wanted`}},
		"values": {
			"mesh: Home_1\nlisten: localhost:7443\naddresses:\n  - plane.example:7443\n  - 0.0.0.0:7443\n  - 10.77.0.1:7443\n  - 192.0.2.1:1\n  - 192.0.2.1:1\n" +
				"overlay:\n  ipv4: 10.77.0.0/16\n  ipv6: 2001:db8::/48\nstore: lib\nsocket: /run/" + strings.Repeat("x", 120) + "\n",
			[]string{
				`plane.yaml:1:7: "Home_1" is not a name: 1 to 63 of a-z, 0-9 and -, not beginning or ending with -`,
				`plane.yaml:2:9: "localhost:7443" is not where to listen: "localhost" is not an IP address; wanted ":7443" or "192.0.2.10:7443"`,
				`plane.yaml:4:5: "plane.example:7443" is not an address: wanted an IP address with a port, "192.0.2.10:7443" or "[2001:db8::10]:7443"`,
				`plane.yaml:5:5: "0.0.0.0:7443" cannot be dialled by a machine: wanted the address and port of this plane as other machines see it`,
				`plane.yaml:6:5: 10.77.0.1 lies in the overlay 10.77.0.0/16: machines dial the plane over the network they already have`,
				`plane.yaml:8:5: 192.0.2.1:1 is listed twice`,
				`plane.yaml:11:9: 2001:db8::/48 is not a unique local range: it must lie in fd00::/8 (RFC 4193)`,
				`plane.yaml:12:8: "lib" is not a path: wanted an absolute one without "..", "//" or a final "/"`,
				`plane.yaml:13:9: it has 125 bytes, and the path of a socket at most 107`,
			}},
		"ranges": {
			"mesh: home\naddresses: [\"192.0.2.10:7443\"]\noverlay: {ipv4: 10.77.1.2/16, ipv6: \"fd00::/32\"}\n",
			[]string{
				`plane.yaml:3:17: 10.77.1.2/16 has bits set beyond its length: did you mean "10.77.0.0/16"?`,
				`plane.yaml:3:37: fd00::/32 has a length outside /48 to /126`,
			}},
		"public range": {
			strings.Replace(whole, "10.77.0.0/16", "8.8.8.0/24", 1),
			[]string{`plane.yaml:5:9: 8.8.8.0/24 is not private: inside the mesh it would hide the machines it belongs to; take one from 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 or 100.64.0.0/10`}},
		"ports": {
			strings.Replace(whole, `listen: "192.0.2.10:7443"`, `listen: ":0"`, 1),
			[]string{`plane.yaml:2:9: ":0" is not where to listen: "0" is not a port; wanted ":7443" or "192.0.2.10:7443"`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Parse("plane.yaml", []byte(tt.text))
			var bad *config.Error
			if !errors.As(err, &bad) {
				t.Fatalf("got %v, want a *config.Error", err)
			}
			if d := cmp.Diff(tt.want, strings.Split(bad.Error(), "\n")); d != "" {
				t.Error(d)
			}
			if bad.ExitCode() != 2 {
				t.Errorf("exit code %d, want 2", bad.ExitCode())
			}
		})
	}
}

func TestParseSaysWhereTheSyntaxBreaks(t *testing.T) {
	for _, text := range []string{"mesh: [home\n", "mesh: \"home\n", "\tmesh: home\n", "mesh: home: away\n"} {
		_, err := config.Parse("plane.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), "not YAML") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: got %v, want one line that says it is not YAML", text, err)
		}
	}
}

func TestParseBoundsTheText(t *testing.T) {
	_, err := config.Parse("plane.yaml", []byte("# "+strings.Repeat("x", config.MaxBytes)))
	if err == nil || !strings.Contains(err.Error(), "at most 65536 are read") {
		t.Errorf("got %v", err)
	}
}

// drawConfig draws any configuration that Parse accepts.
func drawConfig(t *rapid.T) config.Config {
	v4 := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, rapid.Byte().Draw(t, "b"), rapid.Byte().Draw(t, "c"), 0}), rapid.IntRange(8, 30).Draw(t, "bits4")).Masked()
	v6 := netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, rapid.Byte().Draw(t, "d")}), rapid.IntRange(48, 126).Draw(t, "bits6")).Masked()
	o := rapid.SampledFrom([]config.Overlay{{IPv4: v4}, {IPv6: v6}, {IPv4: v4, IPv6: v6}}).Draw(t, "overlay")
	addrs := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) netip.AddrPort {
		a := netip.AddrFrom4([4]byte{192, 0, 2, rapid.Byte().Draw(t, "host")})
		return netip.AddrPortFrom(a, rapid.Uint16Min(1).Draw(t, "port"))
	}), 1, 4, rapid.ID).Draw(t, "addresses")
	file := rapid.StringMatching(`/[a-z"\\ #:&*-]{0,20}[a-z]`)
	return config.Config{
		Mesh:      rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?`).Draw(t, "mesh"),
		Listen:    rapid.SampledFrom([]string{":7443", "[::]:1", "0.0.0.0:65535"}).Draw(t, "listen"),
		Addresses: addrs,
		Overlay:   o,
		Store:     file.Draw(t, "store"),
		Socket:    file.Draw(t, "socket"),
	}
}

func TestRenderIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		got, err := config.Parse("rendered", []byte(c.Render()))
		if err != nil {
			t.Fatalf("%v\n%s", err, c.Render())
		}
		if d := cmp.Diff(c, got, compare); d != "" {
			t.Fatal(d)
		}
		if got.Render() != c.Render() {
			t.Fatal("the same configuration has two texts")
		}
	})
}

// What is nested deeply is refused before much is done with it.
func TestBoundedWork(t *testing.T) {
	for _, bracket := range []string{"[", "{", "{a: "} {
		begun := time.Now()
		_, err := config.Parse("plane.yaml", []byte(strings.Repeat(bracket, config.MaxBytes/len(bracket))))
		if err == nil || !strings.Contains(err.Error(), "more than 16 brackets are open here") {
			t.Errorf("%q: %v", bracket, err)
		}
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("%q: it took %s", bracket, took)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{whole, "", "mesh: &a [*a]", "mesh: no\noverlay: {ipv4: ::/0}", "? a\n: b", "<<: {mesh: x}", "mesh: |\n  x\n", strings.Repeat("[", 40), strings.Repeat("- ", 40)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := config.Parse("f", text)
		if err != nil {
			return
		}
		again, err := config.Parse("f", []byte(c.Render()))
		if err != nil {
			t.Fatalf("accepted %q, but refuses its own rendering: %v", text, err)
		}
		if d := cmp.Diff(c, again, compare); d != "" {
			t.Fatal(d)
		}
	})
}
