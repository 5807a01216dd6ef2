package agent_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"mesh/host/declaration"
	"mesh/host/identity"
	"mesh/host/link"
)

// fakePlane is a plane in one process: it checks what a plane checks and keeps
// a log of what it was asked, as text.
type fakePlane struct {
	t       *testing.T
	link    identity.LinkKey
	sign    identity.DeclarationKey
	mesh    string
	now     func() time.Time
	refused map[string]*link.Refusal // token id → the answer it gets

	mu      sync.Mutex
	tokens  map[string]*fakeToken
	nodes   map[identity.NodePublicKey]string
	offer   link.Offer
	signed  map[string][]byte // digest → what Fetch gives
	content map[string][]byte // digest → what Blob gives
	cutAt   map[int64]bool    // offsets at which Blob is cut off, once each
	slow    time.Duration     // what Blob takes
	slower  time.Duration     // what Fetch takes
	changed chan struct{}     // closed when the offer changes
	mute    bool              // streams stay open and say nothing more
	abort   bool              // the next enrolment is granted and its answer lost
	reports []link.ReportRequest
	asked   []string
}

type fakeToken struct {
	secret  identity.Secret
	node    string
	spentBy identity.NodePublicKey
}

func newPlane(t *testing.T, seed byte) *fakePlane {
	random := bytes.NewReader(bytes.Repeat([]byte{seed}, 64))
	linkKey, err := identity.NewLinkKey(random)
	if err != nil {
		t.Fatal(err)
	}
	sign, err := identity.NewDeclarationKey(random)
	if err != nil {
		t.Fatal(err)
	}
	return &fakePlane{
		t: t, link: linkKey, sign: sign, mesh: "home", now: time.Now,
		refused: map[string]*link.Refusal{}, tokens: map[string]*fakeToken{},
		nodes: map[identity.NodePublicKey]string{}, signed: map[string][]byte{}, content: map[string][]byte{}, changed: make(chan struct{}),
	}
}

// token issues a token for node that leads to addresses.
func (p *fakePlane) token(node string, addresses ...string) identity.Token {
	p.mu.Lock()
	defer p.mu.Unlock()
	tok := identity.Token{
		Expires: p.now().Add(time.Hour).Truncate(time.Second).UTC(),
		Pins:    []identity.Pin{p.link.Pin()},
		ID:      [8]byte{byte(len(p.tokens) + 1)},
		Secret:  identity.SecretOf([16]byte{0xAB, 0xAB, 0xAB, 0xAB, 0xAB, 0xAB, 0xAB, byte(len(p.tokens))}),
	}
	for _, a := range addresses {
		tok.Addresses = append(tok.Addresses, netip.MustParseAddrPort(a))
	}
	p.tokens[tok.IDText()] = &fakeToken{secret: tok.Secret, node: node}
	return tok
}

// declare signs and offers a declaration.
func (p *fakePlane) declare(d declaration.Declaration) string {
	signed, digest, err := declaration.Sign(d, p.sign)
	if err != nil {
		p.t.Fatal(err)
	}
	p.give(link.Offer{Epoch: d.Epoch, Generation: d.Generation, Digest: digest}, signed)
	return digest
}

// give offers anything.
func (p *fakePlane) give(offer link.Offer, signed []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.offer = offer
	p.signed[offer.Digest] = signed
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *fakePlane) note(format string, args ...any) {
	p.asked = append(p.asked, fmt.Sprintf(format, args...))
}

// took returns what was asked since the last call.
func (p *fakePlane) took() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := p.asked
	p.asked = nil
	return asked
}

func (p *fakePlane) reported() []link.ReportRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.reports)
}

type tlsState struct{}

