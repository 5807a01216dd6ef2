// Package planetest has what tests of the plane share: the parts of a plane
// over a store of its own, and a small host that speaks the link. Only tests
// import it.
package planetest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"mesh/host/declaration"
	"mesh/host/identity"
	"mesh/host/inventory"
	"mesh/host/link"
)

// Host is a machine that speaks the link by the contract alone. It checks the
// plane's pin and keeps one connection.
type Host struct {
	Key       identity.NodeKey
	Profile   inventory.Profile
	Inventory inventory.Inventory

	address string
	pin     identity.Pin
	http    *http.Client

	mu    sync.Mutex
	state tls.ConnectionState // of the newest connection
	dials int
}

// MachineID makes the machine-id of a machine called name.
func MachineID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

// Profile is that of a machine that can run everything.
func Profile() inventory.Profile {
	p := inventory.Profile{
		HostVersion: "1.0.0", Formats: declaration.Formats(),
		OS: "debian", OSVersion: "12", Architecture: "amd64", Kernel: "6.1.0", Systemd: true,
		Capabilities: []string{inventory.CapabilityContainers},
	}
	for _, k := range declaration.Kinds() {
		p.Kinds = append(p.Kinds, string(k))
	}
	return p
}

// Inventory is that of a machine called name with one network.
func Inventory(name string) inventory.Inventory {
	return inventory.Inventory{
		MachineID: MachineID(name), Hostname: name, CPUs: 2, MemoryBytes: 1 << 30,
		Interfaces: []inventory.Interface{{Name: "eth0", Addresses: []netip.Prefix{netip.MustParsePrefix("198.51.100.7/24")}}},
	}
}

// NewHost makes a machine called name that knows the plane at address by pin.
// Its connection ends with the test.
func NewHost(t testing.TB, name, address string, pin identity.Pin) *Host {
	t.Helper()
	key, err := identity.NewNodeKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return newHost(t, name, address, pin, key)
}

// Again is the same machine, with a connection of its own.
func (h *Host) Again(t testing.TB) *Host {
	t.Helper()
	return newHost(t, h.Inventory.Hostname, h.address, h.pin, h.Key)
}

func newHost(t testing.TB, name, address string, pin identity.Pin, key identity.NodeKey) *Host {
	t.Helper()
	certificate, err := key.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	h := &Host{Key: key, Profile: Profile(), Inventory: Inventory(name), address: address, pin: pin}
	config := &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
		Certificates:       []tls.Certificate{certificate},
		InsecureSkipVerify: true, // the pin is what proves the plane
		VerifyConnection: func(s tls.ConnectionState) error {
			if identity.PinOf(s.PeerCertificates[0]) != pin {
				return errors.New("this is not the plane of the token")
			}
			return nil
		},
	}
	transport := &http.Transport{ForceAttemptHTTP2: true, DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, network, addr)
		if err == nil {
			h.mu.Lock()
			h.state = conn.(*tls.Conn).ConnectionState()
			h.dials++
			h.mu.Unlock()
		}
		return conn, err
	}}
	h.http = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	return h
}

// HTTP is the client of the host's connection.
func (h *Host) HTTP() *http.Client { return h.http }

// Dials is how many connections it has made.
func (h *Host) Dials() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dials
}

// URL is where a procedure is called.
func (h *Host) URL(procedure string) string { return "https://" + h.address + procedure }

// Enrol spends token. An error of the plane is a *link.Refusal.
func (h *Host) Enrol(ctx context.Context, token identity.Token) (*link.EnrolResponse, error) {
	exporter, err := h.exporter(ctx)
	if err != nil {
		return nil, err
	}
	return Call[link.EnrolRequest, link.EnrolResponse](ctx, h, link.ProcedureEnrol, &link.EnrolRequest{
		Protocol: link.Protocol, TokenID: token.IDText(),
		Proof:   identity.Proof(token.Secret, exporter, h.Key.Public()),
		Profile: h.Profile, Inventory: h.Inventory,
	})
}

// exporter connects, if need be, and exports the value that a proof covers.
func (h *Host) exporter(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL("/"), nil)
	if err != nil {
		return nil, err
	}
	res, err := h.http.Do(req)
	if err != nil {
		return nil, err
	}
	res.Body.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state.ExportKeyingMaterial(link.ExporterLabel, nil, 32)
}

// Watch opens the link. The caller closes the stream, or ends ctx.
func (h *Host) Watch(ctx context.Context) (*connect.ServerStreamForClient[link.Offer], error) {
	client := connect.NewClient[link.WatchRequest, link.Offer](h.http, h.URL(link.ProcedureWatch), connect.WithCodec(link.Codec{}))
	return client.CallServerStream(ctx, connect.NewRequest(&link.WatchRequest{Protocol: link.Protocol, Profile: h.Profile}))
}

// Fetch gets a declaration and opens it with the key of its mesh.
func (h *Host) Fetch(ctx context.Context, digest, declarationKey string) (declaration.Declaration, error) {
	key, err := identity.ParseDeclarationPublicKey(declarationKey)
	if err != nil {
		return declaration.Declaration{}, err
	}
	res, err := Call[link.FetchRequest, link.FetchResponse](ctx, h, link.ProcedureFetch, &link.FetchRequest{Digest: digest})
	if err != nil {
		return declaration.Declaration{}, err
	}
	d, got, err := declaration.Open(res.Signed, key)
	if err == nil && got != digest {
		err = fmt.Errorf("asked for %s, got %s", digest, got)
	}
	return d, err
}

// Report says that every resource of d is as it shall be.
func (h *Host) Report(ctx context.Context, d declaration.Declaration, digest string) error {
	outcome := declaration.Outcome{Epoch: d.Epoch, Generation: d.Generation, Digest: digest, Results: []declaration.Result{}}
	for _, r := range d.Resources {
		outcome.Results = append(outcome.Results, declaration.Result{ID: r.ID, Kind: r.Kind(), Where: r.Where(), Status: declaration.StatusInSync})
	}
	_, err := Call[link.ReportRequest, link.ReportResponse](ctx, h, link.ProcedureReport, &link.ReportRequest{Outcome: outcome, Inventory: h.Inventory})
	return err
}

// Call calls one procedure. An error of the plane is a *link.Refusal.
func Call[Req, Res any](ctx context.Context, h *Host, procedure string, req *Req) (*Res, error) {
	client := connect.NewClient[Req, Res](h.http, h.URL(procedure), connect.WithCodec(link.Codec{}))
	res, err := client.CallUnary(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, Refusal(err)
	}
	return res.Msg, nil
}

// Refusal finds what the plane said in an error of a call; any other error
// comes back as it is.
func Refusal(err error) error {
	var told *connect.Error
	if errors.As(err, &told) && told.Meta().Get(link.ReasonHeader) != "" {
		return &link.Refusal{Reason: link.Reason(told.Meta().Get(link.ReasonHeader)), Message: told.Message()}
	}
	return err
}
