package gateway_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"mesh/host/declaration"
	"mesh/host/identity"
	"mesh/host/link"
	"mesh/plane/config"
	"mesh/plane/enrolment"
	"mesh/plane/gateway"
	"mesh/plane/module"
	"mesh/plane/planetest"
	"mesh/plane/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is a gateway on loopback in front of a plane's parts.
type running struct {
	*planetest.Plane
	t       testing.TB
	address string
	stop    func() // idempotent
}

func start(t testing.TB, o planetest.Options, change ...func(*gateway.Config)) *running {
	t.Helper()
	p := planetest.New(t, o)
	c := gateway.Config{Mesh: p.Mesh, Enroller: p.Enrolments, Nodes: p.Store, Observations: p.Store, Contents: p.Store, Links: p.Links, Now: p.Now}
	for _, f := range change {
		f(&c)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	g := gateway.New(c)
	go func() { done <- g.Run(ctx, l) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return &running{p, t, l.Addr().String(), stop}
}

func (r *running) host(name string) *planetest.Host {
	return planetest.NewHost(r.t, name, r.address, r.Mesh.LinkKey.Pin())
}

// enrolled is a host that is a node.
func (r *running) enrolled(ctx context.Context, name string, modules ...string) *planetest.Host {
	r.t.Helper()
	h := r.host(name)
	if _, err := h.Enrol(ctx, r.Token(r.t, enrolment.TokenRequest{Modules: modules})); err != nil {
		r.t.Fatal(err)
	}
	return h
}

// watching is a link that is up, with its first offer.
func watching(t testing.TB, ctx context.Context, h *planetest.Host) (*connect.ServerStreamForClient[link.Offer], link.Offer) {
	t.Helper()
	s, err := h.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !s.Receive() {
		t.Fatalf("no first offer: %v", s.Err())
	}
	return s, *s.Msg()
}

func timeout(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func reason(t testing.TB, err error, want link.Reason) {
	t.Helper()
	var r *link.Refusal
	if !errors.As(planetest.Refusal(err), &r) || r.Reason != want {
		t.Errorf("got %v, want a refusal because of %s", err, want)
	}
}

// TestLink walks the whole path of a node: enrol, watch, fetch, report, and a
// new generation while the link is up.
func TestLink(t *testing.T) {
	r := start(t, planetest.Options{})
	ctx := timeout(t)
	h := r.host("web")
	granted, err := h.Enrol(ctx, r.Token(t, enrolment.TokenRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	want := &link.EnrolResponse{
		Protocol: link.Protocol, Mesh: "test", Node: "web", Addresses: []string{"10.77.0.1", "fd5e:8b6f:3a21::1"},
		DeclarationKey: r.Mesh.DeclarationKey.Public().String(), Epoch: 1, Time: r.Now(),
	}
	if d := cmp.Diff(want, granted); d != "" {
		t.Error(d)
	}

	stream, offer := watching(t, ctx, h)
	defer stream.Close()
	if _, up := r.Links.Since(h.Key.Public()); !up || offer.Generation != 1 || offer.Epoch != 1 || !offer.Time.Equal(r.Now()) {
		t.Errorf("link up: %v, first offer %+v", up, offer)
	}
	if _, err := r.Declarer.Assign(ctx, "web", "welcome"); err != nil {
		t.Fatal(err)
	}
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	offer = *stream.Msg()
	d, err := h.Fetch(ctx, offer.Digest, granted.DeclarationKey)
	if err != nil {
		t.Fatal(err)
	}
	if d.Generation != 2 || d.Node != "web" || len(d.Resources) != 5 {
		t.Errorf("got %+v", d)
	}
	if err := h.Report(ctx, d, offer.Digest); err != nil {
		t.Fatal(err)
	}
	all, err := r.Store.Standings(ctx)
	if err != nil {
		t.Fatal(err)
	}
	acknowledged := registry.Acknowledged{At: r.Now(), Epoch: 1, Generation: 2, Digest: offer.Digest, Counts: registry.Counts{InSync: 5}}
	if d := cmp.Diff(acknowledged, all[0].Acknowledged); d != "" {
		t.Error(d)
	}
}

// TestANodeIsRetiredOverTheLink: the link that is up hears of it, and once the
// end is reported the node is none any more; its report is answered all the same.
func TestANodeIsRetiredOverTheLink(t *testing.T) {
	r := start(t, planetest.Options{})
	ctx := timeout(t)
	h := r.enrolled(ctx, "web", "welcome")
	stream, _ := watching(t, ctx, h)
	defer stream.Close()
	if _, err := r.Enrolments.Retire(ctx, "web"); err != nil {
		t.Fatal(err)
	}
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	offer := *stream.Msg()
	d, err := h.Fetch(ctx, offer.Digest, r.Mesh.DeclarationKey.Public().String())
	if err != nil || !d.Final || offer.Generation != 2 {
		t.Fatalf("%+v %+v %v", offer, d, err)
	}
	if err := h.Report(ctx, d, offer.Digest); err != nil {
		t.Fatalf("the report that ends it: %v", err)
	}
	for stream.Receive() {
	}
	reason(t, stream.Err(), link.ReasonNotANode)
	reason(t, h.Report(ctx, d, offer.Digest), link.ReasonNotANode)
}

func TestOffersRepeatAsASignOfLife(t *testing.T) {
	r := start(t, planetest.Options{}, func(c *gateway.Config) { c.Keepalive = time.Millisecond })
	ctx := timeout(t)
	stream, first := watching(t, ctx, r.enrolled(ctx, "web"))
	defer stream.Close()
	for range 3 {
		if !stream.Receive() {
			t.Fatal(stream.Err())
		}
		if d := cmp.Diff(first, *stream.Msg()); d != "" {
			t.Error(d)
		}
	}
}

func TestALinkEndsWithItsKey(t *testing.T) {
	r := start(t, planetest.Options{})
	ctx := timeout(t)
	h := r.enrolled(ctx, "web")
	stream, offer := watching(t, ctx, h)
	defer stream.Close()
	if err := r.Enrolments.Remove(ctx, "web"); err != nil {
		t.Fatal(err)
	}
	if stream.Receive() {
		t.Fatal("another offer came")
	}
	reason(t, stream.Err(), link.ReasonNotANode)
	_, err := h.Fetch(ctx, offer.Digest, r.Mesh.DeclarationKey.Public().String())
	reason(t, err, link.ReasonNotANode)

	// So does that of a machine that enrolled again elsewhere.
	old := r.enrolled(ctx, "db")
	stream2, _ := watching(t, ctx, old)
	defer stream2.Close()
	r.enrolled(ctx, "db")
	if stream2.Receive() {
		t.Fatal("another offer came")
	}
	reason(t, stream2.Err(), link.ReasonNotANode)
}

func TestANodeHasOneLink(t *testing.T) {
	r := start(t, planetest.Options{})
	ctx := timeout(t)
	h := r.enrolled(ctx, "web")
	older, _ := watching(t, ctx, h)
	defer older.Close()
	newer, _ := watching(t, ctx, h)
	defer newer.Close()
	if older.Receive() || connect.CodeOf(older.Err()) != connect.CodeAborted {
		t.Errorf("the older link: %v", older.Err())
	}
	if _, err := r.Declarer.Assign(ctx, "web", "welcome"); err != nil {
		t.Fatal(err)
	}
	if !newer.Receive() || newer.Msg().Generation != 2 {
		t.Errorf("the newer link: %v %v", newer.Msg(), newer.Err())
	}
}

func TestALinkThatGoesDownIsKept(t *testing.T) {
	r := start(t, planetest.Options{})
	ctx := timeout(t)
	h := r.enrolled(ctx, "web")
	link, cancel := context.WithCancel(ctx)
	watching(t, link, h)
	r.Advance(time.Hour)
	cancel()
	waitFor(t, func() bool { _, up := r.Links.Since(h.Key.Public()); return !up })
	r.stop() // waits for what is being kept
	all, err := r.Store.Standings(ctx)
	if err != nil || !all[0].SeenAt.Equal(r.Now()) {
		t.Errorf("seen at %v, want %v: %v", all[0].SeenAt, r.Now(), err)
	}
}

// waitFor polls for what is done by a goroutine of the server that a client has
// no other sign of.
func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	for ctx := timeout(t); !done(); runtime.Gosched() {
		if ctx.Err() != nil {
			t.Fatal("it does not happen")
		}
	}
}

func TestStoppingEndsLinks(t *testing.T) {
	r := start(t, planetest.Options{})
	ctx := timeout(t)
	stream, _ := watching(t, ctx, r.enrolled(ctx, "web"))
	defer stream.Close()
	go r.stop()
	if stream.Receive() {
		t.Fatal("another offer came")
	}
	reason(t, stream.Err(), link.ReasonUnavailable)
	r.stop()
}

func TestAProfileThatChangedIsKept(t *testing.T) {
	r := start(t, planetest.Options{})
	ctx := timeout(t)
	h := r.enrolled(ctx, "web")
	h.Profile.HostVersion = "2.0.0"
	stream, _ := watching(t, ctx, h)
	defer stream.Close()
	if got := r.Node(t, "web").Profile.HostVersion; got != "2.0.0" {
		t.Errorf("got %q", got)
	}
}

// troubled cannot tell who calls.
type troubled struct{}

func (troubled) Linked(context.Context, identity.NodePublicKey) (registry.Linked, error) {
	return registry.Linked{}, errors.New("database is locked")
}
func (troubled) Signed(context.Context, identity.NodePublicKey, string) ([]byte, error) {
	return []byte("not for strangers"), nil
}

// TestCaseP3 holds that a plane that cannot read answers that it cannot: never
// with an offer, and never with what went wrong inside.
func TestCaseP3TroubleIsNotAnAnswer(t *testing.T) {
	r := start(t, planetest.Options{}, func(c *gateway.Config) { c.Nodes = troubled{} })
	ctx := timeout(t)
	h := r.host("web")
	stream, err := h.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if stream.Receive() {
		t.Fatalf("an offer: %+v", stream.Msg())
	}
	reason(t, stream.Err(), link.ReasonUnavailable)
	if strings.Contains(stream.Err().Error(), "locked") {
		t.Errorf("tells what went wrong inside: %v", stream.Err())
	}
	_, err = h.Fetch(ctx, "x", r.Mesh.DeclarationKey.Public().String())
	reason(t, err, link.ReasonUnavailable)
}

func TestStrangersMayOnlyEnrol(t *testing.T) {
	r := start(t, planetest.Options{})
	ctx := timeout(t)
	h := r.host("web")
	stream, err := h.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if stream.Receive() {
		t.Fatal("an offer for a stranger")
	}
	reason(t, stream.Err(), link.ReasonNotANode)
	_, err = h.Fetch(ctx, "x", r.Mesh.DeclarationKey.Public().String())
	reason(t, err, link.ReasonNotANode)
	reason(t, h.Report(ctx, declaration.Declaration{}, "x"), link.ReasonNotANode)
	_, err = h.Enrol(ctx, identity.Token{ID: [8]byte{1}})
	reason(t, err, link.ReasonTokenUnknown)
}

func TestTheLinkTakesNothingElse(t *testing.T) {
	r := start(t, planetest.Options{})
	ctx := timeout(t)
	if _, err := planetest.NewHost(t, "web", r.address, identity.Pin{}).Enrol(ctx, identity.Token{}); err == nil {
		t.Error("a host takes a plane with another pin")
	}
	res, err := http.Get("http://" + r.address + "/")
	if err == nil {
		res.Body.Close()
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("plain text is answered with %s", res.Status)
		}
	}
	h := r.enrolled(ctx, "web")
	for name, tt := range map[string]struct {
		change func(*link.ReportRequest)
		reason link.Reason
	}{
		"a generation beyond numbers": {func(r *link.ReportRequest) { r.Outcome.Generation = 1 << 63 }, link.ReasonMalformed},
		"another machine":             {func(r *link.ReportRequest) { r.Inventory.MachineID = planetest.MachineID("copy") }, link.ReasonKeyKnown},
		"terminal controls":           {func(r *link.ReportRequest) { r.Inventory.Hostname = "web\x1b[2J" }, link.ReasonMalformed},
	} {
		req := &link.ReportRequest{Inventory: h.Inventory}
		tt.change(req)
		_, err := planetest.Call[link.ReportRequest, link.ReportResponse](ctx, h, link.ProcedureReport, req)
		if err == nil {
			t.Errorf("%s: taken", name)
		}
		reason(t, err, tt.reason)
	}
	old := r.host("old")
	_, err = planetest.Call[link.EnrolRequest, link.EnrolResponse](ctx, old, link.ProcedureEnrol, &link.EnrolRequest{Protocol: 0})
	reason(t, err, link.ReasonTooOld)
}

// Nobody gets as far as a request without a key that could be a node's.
func TestOnlyNodeKeysConnect(t *testing.T) {
	r := start(t, planetest.Options{})
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, other.Public(), other)
	if err != nil {
		t.Fatal(err)
	}
	key, err := identity.NewNodeKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	node, err := key.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		config *tls.Config
		ok     bool
	}{
		"a node's key":   {&tls.Config{Certificates: []tls.Certificate{node}}, true},
		"no certificate": {&tls.Config{}, false},
		"an ECDSA key":   {&tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: other}}}, false},
		"TLS 1.2":        {&tls.Config{Certificates: []tls.Certificate{node}, MaxVersion: tls.VersionTLS12}, false},
		"another's leaf": {&tls.Config{Certificates: []tls.Certificate{{Certificate: node.Certificate, PrivateKey: other}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			tt.config.InsecureSkipVerify, tt.config.NextProtos = true, []string{"h2"}
			conn, err := tls.Dial("tcp", r.address, tt.config)
			if err == nil {
				// The server's refusal arrives after the client's handshake; its
				// greeting (SETTINGS) arrives only where there was none.
				_, err = io.ReadFull(conn, make([]byte, 9))
				conn.Close()
			}
			if (err == nil) != tt.ok {
				t.Errorf("got %v, want a connection: %v", err, tt.ok)
			}
		})
	}
}