// serve answers on l until the returned function is called, which waits.
func (p *fakePlane) serve(l net.Listener) (stop func()) {
	certificate, err := p.link.Certificate()
	if err != nil {
		p.t.Fatal(err)
	}
	mux := http.NewServeMux()
	codec := connect.WithHandlerOptions(connect.WithCodec(link.Codec{}), connect.WithCompression("gzip", nil, nil))
	mux.Handle(link.ProcedureEnrol, connect.NewUnaryHandler(link.ProcedureEnrol, p.enrol, codec, connect.WithReadMaxBytes(link.MaxEnrolBytes)))
	mux.Handle(link.ProcedureWatch, connect.NewServerStreamHandler(link.ProcedureWatch, p.watch, codec))
	mux.Handle(link.ProcedureFetch, connect.NewUnaryHandler(link.ProcedureFetch, p.fetch, codec))
	mux.Handle(link.ProcedureBlob, connect.NewUnaryHandler(link.ProcedureBlob, p.blob, codec))
	mux.Handle(link.ProcedureReport, connect.NewUnaryHandler(link.ProcedureReport, p.report, codec))
	ctx, cancel := context.WithCancel(context.Background())
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tlsState{}, r.TLS)))
		}),
		ErrorLog:    log.New(io.Discard, "", 0),
		BaseContext: func(net.Listener) context.Context { return ctx },
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAnyClientCert,
			MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, SessionTicketsDisabled: true,
		},
	}
	var done sync.WaitGroup
	done.Go(func() { _ = server.ServeTLS(l, "", "") })
	return func() {
		cancel()
		_ = server.Close()
		_ = l.Close()
		done.Wait()
	}
}

func refuse(r *link.Refusal) error {
	err := connect.NewError(connect.Code(r.Reason.Code()), r)
	err.Meta().Set(link.ReasonHeader, string(r.Reason))
	return err
}

func caller(ctx context.Context) (*tls.ConnectionState, identity.NodePublicKey) {
	state := ctx.Value(tlsState{}).(*tls.ConnectionState)
	key, err := identity.NodeKeyOf(state.PeerCertificates[0])
	if err != nil {
		panic(err)
	}
	return state, key
}

func (p *fakePlane) enrol(ctx context.Context, r *connect.Request[link.EnrolRequest]) (*connect.Response[link.EnrolResponse], error) {
	state, key := caller(ctx)
	exporter, err := state.ExportKeyingMaterial(link.ExporterLabel, nil, 32)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note("enrol %s with %s", r.Msg.Inventory.Hostname, r.Msg.TokenID)
	tok := p.tokens[r.Msg.TokenID]
	if tok == nil || !identity.VerifyProof(tok.secret, exporter, key, r.Msg.Proof) {
		return nil, refuse(&link.Refusal{Reason: link.ReasonTokenUnknown, Message: "the token is not one of this plane"})
	}
	if refusal := p.refused[r.Msg.TokenID]; refusal != nil {
		return nil, refuse(refusal)
	}
	if !tok.spentBy.IsZero() && tok.spentBy != key {
		return nil, refuse(&link.Refusal{Reason: link.ReasonTokenSpent, Message: "the token was used by another machine"})
	}
	tok.spentBy = key
	p.nodes[key] = tok.node
	if p.abort {
		p.abort = false
		panic(http.ErrAbortHandler)
	}
	return connect.NewResponse(&link.EnrolResponse{
		Protocol: link.Protocol, Mesh: p.mesh, Node: tok.node, Addresses: []string{"10.90.0.1", "fd00:90::1"},
		DeclarationKey: p.sign.Public().String(), Epoch: 1, Time: p.now().UTC(),
	}), nil
}

// takes passes the time that an answer takes.
func takes(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *fakePlane) blob(ctx context.Context, r *connect.Request[link.BlobRequest]) (*connect.Response[link.BlobResponse], error) {
	if err := takes(ctx, p.slow); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note("blob %.8s from %d", r.Msg.Digest, r.Msg.Offset)
	if p.cutAt[r.Msg.Offset] {
		delete(p.cutAt, r.Msg.Offset)
		panic(http.ErrAbortHandler)
	}
	content, known := p.content[r.Msg.Digest]
	if !known {
		return nil, refuse(&link.Refusal{Reason: link.ReasonNotFound, Message: "no such content"})
	}
	rest := content[min(int(r.Msg.Offset), len(content)):]
	return connect.NewResponse(&link.BlobResponse{Data: rest[:min(len(rest), link.MaxBlobPart)]}), nil
}

