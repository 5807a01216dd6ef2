// Package gateway is the plane's end of the link: it accepts connections of
// hosts, knows each by the key of its certificate, delivers declarations and
// takes reports.
//
// Nothing is computed for a connection: what is offered was signed and stored
// when it was decided. Callers without a node's key may ask for one thing, to
// be enrolled, within bounds that are kept before a byte of theirs is read.
package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"mesh/host/declaration"
	"mesh/host/identity"
	"mesh/host/inventory"
	"mesh/host/link"
	"mesh/plane/enrolment"
	"mesh/plane/registry"
)

// Enroller decides who comes and goes. An error of Enrol is a *link.Refusal to be told to
// the caller, or trouble of the plane's own.
type Enroller interface {
	Enrol(ctx context.Context, a enrolment.Attempt) (enrolment.Grant, error)
	// Depart hears what a node that is being retired came to, and may remove it.
	Depart(ctx context.Context, key identity.NodePublicKey, outcome declaration.Outcome) error
}

// Nodes answers what a call needs to know. Errors match registry.ErrUnknown
// where there is nothing.
type Nodes interface {
	Linked(ctx context.Context, key identity.NodePublicKey) (registry.Linked, error)
	Signed(ctx context.Context, key identity.NodePublicKey, digest string) ([]byte, error)
}

// Observations keeps what nodes say of themselves.
type Observations interface {
	SaveReport(ctx context.Context, r registry.Report) error
	SaveProfile(ctx context.Context, key identity.NodePublicKey, p inventory.Profile, at time.Time) error
	Seen(ctx context.Context, keys []identity.NodePublicKey, at time.Time) error
}

// Contents holds what declarations name by digest: a call returns at most
// link.MaxBlobPart bytes from offset on, none at or behind the end. The error
// matches registry.ErrUnknown when this node may not have it, or it is not there.
type Contents interface {
	Content(ctx context.Context, key identity.NodePublicKey, digest string, offset int64) ([]byte, error)
}

// Config is what a Gateway needs.
type Config struct {
	Mesh         registry.Mesh
	Enroller     Enroller
	Nodes        Nodes
	Observations Observations
	Contents     Contents
	Links        *Links // hears of every committed change
	Limits       Limits
	Now          func() time.Time
	Keepalive    time.Duration // zero means link.KeepaliveInterval
	Log          *slog.Logger  // nil discards
}

// Gateway serves links. Make it with New.
type Gateway struct {
	Config
	admission *admission
	strangers *strangers
	refuser   *connect.ErrorWriter
	calls     sync.WaitGroup // requests being answered
	stopping  chan struct{}  // closed when Run ends: watches go
}

// New makes a Gateway. It serves once, by Run.
func New(c Config) *Gateway {
	if c.Keepalive == 0 {
		c.Keepalive = link.KeepaliveInterval
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Limits = c.Limits.withDefaults()
	return &Gateway{
		Config:    c,
		admission: newAdmission(c.Limits),
		strangers: newStrangers(c.Limits),
		refuser:   connect.NewErrorWriter(connect.WithCodec(link.Codec{})),
		stopping:  make(chan struct{}),
	}
}

// Bounds on connections. A dead peer is found by pings within LinkTimeout: each
// wakes up a host that has nothing to do, so there are as few as may be.
const (
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 2 * time.Minute
	pingAfter        = link.LinkTimeout * 2 / 3
	pingTimeout      = link.LinkTimeout / 3
	shutdownTimeout  = 5 * time.Second
	seenInterval     = time.Minute
)

// Run serves links on l until ctx ends, then ends every link and returns when
// the last call has. It closes l.
func (g *Gateway) Run(ctx context.Context, l net.Listener) error {
	server, err := g.server()
	if err != nil {
		l.Close()
		return err
	}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(g.strangers.guard(l), "", "") }()
	err = g.keepSeen(ctx, served)
	close(g.stopping)

	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if server.Shutdown(grace) != nil {
		server.Close()
	}
	if err == nil {
		<-served
	}
	g.calls.Wait()
	return err
}

// keepSeen keeps which links are up, until ctx ends or serving does.
func (g *Gateway) keepSeen(ctx context.Context, served <-chan error) error {
	tick := time.NewTicker(seenInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			g.seen(ctx, g.Links.keys()...)
		case err := <-served:
			return fmt.Errorf("serve links: %v", err)
		case <-ctx.Done():
			return nil
		}
	}
}

func (g *Gateway) seen(ctx context.Context, keys ...identity.NodePublicKey) {
	if err := g.Observations.Seen(ctx, keys, g.Now()); err != nil {
		g.Log.Warn("when links were up is not kept", "err", err)
	}
}