func TestTextOfAMachineIsMadePlain(t *testing.T) {
	r := start(t, planetest.Options{})
	ctx := timeout(t)
	h := r.enrolled(ctx, "web")
	_, err := planetest.Call[link.ReportRequest, link.ReportResponse](ctx, h, link.ProcedureReport, &link.ReportRequest{
		Inventory: h.Inventory,
		Outcome:   declaration.Outcome{Results: []declaration.Result{{ID: "a/b", Status: declaration.StatusFailed, Reason: "dpkg:\t\x1b[31mno\nspace"}}},
		Refused:   &link.Refused{Epoch: 1, Generation: 3, Digest: "d\x00", Reason: "not\nsigned"},
	})
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.Store.Detail(ctx, "web")
	if err != nil || d.Results[0].Reason != "dpkg:  [31mno space" {
		t.Errorf("%q %v", d.Results, err)
	}
	if diff := cmp.Diff(&link.Refused{Epoch: 1, Generation: 3, Digest: "d ", Reason: "not signed"}, d.Refused); diff != "" {
		t.Error(diff)
	}
	_, err = planetest.Call[link.ReportRequest, link.ReportResponse](ctx, h, link.ProcedureReport, &link.ReportRequest{
		Inventory: h.Inventory, Refused: &link.Refused{Generation: 1 << 60},
	})
	var refusal *link.Refusal
	if !errors.As(err, &refusal) || refusal.Reason != link.ReasonMalformed {
		t.Errorf("a generation no plane ever gave: %v", err)
	}
}

