package worldtest

import (
	"context"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
)

// LeasesWithin tells whether somebody offers the machine an address, once asked.
func (m *Machine) LeasesWithin(span time.Duration) (offered bool) {
	m.t.Helper()
	m.Up()
	m.Must(func() error {
		client, err := nclient4.New(Card, nclient4.WithTimeout(span), nclient4.WithRetry(1))
		if err != nil {
			return err
		}
		defer client.Close()
		ctx, cancel := context.WithTimeout(m.t.Context(), 2*span)
		defer cancel()
		_, err = client.DiscoverOffer(ctx)
		offered = err == nil
		return nil
	})
	return offered
}
