package main

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"mesh/host/agent"
	"mesh/host/identity"
	"mesh/host/inventory"
	"mesh/host/store"
	"mesh/host/system"
	"mesh/host/system/systemtest"
	"mesh/plane/planetest"
)

// machine is one with a real host on it, which changes things in memory only.
type machine struct {
	*systemtest.Machine
	t        *testing.T
	name     string
	identity folder
	runtime  folder
	plane    func() string // where the plane is now: one that is started anew has another port
	clock    time.Duration // how far the machine's is off
	log      *syncBuffer
}

func newMachine(t *testing.T, name string, plane func() string) *machine {
	t.Helper()
	m := &machine{
		Machine: systemtest.New(), t: t, name: name, plane: plane,
		identity: folder(t.TempDir()), runtime: folder(t.TempDir()), log: new(syncBuffer),
	}
	for _, dir := range []string{"/etc/nginx", "/etc/nginx/conf.d"} {
		m.Disk.Put(dir, systemtest.Thing{Type: system.TypeDirectory, Mode: 0o755})
	}
	m.OfferPackage("nginx", systemtest.Offer{
		Versions: []string{"1.0"}, Files: map[string]string{"/srv/nginx": "program\n"},
		Units: []systemtest.Unit{{Name: "nginx.service", Reads: []string{"/etc/nginx/conf.d/welcome.conf"}}},
	})
	return m
}

func (m *machine) facts() agent.Facts {
	return agent.Facts{
		Profile:   func() (inventory.Profile, error) { return planetest.Profile(), nil },
		Inventory: func() (inventory.Inventory, error) { return planetest.Inventory(m.name), nil },
	}
}

func (m *machine) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, m.plane())
}

func (m *machine) enrol(token identity.Token) {
	m.t.Helper()
	e := agent.Enrolment{Identity: m.identity, Facts: m.facts(), Random: rand.Reader, Now: time.Now, Dial: m.dial}
	if _, err := e.Run(m.t.Context(), token.Encode()); err != nil {
		m.t.Fatal(err)
	}
}

// up runs the host until it is told to stop.
func (m *machine) up() (stop func()) {
	now := func() time.Time { return time.Now().Add(m.clock) }
	log := slog.New(slog.NewTextHandler(m.log, nil))
	process := agent.Process{PID: 7, Start: 1}
	a := agent.New(agent.Config{
		Identity: m.identity, Runtime: m.runtime, Facts: m.facts(), Process: process, Dial: m.dial, Now: now, Log: log, Contents: m.Contents,
		Hand: &agent.Hand{
			Store:   store.Config{Directory: system.NewStateDirectory(m.Files, "/var/lib/mesh-host"), Now: now},
			Machine: m.Machine, Runtime: m.runtime, Process: process, Now: now, Log: log,
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			m.t.Error(err)
		}
	})
	m.t.Cleanup(stop)
	return stop
}

func (m *machine) member() bool {
	member, err := agent.ReadMembership(m.identity)
	if err != nil {
		m.t.Error(err)
	}
	return member != nil
}

// folder is a directory of the test; nobody else uses it.
type folder string

func (f folder) Read(name string) ([]byte, error) { return os.ReadFile(filepath.Join(string(f), name)) }
func (f folder) Replace(name string, data []byte) error {
	temporary := filepath.Join(string(f), "."+name)
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(string(f), name))
}
func (f folder) Remove(name string) error       { return os.RemoveAll(filepath.Join(string(f), name)) }
func (f folder) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// eventually looks again and again whether what others do is done.
func (p *plane) eventually(what string, done func() bool, log *syncBuffer) {
	p.t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for ctx := timeout(p.t); !done(); {
		select {
		case <-again.C:
		case <-ctx.Done():
			p.t.Fatalf("it does not happen: %s\nplane:\n%s\nhost:\n%s", what, p.log, log)
		}
	}
}

// TestCaseRetire brings a plane and a host together: a node is retired while it
// is away, comes back long after to a plane that was started anew, with a clock
// that says 1970, loses all that was made for it and is then no node; a machine
// that is cut before it takes that in, does so when it is up again.
func TestCaseRetire(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	p.enrol(timeout(t), "one")
	m := newMachine(t, "web", func() string { return p.address })
	m.Disk.Put("/srv/foreign", systemtest.Thing{Type: system.TypeFile, Mode: 0o644, Content: "not ours\n"})
	m.enrol(p.token("--name", "web", "--module", "welcome"))
	stop := m.up()
	p.eventually("the page is there", func() bool { return strings.Contains(p.ok("node", "list"), "5 in sync") }, m.log)
	stop()

	if code, _, stderr := command("node", "retire", "one", "--socket", p.config.Socket); code != 1 || !strings.Contains(stderr, `module "plane", of which exactly one must run`) {
		t.Errorf("the plane's own node: exit code %d, %s", code, stderr)
	}
	if got := p.ok("node", "retire", "web"); got != "node web is being retired: generation 2\n" {
		t.Errorf("%q", got)
	}
	p.stop()
	p = start(t, dir)
	if got := p.ok("node", "retire", "web"); got != "node web is being retired already: generation 2\n" {
		t.Errorf("%q", got)
	}
	if list, show := p.ok("node", "list"), p.ok("node", "show", "web"); !strings.Contains(list, ", retiring") || !strings.Contains(show, "retiring") {
		t.Errorf("it is not said:\n%s\n%s", list, show)
	}

	before, err := m.identity.Read("identity")
	if err != nil {
		t.Fatal(err)
	}
	m.clock = -time.Since(time.Unix(0, 0))
	stop = m.up()
	p.eventually("the node is gone at both ends", func() bool { return !m.member() && !strings.Contains(p.ok("node", "list"), "web") }, m.log)
	stop()
	disk := m.Disk.String()
	for _, gone := range []string{"/srv/welcome", "welcome.conf"} {
		if strings.Contains(disk, gone) {
			t.Errorf("%s is left", gone)
		}
	}
	if !strings.Contains(disk, "not ours") {
		t.Error("what is somebody else's is gone")
	}

	if err := m.identity.Replace("identity", before); err != nil { // as if it had been cut before it left
		t.Fatal(err)
	}
	defer m.up()()
	p.eventually("the machine that was cut leaves too", func() bool { return !m.member() }, m.log)
	if list := p.ok("node", "list"); strings.Contains(list, "web") {
		t.Errorf("it is a node again:\n%s", list)
	}
}
