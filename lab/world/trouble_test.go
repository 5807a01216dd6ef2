package world_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/acme"

	"mesh/lab/fault"
	"mesh/lab/world"
	"mesh/lab/world/worldtest"
)

// certifier is a client of the issuer on a machine, with both roots.
func (b *bed) certifier() (client *acme.Client, issuing *x509.CertPool) {
	b.t.Helper()
	bundle, err := b.client.RootCertificates(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	transport, issuing := roots(b.t, bundle)
	client = &acme.Client{
		Key: key(b.t), DirectoryURL: "https://acme.world.test:14000/dir", HTTPClient: b.pub.HTTP(),
		RetryBackoff: func(int, *http.Request, *http.Response) time.Duration { return -1 }, // tell at once
	}
	client.HTTPClient.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: transport}
	return client, issuing
}

// outside is a bed with one machine outside only.
func outside(t *testing.T, run string) *bed {
	t.Helper()
	worldtest.Need(t)
	u := plan(t, town, run)
	c := config(t, u)
	start(t, c)
	b := &bed{t: t, u: u, client: world.NewClient(c.Control), pub: up(t, u, "pub")}
	b.pub.Autoconf(soon(t))
	return b
}

// TestIssuerRefusing meets each of the issuer's ways to refuse with a client of
// RFC 8555 that knows nothing of the lab.
func TestIssuerRefusing(t *testing.T) {
	b := outside(t, "00000031")
	register := func() error {
		client, _ := b.certifier()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := client.Register(ctx, &acme.Account{}, acme.AcceptTOS)
		return err
	}
	for _, c := range []struct {
		fault fault.Fault
		says  string
	}{
		{fault.Fault{Kind: fault.IssuerRefusing}, "503"},
		{fault.Fault{Kind: fault.IssuerRefusing, How: fault.Internal}, "500"},
		{fault.Fault{Kind: fault.IssuerRefusing, How: fault.Reset}, "EOF"},
		{fault.Fault{Kind: fault.ServiceStopped, On: on(t, "issuer")}, "refused"},
		{fault.Fault{Kind: fault.IssuerBadNonces, Share: fault.Whole}, "badNonce"},
		{fault.Fault{Kind: fault.DNSFailing}, "SERVFAIL"},
	} {
		b.strike(c.fault)
		if err := register(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v; want %q", c.fault, err, c.says)
		}
	}
	b.strike(fault.Fault{Kind: fault.IssuerLimited, RetryIn: fault.Duration(7 * time.Second)})
	err := register()
	if wait, limited := acme.RateLimit(err); !limited || wait != 7*time.Second {
		t.Errorf("limited: %v, %v, %v; want to come again in 7 s", err, wait, limited)
	}
	if problem := (*acme.Error)(nil); !errors.As(err, &problem) || problem.StatusCode != http.StatusTooManyRequests || problem.Header.Get("Replay-Nonce") == "" {
		t.Errorf("limited: %#v; want 429 with a nonce", problem)
	}
	b.strike()
	if err := register(); err != nil {
		t.Errorf("undone: %v", err)
	}
}

// TestIssuerSlow answers later by as much as is said, each request.
func TestIssuerSlow(t *testing.T) {
	b := outside(t, "00000032")
	b.strike(
		fault.Fault{Name: "a", Kind: fault.IssuerSlow, Delay: fault.Duration(200 * time.Millisecond)},
		fault.Fault{Name: "b", Kind: fault.IssuerSlow, Delay: fault.Duration(100 * time.Millisecond)},
	)
	client, _ := b.certifier()
	begun := time.Now()
	if _, err := client.Discover(soon(t)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took < 300*time.Millisecond {
		t.Errorf("the directory took %v, want 300 ms", took)
	}
}

// TestIssuerBadNonces refuses some: a client that tries again gets through.
func TestIssuerBadNonces(t *testing.T) {
	b := outside(t, "00000033")
	b.strike(fault.Fault{Kind: fault.IssuerBadNonces, Share: fault.Whole / 3})
	client, _ := b.certifier()
	client.RetryBackoff = func(int, *http.Request, *http.Response) time.Duration { return time.Millisecond }
	issue(t, client, b.pub, "pub.world.test")
}

// TestIssuerExpired hands out a chain that holds by its signatures, and whose
// authorities have expired; the same certificate's chain is good before and after.
func TestIssuerExpired(t *testing.T) {
	b := outside(t, "00000034")
	client, issuing := b.certifier()
	b.strike(fault.Fault{Kind: fault.IssuerExpired})
	_, expired := b.certifier()

	chain := issue(t, client, b.pub, "pub.world.test")
	var certificates []*x509.Certificate
	for _, der := range chain {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		certificates = append(certificates, c)
	}
	between := x509.NewCertPool()
	for _, c := range certificates[1:] {
		between.AddCert(c)
	}
	for name, pool := range map[string]*x509.CertPool{"the root of before": issuing, "the root of now": expired} {
		_, err := certificates[0].Verify(x509.VerifyOptions{DNSName: "pub.world.test", Roots: pool, Intermediates: between})
		var invalid x509.CertificateInvalidError
		if !errors.As(err, &invalid) || invalid.Reason != x509.Expired {
			t.Errorf("trusting %s: %v; want expired", name, err)
		}
	}
	root := certificates[len(certificates)-1]
	if !time.Now().After(root.NotAfter) || !root.IsCA {
		t.Errorf("the root ends at %v", root.NotAfter)
	}
	then := root.NotAfter.Add(-time.Hour)
	if _, err := certificates[1].Verify(x509.VerifyOptions{Roots: expired, Intermediates: between, CurrentTime: then}); err != nil {
		t.Errorf("when it was good, the chain did not hold: %v", err)
	}
	if err := certificates[0].CheckSignatureFrom(certificates[1]); err != nil {
		t.Errorf("the leaf is not of this chain: %v", err)
	}
	if now := time.Now(); now.After(certificates[0].NotAfter) {
		t.Error("the leaf has expired, too")
	}
}
