package world_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"golang.org/x/crypto/acme"

	"mesh/lab/world"
	"mesh/lab/world/worldtest"
)

// TestCaseL4FirstAddress gives a machine that has just come up its declared
// address within a second, and again after it renews. A packet that a busy machine
// loses is asked for again by the client after two; a world that is slow is slow
// for more than one.
func TestCaseL4FirstAddress(t *testing.T) {
	worldtest.Need(t)
	u := plan(t, town, "00000001")
	c := config(t, u)
	begun := time.Now()
	start(t, c)
	t.Logf("world ready after %v", time.Since(begun).Round(time.Millisecond))
	var late []string
	for _, name := range []string{"pub", "in", "desk", "robin"} {
		m := worldtest.NewMachine(t, u, name)
		begun := time.Now()
		m.Up()
		lease := m.Lease(soon(t))
		took := time.Since(begun)
		t.Logf("%s: first address after %v", name, took.Round(time.Millisecond))
		if took > time.Second {
			late = append(late, name)
		}
		if got := lease.ACK.YourIPAddr.String(); got != m.NIC.IPv4.Addr().String() {
			t.Errorf("%s was given %s, want %s", name, got, m.NIC.IPv4.Addr())
		}
		renew(t, m, lease)
	}
	if len(late) > 1 {
		t.Errorf("%v had no address within a second", late)
	}
	status, err := world.NewClient(c.Control).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(status.Leases) != 4 {
		t.Errorf("leases: %v, want those of 4 machines", status.Leases)
	}
}

// renew asks as a client does at half its time: unicast, from its address.
func renew(t *testing.T, m *worldtest.Machine, lease *nclient4.Lease) {
	t.Helper()
	own, server := lease.ACK.YourIPAddr, lease.ACK.ServerIdentifier()
	m.Must(func() error {
		client, err := nclient4.New(worldtest.Card,
			nclient4.WithUnicast(&net.UDPAddr{IP: own, Port: dhcpv4.ClientPort}),
			nclient4.WithServerAddr(&net.UDPAddr{IP: server, Port: dhcpv4.ServerPort}))
		if err != nil {
			return err
		}
		defer client.Close()
		again, err := client.Renew(soon(t), lease)
		if err == nil && !again.ACK.YourIPAddr.Equal(own) {
			t.Errorf("renewed to %s, want %s", again.ACK.YourIPAddr, own)
		}
		return err
	})
}

// TestStranger is silent towards a MAC that nobody declared.
func TestStranger(t *testing.T) {
	worldtest.Need(t)
	u := plan(t, town, "00000002")
	start(t, config(t, u))
	m := worldtest.NewMachine(t, u, "pub")
	m.Up()
	m.Must(func() error {
		client, err := nclient4.New(worldtest.Card, nclient4.WithTimeout(300*time.Millisecond), nclient4.WithRetry(1),
			nclient4.WithHWAddr(net.HardwareAddr{2, 0, 0, 0, 0, 9}))
		if err != nil {
			return err
		}
		defer client.Close()
		if offer, err := client.DiscoverOffer(t.Context()); err == nil {
			t.Errorf("a stranger is offered %v", offer.YourIPAddr)
		}
		return nil
	})
}

// TestAdvertisement lets the machine's own kernel make its address and route.
func TestAdvertisement(t *testing.T) {
	worldtest.Need(t)
	u := plan(t, town, "00000003")
	start(t, config(t, u))
	for name, way := range map[string]bool{"pub": true, "in": true, "robin": false} {
		m := worldtest.NewMachine(t, u, name)
		begun := time.Now()
		m.Up()
		got := m.Autoconf(soon(t))
		took := time.Since(begun)
		t.Logf("%s: %v after %v", name, got, took.Round(time.Millisecond))
		if took > time.Second {
			t.Errorf("%s: address after %v, want less than 1 s", name, took)
		}
		if got != m.NIC.IPv6.Addr() {
			t.Errorf("%s made itself %s, want %s", name, got, m.NIC.IPv6.Addr())
		}
		m.Must(func() error {
			routes, err := netlink.RouteGet(net.ParseIP("2001:db8:ffff::1"))
			if leads := err == nil && len(routes) > 0; leads != way {
				t.Errorf("%s has a way out: %v, want %v", name, leads, way)
			}
			return nil
		})
	}
}

// TestNames asks as a site's machine does: through its router.
func TestNames(t *testing.T) {
	worldtest.Need(t)
	u := plan(t, town, "00000004")
	start(t, config(t, u))
	in := up(t, u, "in")
	for _, transport := range []string{"udp", "tcp"} {
		answer, err := in.Ask(soon(t), transport, "acme.WORLD.test", dns.TypeA)
		if err != nil {
			t.Fatalf("%s: %v", transport, err)
		}
		if len(answer.Answer) != 1 || answer.Answer[0].(*dns.A).A.String() != "203.0.113.2" {
			t.Errorf("%s: %v", transport, answer)
		}
		answer, err = in.Ask(soon(t), transport, "example.com", dns.TypeA)
		if err != nil {
			t.Fatalf("%s: %v", transport, err)
		}
		if answer.Rcode != dns.RcodeNameError {
			t.Errorf("%s: example.com: %s", transport, dns.RcodeToString[answer.Rcode])
		}
	}
}