func TestStrangersAreMetered(t *testing.T) {
	r := start(t, planetest.Options{}, func(c *gateway.Config) { c.Limits.Burst = 3; c.Limits.PerSecond = 1 })
	ctx := timeout(t)
	h := r.host("web")
	ask := func() error { _, err := h.Enrol(ctx, identity.Token{}); return err }
	for range 3 {
		reason(t, ask(), link.ReasonTokenUnknown)
	}
	reason(t, ask(), link.ReasonBusy)
	r.Advance(time.Second)
	reason(t, ask(), link.ReasonTokenUnknown)
	reason(t, ask(), link.ReasonBusy)
}

// TestCaseP1OverTheLink has 200 machines enrol over TLS at once.
func TestCaseP1OverTheLink(t *testing.T) {
	r := start(t, planetest.Options{Overlay: config.Overlay{IPv4: netip.MustParsePrefix("10.77.0.0/24")}})
	ctx := timeout(t)
	var mu sync.Mutex
	held := map[string]string{}
	var wg sync.WaitGroup
	for i := range 200 {
		h := r.host(fmt.Sprint("node-", i))
		token := r.Token(t, enrolment.TokenRequest{})
		wg.Go(func() {
			granted, err := h.Enrol(ctx, token)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if other, twice := held[granted.Addresses[0]]; twice {
				t.Errorf("%s and %s both have %s", other, granted.Node, granted.Addresses[0])
			}
			held[granted.Addresses[0]] = granted.Node
		})
	}
	wg.Wait()
	all, err := r.Store.Standings(ctx)
	if err != nil || len(all) != 200 || len(held) != 200 {
		t.Errorf("%d nodes with %d addresses: %v", len(all), len(held), err)
	}
}

