package planetest

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"mesh/host/identity"
	"mesh/plane/config"
	"mesh/plane/declare"
	"mesh/plane/enrolment"
	"mesh/plane/gateway"
	"mesh/plane/module"
	"mesh/plane/registry"
	"mesh/plane/store"
)

// Plane is the parts of a plane that decide, over a store in a directory of the
// test. Its clock stands still until it is moved.
type Plane struct {
	Store      *store.Store
	Mesh       registry.Mesh
	Catalogue  module.Catalogue
	Declarer   *declare.Declarer
	Enrolments *enrolment.Service
	Links      *gateway.Links

	mu  sync.Mutex
	now time.Time
}

// Options change what New makes; the zero value is a mesh "test" with room for
// everybody.
type Options struct {
	Dir          string // of the store; empty means one of its own
	Overlay      config.Overlay
	PlaneMachine string
	PlaneConfig  string
	Modules      []module.Module // nil means all
	Log          *slog.Logger
}

// Overlay is the one that New takes by itself.
func Overlay() config.Overlay {
	return config.Overlay{IPv4: netip.MustParsePrefix("10.77.0.0/16"), IPv6: netip.MustParsePrefix("fd5e:8b6f:3a21::/48")}
}

// Running is the configuration of the plane that New makes in dir by itself.
func Running(dir string) config.Config {
	return config.Config{
		Mesh: "test", Listen: config.DefaultListen, Addresses: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:7443")},
		Overlay: Overlay(), Store: dir, Socket: config.DefaultSocket,
	}
}

// New makes the parts. They end with the test.
func New(t testing.TB, o Options) *Plane {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	if o.Overlay == (config.Overlay{}) {
		o.Overlay = Overlay()
	}
	if o.Modules == nil {
		o.Modules = module.All()
	}
	p := &Plane{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), Links: new(gateway.Links)}
	var err error
	if p.Store, err = store.Open(t.Context(), store.Config{Path: filepath.Join(o.Dir, "plane.db"), Committed: p.Links.Committed}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Store.Close(); err != nil {
			t.Error(err)
		}
	})
	if p.Mesh, err = p.Store.Mesh(t.Context(), NewMesh); err != nil {
		t.Fatal(err)
	}
	running := Running(o.Dir)
	running.Overlay = o.Overlay
	p.Catalogue = module.NewCatalogue(module.Facts{PlaneConfig: o.PlaneConfig}, o.Modules...)
	p.Declarer = declare.New(declare.Config{
		Mesh: p.Mesh, Catalogue: p.Catalogue, Running: running, PlaneMachine: o.PlaneMachine, Store: p.Store, Now: p.Now, Log: o.Log,
	})
	p.Enrolments = enrolment.New(enrolment.Config{
		Mesh: p.Mesh, Overlay: o.Overlay, Addresses: running.Addresses,
		PlaneMachine: o.PlaneMachine, Catalogue: p.Catalogue, Declarer: p.Declarer, Store: p.Store, Now: p.Now, Log: o.Log,
	})
	return p
}

// NewMesh makes a mesh called "test".
func NewMesh() (registry.Mesh, error) {
	link, err := identity.NewLinkKey(rand.Reader)
	if err != nil {
		return registry.Mesh{}, err
	}
	declaration, err := identity.NewDeclarationKey(rand.Reader)
	return registry.Mesh{Name: "test", Epoch: 1, LinkKey: link, DeclarationKey: declaration, CreatedAt: time.Unix(1, 0)}, err
}

// Now is the plane's clock.
func (p *Plane) Now() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// Advance moves the plane's clock.
func (p *Plane) Advance(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = p.now.Add(d)
}

// Token issues a token.
func (p *Plane) Token(t testing.TB, r enrolment.TokenRequest) identity.Token {
	t.Helper()
	token, err := p.Enrolments.Issue(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// Machine is a machine that asks to be enrolled, without a link.
type Machine struct {
	Key identity.NodeKey
	enrolment.Attempt
}

// NewMachine makes a machine called name with a key of its own.
func NewMachine(name string) Machine {
	key, err := identity.NewNodeKey(rand.Reader)
	if err != nil {
		panic(fmt.Sprintf("no randomness: %v", err))
	}
	return Machine{key, enrolment.Attempt{
		Key: key.Public(), Exporter: []byte("exporter of one connection"), Profile: Profile(), Inventory: Inventory(name),
	}}
}

// With is the attempt of m with token.
func (m Machine) With(token identity.Token) enrolment.Attempt {
	m.TokenID = token.IDText()
	m.Proof = identity.Proof(token.Secret, m.Exporter, m.Attempt.Key)
	return m.Attempt
}

// Enrol enrols a new machine called name.
func (p *Plane) Enrol(t testing.TB, name string, modules ...string) Machine {
	t.Helper()
	m := NewMachine(name)
	if _, err := p.Enrolments.Enrol(t.Context(), m.With(p.Token(t, enrolment.TokenRequest{Modules: modules}))); err != nil {
		t.Fatal(err)
	}
	return m
}

// View runs read on what is known, and changes nothing.
func (p *Plane) View(t testing.TB, read func(ctx context.Context, v registry.View) error) {
	t.Helper()
	err := p.Store.Update(t.Context(), func(ctx context.Context, v registry.View) (registry.Change, error) {
		return registry.Change{}, read(ctx, v)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Node reads one node.
func (p *Plane) Node(t testing.TB, name string) registry.Node {
	t.Helper()
	var n registry.Node
	p.View(t, func(ctx context.Context, v registry.View) (err error) {
		n, err = v.NodeNamed(ctx, name)
		return err
	})
	return n
}