func (p *fakePlane) watch(ctx context.Context, r *connect.Request[link.WatchRequest], stream *connect.ServerStream[link.Offer]) error {
	_, key := caller(ctx)
	p.mu.Lock()
	node, known := p.nodes[key]
	p.note("watch %s holds %d/%d", node, r.Msg.Epoch, r.Msg.Generation)
	p.mu.Unlock()
	if !known {
		return refuse(&link.Refusal{Reason: link.ReasonNotANode, Message: "this key is no node's"})
	}
	beat := time.NewTicker(link.KeepaliveInterval)
	defer beat.Stop()
	for {
		p.mu.Lock()
		offer, changed, mute := p.offer, p.changed, p.mute
		p.mu.Unlock()
		offer.Time = p.now().UTC()
		if !mute {
			if err := stream.Send(&offer); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-beat.C:
		}
	}
}

func (p *fakePlane) fetch(ctx context.Context, r *connect.Request[link.FetchRequest]) (*connect.Response[link.FetchResponse], error) {
	if err := takes(ctx, p.slower); err != nil {
		return nil, err
	}
	_, key := caller(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note("fetch by %s", p.nodes[key])
	signed, ok := p.signed[r.Msg.Digest]
	if !ok {
		return nil, refuse(&link.Refusal{Reason: link.ReasonNotFound, Message: "no such declaration"})
	}
	return connect.NewResponse(&link.FetchResponse{Signed: signed}), nil
}

func (p *fakePlane) report(ctx context.Context, r *connect.Request[link.ReportRequest]) (*connect.Response[link.ReportResponse], error) {
	_, key := caller(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note("report by %s on %d/%d", p.nodes[key], r.Msg.Outcome.Epoch, r.Msg.Outcome.Generation)
	p.reports = append(p.reports, *r.Msg)
	return connect.NewResponse(&link.ReportResponse{Time: p.now().UTC()}), nil
}

// seal signs any payload as a declaration, from the documented form.
func (p *fakePlane) seal(payload string) (signed []byte, digest string) {
	signature := p.sign.Sign([]byte(payload), "mesh declaration 1")
	return fmt.Appendf(nil, "mesh signed declaration 1\n%s\n%s", hex.EncodeToString(signature), payload), declaration.Digest([]byte(payload))
}

// wire is a network of in-memory connections, for tests whose time is not real.
type wire struct {
	mu        sync.Mutex
	listeners map[string]*wireListener
	dials     int
}

func newWire() *wire { return &wire{listeners: map[string]*wireListener{}} }

func (w *wire) dial(ctx context.Context, _, address string) (net.Conn, error) {
	w.mu.Lock()
	l := w.listeners[address]
	w.dials++
	w.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("dial %s: connection refused", address)
	}
	client, server := net.Pipe()
	select {
	case l.accept <- server:
		return client, nil
	case <-l.closed:
		return nil, fmt.Errorf("dial %s: connection refused", address)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w *wire) listen(address string) net.Listener {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := &wireListener{wire: w, address: address, accept: make(chan net.Conn), closed: make(chan struct{})}
	w.listeners[address] = l
	return l
}

type wireListener struct {
	wire    *wire
	address string
	accept  chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (l *wireListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *wireListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.wire.mu.Lock()
		defer l.wire.mu.Unlock()
		if l.wire.listeners[l.address] == l {
			delete(l.wire.listeners, l.address)
		}
	})
	return nil
}

func (l *wireListener) Addr() net.Addr { return &net.TCPAddr{} }
