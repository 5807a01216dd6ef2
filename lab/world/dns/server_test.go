package dns_test

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"

	mdns "github.com/miekg/dns"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"mesh/lab/world/dns"
)

// TestServe asks over both transports and both families, and waits for the end.
func TestServe(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := dns.Listen([]netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, zone(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var group errgroup.Group
	group.Go(func() error { return s.Serve(ctx) })
	for _, transport := range []string{"udp", "tcp"} {
		client := &mdns.Client{Net: transport}
		a, _, err := client.ExchangeContext(ctx, new(mdns.Msg).SetQuestion("acme.world.test.", mdns.TypeAAAA), s.Addr().String())
		if err != nil {
			t.Fatalf("%s: %v", transport, err)
		}
		if got := summary(a); got != "NOERROR 2001:db8::2" {
			t.Errorf("%s: %s", transport, got)
		}
	}
	cancel()
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

// TestServeCancelled closes what was opened.
func TestServeCancelled(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	at := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}
	s, err := dns.Listen(at, zone(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	taken := s.Addr()
	if err := s.Serve(ctx); err != nil {
		t.Error(err)
	}
	again, err := dns.Listen([]netip.AddrPort{taken}, zone(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("still open: %v", err)
	}
	if err := again.Serve(ctx); err != nil {
		t.Error(err)
	}
	if _, err := dns.Listen([]netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:0")}, zone(), nil, nil); err == nil {
		t.Error("listens on an address that is not this machine's")
	}
}