func (g *Gateway) server() (*http.Server, error) {
	certificate, err := g.Mesh.LinkKey.Certificate()
	if err != nil {
		return nil, fmt.Errorf("make certificate of the link: %v", err)
	}
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	return &http.Server{
		Handler:   g.handler(),
		Protocols: &protocols,
		TLSConfig: &tls.Config{
			Certificates:           []tls.Certificate{certificate},
			MinVersion:             tls.VersionTLS13,
			ClientAuth:             tls.RequireAnyClientCert,
			VerifyConnection:       verifyPeer,
			SessionTicketsDisabled: true, // every connection shows that it holds the key
		},
		ConnContext:       perConnection,
		ReadHeaderTimeout: handshakeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    16 << 10,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          16,
			MaxReceiveBufferPerConnection: 64 << 10,
			MaxReceiveBufferPerStream:     16 << 10, // what an unread body takes
			SendPingTimeout:               pingAfter,
			PingTimeout:                   pingTimeout,
			WriteByteTimeout:              link.LinkTimeout,
		},
		ErrorLog: slog.NewLogLogger(g.Log.Handler(), slog.LevelDebug),
	}, nil
}

// verifyPeer refuses a certificate whose key cannot be a node's. Who the node
// is, if it is one, is looked up for every request.
func verifyPeer(c tls.ConnectionState) error {
	_, err := identity.NodeKeyOf(c.PeerCertificates[0])
	return err
}

// handler puts admission before the calls.
func (g *Gateway) handler() http.Handler {
	options := func(maxBytes int) connect.HandlerOption {
		return connect.WithHandlerOptions(
			connect.WithCodec(link.Codec{}),
			connect.WithReadMaxBytes(maxBytes),
			connect.WithCompression("gzip", nil, nil), // a body is as long as it says
		)
	}
	enrol := connect.NewUnaryHandler(link.ProcedureEnrol, g.enrol, options(link.MaxEnrolBytes))
	mux := http.NewServeMux()
	mux.Handle(link.ProcedureWatch, connect.NewServerStreamHandler(link.ProcedureWatch, g.watch, options(maxRequestBytes)))
	mux.Handle(link.ProcedureBlob, connect.NewUnaryHandler(link.ProcedureBlob, g.blob, options(maxRequestBytes)))
	mux.Handle(link.ProcedureFetch, connect.NewUnaryHandler(link.ProcedureFetch, g.fetch, options(maxRequestBytes)))
	mux.Handle(link.ProcedureReport, connect.NewUnaryHandler(link.ProcedureReport, g.report, options(maxReportBytes)))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.calls.Add(1)
		defer g.calls.Done()
		err := g.admit(w, r, enrol, mux)
		if err != nil {
			g.refuser.Write(w, r, g.wire(r.Context(), err, "admit call", ""))
		}
	})
}

// admit finds out who calls and lets the call through, or returns why not.
func (g *Gateway) admit(w http.ResponseWriter, r *http.Request, enrol, nodes http.Handler) error {
	key, err := identity.NodeKeyOf(r.TLS.PeerCertificates[0])
	if err != nil {
		return notANode()
	}
	c := caller{key: key, tls: r.TLS}
	if r.URL.Path == link.ProcedureEnrol {
		return g.admission.stranger(w, r.WithContext(withCaller(r.Context(), c)), g.Now(), enrol)
	}
	if c.node, err = g.Nodes.Linked(r.Context(), key); isUnknown(err) {
		return notANode()
	} else if err != nil {
		return err
	}
	connectionOf(r.Context()).known(key)
	bound(w, r, reportReadTimeout, maxReportBytes)
	nodes.ServeHTTP(w, r.WithContext(withCaller(r.Context(), c)))
	return nil
}

// caller is who a request comes from.
type caller struct {
	key  identity.NodePublicKey
	tls  *tls.ConnectionState
	node registry.Linked // zero for an enrolment
}

type callerKey struct{}

func withCaller(ctx context.Context, c caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

func callerOf(ctx context.Context) caller { return ctx.Value(callerKey{}).(caller) }

// wire turns an error into what the caller is told. Trouble of the plane's own
// is logged here, once, and told as "unavailable": an answer that is missing is
// never one that is empty.
func (g *Gateway) wire(ctx context.Context, err error, what, node string) error {
	var refused *link.Refusal
	var told *connect.Error
	switch {
	case errors.As(err, &told):
		return err
	case ctx.Err() != nil, errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, errors.New("the call was given up"))
	case errors.Is(err, errReplaced):
		return connect.NewError(connect.CodeAborted, err)
	case !errors.As(err, &refused):
		g.Log.Error("call failed", "call", what, "node", node, "err", err)
		refused = &link.Refusal{Reason: link.ReasonUnavailable, Message: "the plane cannot answer now; try again, and look at its log if it stays so"}
	}
	e := connect.NewError(connect.Code(refused.Reason.Code()), errors.New(refused.Message))
	e.Meta().Set(link.ReasonHeader, string(refused.Reason))
	return e
}
