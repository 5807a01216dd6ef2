package advertisement_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/mdlayher/ndp"

	"mesh/lab/world/advertisement"
)

// TestMessage reads the bytes back.
func TestMessage(t *testing.T) {
	mac := net.HardwareAddr{6, 1, 2, 3, 4, 5}
	prefix := &ndp.PrefixInformation{
		PrefixLength: 64, OnLink: true, AutonomousAddressConfiguration: true,
		ValidLifetime: 24 * time.Hour, PreferredLifetime: 4 * time.Hour, Prefix: netip.MustParseAddr("2001:db8:1::"),
	}
	link := &ndp.LinkLayerAddress{Direction: ndp.Source, Addr: mac}
	resolver := netip.MustParseAddr("2001:db8::2")
	for name, c := range map[string]struct {
		config advertisement.Config
		want   *ndp.RouterAdvertisement
	}{
		"gateway": {
			advertisement.Config{Prefix: netip.MustParsePrefix("2001:db8:1::7/64"), Gateway: true, DNS: []netip.Addr{resolver}},
			&ndp.RouterAdvertisement{CurrentHopLimit: 64, RouterLifetime: 30 * time.Minute, Options: []ndp.Option{
				link, prefix, &ndp.RecursiveDNSServer{Lifetime: 30 * time.Minute, Servers: []netip.Addr{resolver}},
			}},
		},
		"no way out": {
			advertisement.Config{Prefix: netip.MustParsePrefix("2001:db8:1::/64")},
			&ndp.RouterAdvertisement{CurrentHopLimit: 64, Options: []ndp.Option{link, prefix}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			packed, err := ndp.MarshalMessage(c.config.Message(mac))
			if err != nil {
				t.Fatal(err)
			}
			got, err := ndp.ParseMessage(packed)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(ndp.Message(c.want), got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
