package enrolment_test

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"mesh/plane/enrolment"
)

func TestNextAddress(t *testing.T) {
	for _, tt := range []struct {
		prefix string
		held   []string
		want   string // empty: full
	}{
		{"10.77.0.0/16", nil, "10.77.0.1"},
		{"10.77.0.0/24", []string{"10.77.0.1", "10.77.0.2", "10.77.0.4"}, "10.77.0.3"},
		{"10.77.0.0/24", []string{"10.77.0.2"}, "10.77.0.1"},
		{"10.77.0.0/30", []string{"10.77.0.1"}, "10.77.0.2"},
		{"10.77.0.0/30", []string{"10.77.0.1", "10.77.0.2"}, ""},
		{"10.255.255.252/30", []string{"10.255.255.253", "10.255.255.254"}, ""},
		{"fd00::/126", nil, "fd00::1"},
		{"fd00::/126", []string{"fd00::1", "fd00::2"}, "fd00::3"},
		{"fd00::/126", []string{"fd00::1", "fd00::2", "fd00::3"}, ""},
		{"fdff:ffff:ffff:ffff:ffff:ffff:ffff:fffc/126", []string{
			"fdff:ffff:ffff:ffff:ffff:ffff:ffff:fffd", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:fffe", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}, ""},
	} {
		var held []netip.Addr
		for _, h := range tt.held {
			held = append(held, netip.MustParseAddr(h))
		}
		got, ok := enrolment.NextAddress(netip.MustParsePrefix(tt.prefix), held)
		if ok != (tt.want != "") || ok && got.String() != tt.want {
			t.Errorf("%s with %v held: got %v %v, want %q", tt.prefix, tt.held, got, ok, tt.want)
		}
	}
}

// TestNextAddressLaw takes and gives back addresses in any order: what is given
// is in the range, is held by nobody, and is there as long as anything is free.
func TestNextAddressLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.IntRange(24, 30).Draw(t, "bits")
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, 2, 0}), bits)
		room := 1<<(32-bits) - 2
		var held []netip.Addr
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			if len(held) > 0 && rapid.IntRange(0, 3).Draw(t, "give back") == 0 {
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				held = slices.Delete(held, i, i+1)
				continue
			}
			a, ok := enrolment.NextAddress(prefix, held)
			if ok != (len(held) < room) {
				t.Fatalf("%d of %d held, and ok is %v", len(held), room, ok)
			}
			if !ok {
				continue
			}
			i, taken := slices.BinarySearchFunc(held, a, netip.Addr.Compare)
			if taken || !prefix.Contains(a) || a == prefix.Addr() {
				t.Fatalf("%v given out of %v with %v held", a, prefix, held)
			}
			held = slices.Insert(held, i, a)
		}
	})
}
