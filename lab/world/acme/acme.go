// Package acme is the public certificate issuer of a scenario's outside: Pebble,
// embedded, on an address of the public segment.
//
// It refuses no good nonce, reuses no authorisation and does not dawdle, so that
// what it does is the same each time. What remains of Pebble, and has to be
// known: it asks for AAAA before A and validates at the first address only; its
// keys, accounts and orders live in memory, so that a world that is started anew
// has new roots and knows nobody.
//
// Two authorities meet here and stay apart: the root under which the issuer's own
// HTTPS is served, and the root of what it issues.
//
// Only lab/world imports it.
package acme

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"

	"mesh/lab/underlay"
)

// Port is where the issuer listens; its directory is at https://NAME:14000/dir.
const Port = 14000

// Ports at which names are validated: RFC 8555, section 8.3, and RFC 8737.
const (
	validationHTTP = 80
	validationTLS  = 443
)

// validity is that of issued certificates.
const validity = 90 * 24 * time.Hour

// Config is what an issuer needs.
type Config struct {
	Name     string         // the host name in its directory's URL
	Addrs    []netip.Addr   // where it is served
	Resolver netip.AddrPort // the DNS that validation asks, over TCP
}

// Issuer is one issuer with fresh keys.
type Issuer struct {
	// Handler is its whole API, with its trouble.
	Handler http.Handler
	// TLS is what Handler must be served with.
	TLS *tls.Config
	// Roots is what machines must trust, in PEM: first the root of the issuer's own
	// HTTPS, then the root of what it issues, each under a comment line that begins
	// with "# ".
	Roots []byte

	front *front
	// expired is what Roots are while the issuer's authorities are expired.
	expired []byte
}

// Set makes exactly this trouble be, from the next request on.
func (i *Issuer) Set(t Trouble) { i.front.trouble.Store(&t) }

// Trusted is what machines must trust now: Roots, or, while chains are handed out
// under an expired root, that one in the place of the issuer's.
func (i *Issuer) Trusted() []byte {
	if i.front.trouble.Load().Expired {
		return i.expired
	}
	return i.Roots
}

// New makes an issuer. Its validations go out from the process's own namespace.
// One goroutine of Pebble's, which waits for validations, cannot be ended: make
// no more than one issuer in a process that lives.
func New(c Config, log *slog.Logger) (*Issuer, error) {
	root, leaf, err := newTransport(c.Name, c.Addrs, time.Now())
	if err != nil {
		return nil, fmt.Errorf("make issuer: %v", err)
	}
	handler, authority := newPebble(c.Resolver, log)
	issuing, intermediate := authority.GetRootCert(0).DER, authority.GetIntermediateCert(0).Cert
	old, oldIntermediate, err := newExpired(intermediate, time.Now())
	if err != nil {
		return nil, fmt.Errorf("make issuer: %v", err)
	}
	front := &front{issuer: handler, expired: chain(oldIntermediate, old)}
	issuer := &Issuer{
		Handler: front,
		TLS:     &tls.Config{Certificates: []tls.Certificate{leaf}, MinVersion: tls.VersionTLS12},
		Roots:   bundle(namedRoot{transportRoot, root.Raw}, namedRoot{issuingRoot, issuing}),
		expired: bundle(namedRoot{transportRoot, root.Raw}, namedRoot{issuingRoot, old}),
		front:   front,
	}
	issuer.Set(Trouble{})
	return issuer, nil
}

// newPebble builds the issuer and its authority.
func newPebble(resolver netip.AddrPort, log *slog.Logger) (handler http.Handler, authority *ca.CAImpl) {
	said := slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	fixed(func() {
		store := db.NewMemoryStore()
		profiles := map[string]ca.Profile{"default": {
			Description: "The only one", ValidityPeriod: uint64(validity / time.Second),
		}}
		authority = ca.New(said, store, "", "ecdsa", 0, 1, profiles)
		validator := va.New(said, validationHTTP, validationTLS, false, resolver.String(), store)
		// Clients may ask again at once: no Retry-After on authorisations and orders.
		front := wfe.New(said, store, validator, authority, []string{underlay.Domain}, false, false, 0, 0)
		handler = front.Handler()
	})
	return handler, authority
}

// environment is what Pebble's constructors read; empty is unset.
var environment = map[string]string{
	"PEBBLE_WFE_NONCEREJECT":     "0",
	"PEBBLE_AUTHZREUSE":          "0",
	"PEBBLE_WFE_ORDERS_PER_PAGE": "",
	"PEBBLE_VA_NOSLEEP":          "1",
	"PEBBLE_VA_SLEEPTIME":        "",
	"PEBBLE_VA_ALWAYS_VALID":     "",
}

var environmentMu sync.Mutex

// fixed runs f with the environment that Pebble shall read, whatever the
// process's own is, and puts that back.
func fixed(f func()) {
	environmentMu.Lock()
	defer environmentMu.Unlock()
	for key, value := range environment {
		before, was := os.LookupEnv(key)
		if value == "" {
			os.Unsetenv(key)
		} else {
			os.Setenv(key, value)
		}
		defer func() {
			if was {
				os.Setenv(key, before)
			} else {
				os.Unsetenv(key)
			}
		}()
	}
	f()
}