// long is a module whose file is too long for a declaration.
func long(content string) module.Module {
	return module.Module{Name: "big", Presence: module.Anywhere, Instantiation: module.Any, Resources: func(module.Facts) []declaration.Resource {
		return []declaration.Resource{{ID: "big/file", File: &declaration.File{Path: "/etc/big", Content: content}}}
	}}
}

// TestContentIsGivenInParts, to nodes whose declaration names it, and for as long
// as it does.
func TestContentIsGivenInParts(t *testing.T) {
	content := strings.Repeat("0123456789abcdef", link.MaxBlobPart/16+1)
	r := start(t, planetest.Options{Modules: []module.Module{long(content)}})
	ctx := timeout(t)
	h, other := r.enrolled(ctx, "web"), r.enrolled(ctx, "db")
	ask := func(h *planetest.Host, offset int64) (*link.BlobResponse, error) {
		return planetest.Call[link.BlobRequest, link.BlobResponse](ctx, h, link.ProcedureBlob, &link.BlobRequest{Digest: declaration.Digest([]byte(content)), Offset: offset})
	}
	_, err := ask(h, 0)
	reason(t, err, link.ReasonNotFound)
	if _, err := r.Declarer.Assign(ctx, "web", "big"); err != nil {
		t.Fatal(err)
	}
	for offset, want := range map[int64]int{0: link.MaxBlobPart, link.MaxBlobPart: 16, link.MaxBlobPart + 10: 6, link.MaxBlobPart + 16: 0, 1 << 60: 0} {
		part, err := ask(h, offset)
		if err != nil || len(part.Data) != want || want > 0 && string(part.Data) != content[offset:][:want] {
			t.Errorf("from %d: %d bytes, %v", offset, len(part.Data), err)
		}
	}
	_, err = ask(h, -1)
	reason(t, err, link.ReasonMalformed)
	_, err = ask(other, 0)
	reason(t, err, link.ReasonNotFound)

	if _, err := r.Declarer.Unassign(ctx, "web", "big"); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(h, 0); err != nil {
		t.Errorf("the generation before may be what it holds still: %v", err)
	}
	if err := r.Enrolments.Remove(ctx, "web"); err != nil {
		t.Fatal(err)
	}
	_, err = ask(h, 0)
	reason(t, err, link.ReasonNotANode)
}
