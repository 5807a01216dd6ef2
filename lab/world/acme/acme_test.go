package acme_test

import (
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/world/acme"
)

func issuer(t *testing.T) (*acme.Issuer, *strings.Builder) {
	t.Helper()
	var said strings.Builder
	log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	i, err := acme.New(acme.Config{
		Name: "acme.world.test", Addrs: []netip.Addr{netip.MustParseAddr("203.0.113.2")},
		Resolver: netip.MustParseAddrPort("203.0.113.2:53"),
	}, log)
	if err != nil {
		t.Fatal(err)
	}
	return i, &said
}

// TestEnvironment: whatever the process's environment says, the issuer is the
// same, and the environment stays what it was.
func TestEnvironment(t *testing.T) {
	t.Setenv("PEBBLE_WFE_NONCEREJECT", "50")
	t.Setenv("PEBBLE_AUTHZREUSE", "100")
	t.Setenv("PEBBLE_VA_ALWAYS_VALID", "1")
	t.Setenv("PEBBLE_VA_NOSLEEP", "")
	_, said := issuer(t)
	for _, want := range []string{"reject 0% of good nonces", "reuse for each identifier 0%", "Disabling random VA sleeps"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("not said: %q in\n%s", want, said)
		}
	}
	if strings.Contains(said.String(), "VA always returns valid") {
		t.Error("it validates nothing")
	}
	got := []string{os.Getenv("PEBBLE_WFE_NONCEREJECT"), os.Getenv("PEBBLE_AUTHZREUSE"), os.Getenv("PEBBLE_VA_ALWAYS_VALID")}
	if diff := cmp.Diff([]string{"50", "100", "1"}, got); diff != "" {
		t.Errorf("environment afterwards (-want +got):\n%s", diff)
	}
	if _, set := os.LookupEnv("PEBBLE_VA_SLEEPTIME"); set {
		t.Error("a variable is set that was not")
	}
}

// TestRoots: two certificates, each under a line that names it, the first of
// which is what the issuer's own HTTPS leads to.
func TestRoots(t *testing.T) {
	i, _ := issuer(t)
	shape := regexp.MustCompile(`(?s)^# [^\n]+\n-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n# [^\n]+\n-----BEGIN CERTIFICATE-----.+-----END CERTIFICATE-----\n$`)
	if !shape.Match(i.Roots) {
		t.Fatalf("not two named blocks:\n%s", i.Roots)
	}
	first, rest := pem.Decode(i.Roots)
	root, err := x509.ParseCertificate(first.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	second, _ := pem.Decode(rest)
	other, err := x509.ParseCertificate(second.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if !root.IsCA || !other.IsCA || root.Equal(other) {
		t.Errorf("want two authorities, have %s and %s", root.Subject, other.Subject)
	}
	leaf, err := x509.ParseCertificate(i.TLS.Certificates[0].Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(root)
	for _, name := range []string{"acme.world.test", "203.0.113.2"} {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDirectory names itself as it was asked for.
func TestDirectory(t *testing.T) {
	i, _ := issuer(t)
	r := httptest.NewRequest(http.MethodGet, "https://acme.world.test:14000/dir", nil)
	r.Header.Set("User-Agent", "test")
	w := httptest.NewRecorder()
	i.Handler.ServeHTTP(w, r)
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"https://acme.world.test:14000/`) {
		t.Errorf("%d\n%s", w.Code, w.Body)
	}
}