func TestArtefactByName(t *testing.T) {
	worldtest.Need(t)
	u := plan(t, town, "00000005")
	start(t, config(t, u))
	answer, err := up(t, u, "in").HTTP().Get("http://packages.world.test/debian-13/./Packages")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("Package: hello\n", string(body)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestIssue orders a certificate for a machine's public name from that machine,
// trusting no more than the world says.
func TestIssue(t *testing.T) {
	worldtest.Need(t)
	u := plan(t, town, "00000006")
	c := config(t, u)
	start(t, c)
	m := up(t, u, "pub")
	m.Autoconf(soon(t)) // the name has both, and the issuer comes by IPv6

	bundle, err := world.NewClient(c.Control).RootCertificates(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	transport, issuing := roots(t, bundle)
	client := &acme.Client{Key: key(t), DirectoryURL: "https://acme.world.test:14000/dir", HTTPClient: m.HTTP()}
	client.HTTPClient.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: transport}

	chain := issue(t, client, m, "pub.world.test")
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		t.Fatal(err)
	}
	between := x509.NewCertPool()
	for _, der := range chain[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		between.AddCert(c)
	}
	check := x509.VerifyOptions{DNSName: "pub.world.test", Roots: issuing, Intermediates: between}
	if _, err := leaf.Verify(check); err != nil {
		t.Error(err)
	}
	check.Roots = transport
	if _, err := leaf.Verify(check); err == nil {
		t.Error("the two authorities are one")
	}
	if got := leaf.NotAfter.Sub(leaf.NotBefore).Round(time.Hour); got != 90*24*time.Hour {
		t.Errorf("valid for %v, want 90 days", got)
	}
}

// roots parts the two roots as their order is documented.
func roots(t testing.TB, bundle []byte) (transport, issuing *x509.CertPool) {
	t.Helper()
	var pools []*x509.CertPool
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AddCert(c)
		pools = append(pools, pool)
	}
	if len(pools) != 2 {
		t.Fatalf("%d roots, want 2:\n%s", len(pools), bundle)
	}
	return pools[0], pools[1]
}

func key(t testing.TB) crypto.Signer {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// issue walks RFC 8555 from account to certificate with HTTP-01.
func issue(t *testing.T, client *acme.Client, m *worldtest.Machine, name string) [][]byte {
	t.Helper()
	ctx := soon(t)
	if _, err := client.Register(ctx, &acme.Account{}, acme.AcceptTOS); err != nil {
		t.Fatal(err)
	}
	order, err := client.AuthorizeOrder(ctx, acme.DomainIDs(name))
	if err != nil {
		t.Fatal(err)
	}
	authorisation, err := client.GetAuthorization(ctx, order.AuthzURLs[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, challenge := range authorisation.Challenges {
		if challenge.Type != "http-01" {
			continue
		}
		answer, err := client.HTTP01ChallengeResponse(challenge.Token)
		if err != nil {
			t.Fatal(err)
		}
		serve(t, m, client.HTTP01ChallengePath(challenge.Token), answer)
		if _, err := client.Accept(ctx, challenge); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.WaitAuthorization(ctx, authorisation.URI); err != nil {
		t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{name}}, key(t))
	if err != nil {
		t.Fatal(err)
	}
	// Pebble's answer to finalisation has no Location, without which this client
	// does not know what to wait for; RFC 8555 does not ask for one.
	if chain, _, err := client.CreateOrderCert(ctx, order.FinalizeURL, request, true); err == nil {
		return chain
	}
	if order, err = client.WaitOrder(ctx, order.URI); err != nil {
		t.Fatal(err)
	}
	chain, err := client.FetchCert(ctx, order.CertURL, true)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

// serve answers one path on a machine's port 80.
func serve(t *testing.T, m *worldtest.Machine, path, answer string) {
	t.Helper()
	l := m.Listen(":80")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != path {
				http.NotFound(w, r)
				return
			}
			io.WriteString(w, answer)
		}))
	}()
	t.Cleanup(func() { l.Close(); <-ended })
}

// TestOneFamily serves where there is only one.
func TestOneFamily(t *testing.T) {
	worldtest.Need(t)
	for run, ranges := range map[string]string{
		"00000030": "ipv4: 203.0.113.0/24", "00000031": "ipv6: 2001:db8:113::/64",
	} {
		t.Run(ranges, func(t *testing.T) {
			u := plan(t, "name: one\nsegments:\n  public: {kind: public, "+ranges+"}\nmachines:\n  pub: {segments: [public]}\n", run)
			start(t, config(t, u))
			m := worldtest.NewMachine(t, u, "pub")
			m.Up()
			kind := dns.TypeA
			if m.NIC.IPv4.IsValid() {
				m.Lease(soon(t))
			} else {
				m.Autoconf(soon(t))
				m.DNS, kind = u.Services.DNS[0], dns.TypeAAAA
			}
			answer, err := m.Ask(soon(t), "tcp", "packages.world.test", kind)
			if err != nil {
				t.Fatal(err)
			}
			if len(answer.Answer) != 1 {
				t.Errorf("%v", answer)
			}
			url := "http://" + netip.AddrPortFrom(u.Services.DNS[0], 80).String() + "/debian-13/Packages"
			if got := fetch(t, m, url); got != "Package: hello\n" {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	worldtest.Need(t)
	c := config(t, plan(t, town, "00000007"))
	client := world.NewClient(c.Control)
	if _, err := client.Status(t.Context()); !strings.Contains(err.Error(), "does not run") {
		t.Errorf("before: %v", err)
	}
	p := start(t, c)
	got, err := client.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := world.Status{Ready: true, PID: p.PID, Leases: map[string]string{}, Services: []world.ServiceStatus{
		{Name: "dhcp", OK: true}, {Name: "router-advertisement", OK: true}, {Name: "dns", OK: true},
		{Name: "issuer", OK: true}, {Name: "artefacts", OK: true},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
