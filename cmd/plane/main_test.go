package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"mesh/cmd/internal/cli"
	"mesh/host/declaration"
	"mesh/host/identity"
	"mesh/host/link"
	"mesh/plane/config"
	"mesh/plane/module"
	"mesh/plane/planetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// command runs one command line in this process.
func command(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	s := cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}
	code = cli.Run(newRoot(s), s, args)
	return code, out.String(), errs.String()
}

// plane is a whole plane that runs, on loopback and in directories of the test.
type plane struct {
	t       *testing.T
	config  config.Config
	address string
	stop    func() // waits; idempotent
	log     *syncBuffer
}

// start runs a plane with its store in dir, and waits until it answers. change
// makes it another one.
func start(t *testing.T, dir string, change ...func(*program)) *plane {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sockets, err := os.MkdirTemp("", "plane") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	c := config.Config{
		Mesh: "home", Listen: config.DefaultListen, Addresses: []netip.AddrPort{netip.MustParseAddrPort(l.Addr().String())},
		Overlay: planetest.Overlay(), Store: dir, Socket: filepath.Join(sockets, "api.sock"),
	}
	p := &plane{t: t, config: c, address: l.Addr().String(), log: new(syncBuffer)}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	run := program{
		config: c, modules: module.All(), machineID: planetest.MachineID("one"), listener: l,
		log: slog.New(slog.NewTextHandler(p.log, nil)), ready: func() { close(ready) },
	}
	for _, f := range change {
		f(&run)
	}
	go func() { done <- run.run(ctx) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(p.stop)
	select {
	case <-ready:
	case err := <-done:
		done <- err
		t.Fatalf("the plane ended: %v", err)
	}
	return p
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// ok runs a command against the plane that has to succeed, and returns its
// standard output.
func (p *plane) ok(args ...string) string {
	p.t.Helper()
	code, stdout, stderr := command(append(args, "--socket", p.config.Socket)...)
	if code != 0 {
		p.t.Fatalf("%v: exit code %d: %s", args, code, stderr)
	}
	return stdout
}

func (p *plane) token(args ...string) identity.Token {
	p.t.Helper()
	line := p.ok(append([]string{"token", "issue"}, args...)...)
	token, err := identity.ParseToken(line)
	if err != nil {
		p.t.Fatalf("%v: %q", err, line)
	}
	return token
}

// enrol makes a node of a new machine, by what its token alone says.
func (p *plane) enrol(ctx context.Context, name string, args ...string) (*planetest.Host, *link.EnrolResponse) {
	p.t.Helper()
	token := p.token(args...)
	h := planetest.NewHost(p.t, name, token.Addresses[0].String(), token.Pins[0])
	granted, err := h.Enrol(ctx, token)
	if err != nil {
		p.t.Fatal(err)
	}
	return h, granted
}

func timeout(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// TestFirstNode walks the path of the first node and of a second one with the
// commands an operator gives: what the bundle raised and what the plane then
// declares for the same node are the same resources.
func TestFirstNode(t *testing.T) {
	p := start(t, t.TempDir())
	ctx := timeout(t)
	one, granted := p.enrol(ctx, "one")
	stream, err := one.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	digest := stream.Msg().Digest
	declared, err := one.Fetch(ctx, digest, granted.DeclarationKey)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "plane.yaml")
	if err := os.WriteFile(file, []byte(p.config.Render()), 0o644); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := command("bundle", "--config", file)
	if code != 0 {
		t.Fatal(stderr)
	}
	bundle, err := declaration.ParseBundle([]byte(stdout))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(bundle.Resources, declared.Resources); d != "" || len(bundle.Resources) == 0 {
		t.Errorf("the handover changes something: %s", d)
	}
	if err := one.Report(ctx, declared, digest); err != nil {
		t.Fatal(err)
	}

	two, _ := p.enrol(ctx, "two", "--name", "web", "--expires", "5m")
	streamTwo, err := two.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer streamTwo.Close()
	if !streamTwo.Receive() || streamTwo.Msg().Generation != 1 {
		t.Fatal(streamTwo.Msg(), streamTwo.Err())
	}
	if got := p.ok("assign", "web", "welcome"); got != "welcome assigned to web: generation 2\n" {
		t.Errorf("%q", got)
	}
	if !streamTwo.Receive() || streamTwo.Msg().Generation != 2 {
		t.Fatal(streamTwo.Msg(), streamTwo.Err())
	}
	list := p.ok("node", "list")
	for _, row := range []string{"one   connected  1.0.0  1         1             10.77.0.1,fd5e:8b6f:3a21::1  plane    3 in sync at ", "web   connected  1.0.0  2         -             10.77.0.2,fd5e:8b6f:3a21::2  welcome  -\n"} {
		if !strings.Contains(list, row) {
			t.Errorf("no row %q in\n%s", row, list)
		}
	}
	show := p.ok("node", "show", "one")
	for _, words := range []string{"state", "connected", "plane/config", "/etc/mesh-plane/plane.yaml", "in_sync", "198.51.100.7/24"} {
		if !strings.Contains(show, words) {
			t.Errorf("no %q in\n%s", words, show)
		}
	}
	_, err = planetest.Call[link.ReportRequest, link.ReportResponse](ctx, one, link.ProcedureReport, &link.ReportRequest{
		Inventory: one.Inventory, Refused: &link.Refused{Epoch: 1, Generation: 9, Reason: "the signature is not one of this mesh"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if list, show := p.ok("node", "list"), p.ok("node", "show", "one"); !strings.Contains(list, ", refuses generation 9") || !strings.Contains(show, "the signature is not one of this mesh") {
		t.Errorf("what is refused is not shown:\n%s\n%s", list, show)
	}
	if got := p.ok("module", "list"); !strings.Contains(got, "welcome  anywhere    any          web") || !strings.Contains(got, "host     everywhere  any          one,web") {
		t.Errorf("%s", got)
	}
	if got := p.ok("unassign", "web", "welcome"); got != "welcome taken from web: generation 3\n" {
		t.Errorf("%q", got)
	}
}

// TestCaseP9 redeems one token from 64 machines at once, removes the node and
// restarts the plane: one node was made, the token stays spent, and its secret
// is in nothing that was printed or logged.
func TestCaseP9(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	ctx := timeout(t)
	token := p.token()
	var hosts []*planetest.Host
	for i := range 64 {
		hosts = append(hosts, planetest.NewHost(t, fmt.Sprint("node-", i), p.address, token.Pins[0]))
	}
	errs := make([]error, len(hosts))
	var wg sync.WaitGroup
	for i, h := range hosts {
		wg.Go(func() { _, errs[i] = h.Enrol(ctx, token) })
	}
	wg.Wait()
	var admitted []string
	for i, err := range errs {
		var r *link.Refusal
		switch {
		case err == nil:
			admitted = append(admitted, hosts[i].Inventory.Hostname)
		case !errors.As(err, &r) || r.Reason != link.ReasonTokenSpent:
			t.Errorf("got %v, want it to be spent", err)
		}
	}
	if len(admitted) != 1 {
		t.Fatalf("%v were admitted", admitted)
	}
	printed := p.ok("node", "show", admitted[0], "--json") + p.ok("node", "remove", admitted[0])
	p.stop()
	printed += p.log.String()

	p = start(t, dir)
	late := planetest.NewHost(t, admitted[0], p.address, token.Pins[0])
	_, err := late.Enrol(ctx, token)
	var r *link.Refusal
	if !errors.As(err, &r) || r.Reason != link.ReasonTokenSpent {
		t.Errorf("got %v, want it to be spent still", err)
	}
	printed += p.log.String() + errors.Join(append(errs, err)...).Error()
	secret := token.Secret.SecretBytes()
	for _, form := range []string{string(secret[:]), fmt.Sprintf("%x", secret), token.Encode(), token.Encode()[len(token.Encode())/2:]} {
		if strings.Contains(printed, form) {
			t.Errorf("the secret is in what was printed or logged")
		}
	}
}

// TestRestart holds that a plane that is started again is the same one: same
// key, same generations, same bytes, and its nodes are back.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	ctx := timeout(t)
	_, granted := p.enrol(ctx, "web", "--module", "welcome")
	before := p.ok("node", "show", "web", "--json")
	p.stop()

	p = start(t, dir)
	if d := cmp.Diff(before, p.ok("node", "show", "web", "--json")); d != "" {
		t.Error(d)
	}
	token := p.token()
	again := planetest.NewHost(t, "web", p.address, token.Pins[0])
	if _, err := again.Enrol(ctx, token); err != nil {
		t.Fatal(err)
	}
	stream, err := again.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if !stream.Receive() || stream.Msg().Generation != 1 {
		t.Fatal(stream.Msg(), stream.Err())
	}
	if _, err := again.Fetch(ctx, stream.Msg().Digest, granted.DeclarationKey); err != nil {
		t.Errorf("signed by another key: %v", err)
	}
}

// A plane that is started with another configuration declares it to its node.
func TestRestartWithAnotherConfiguration(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	p.enrol(timeout(t), "one")
	p.stop()
	p = start(t, dir) // on another port, which its addresses name
	if got := p.ok("node", "list"); !strings.Contains(got, "Z  1.0.0  2         -") {
		t.Errorf("generation 2 is not declared:\n%s", got)
	}
}

// What is applied to a running plane is declared, and stays so when the plane is
// started with its old file.
func TestConfigApply(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	p.enrol(timeout(t), "one")
	next := p.config
	next.Listen = "127.0.0.1:7443"
	file := filepath.Join(t.TempDir(), "next.yaml")
	write := func() {
		if err := os.WriteFile(file, []byte(next.Render()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write()
	if got := p.ok("config", "apply", file); got != "configuration declared to one: generation 2; its host restarts the plane\n" {
		t.Errorf("%q", got)
	}
	if got := p.ok("config", "apply", file); got != "configuration declared to one already: generation 2\n" {
		t.Errorf("%q", got)
	}
	next.Listen = "192.0.2.99:7443"
	write()
	if code, _, stderr := command("config", "apply", file, "--socket", p.config.Socket); code != 2 || !strings.Contains(stderr, "could not listen on 192.0.2.99:7443") {
		t.Errorf("an address of another machine: %d %s", code, stderr)
	}
	next = p.config
	next.Mesh = "work"
	write()
	if code, _, stderr := command("config", "apply", file, "--socket", p.config.Socket); code != 2 || !strings.Contains(stderr, "a mesh keeps its name") {
		t.Errorf("another mesh: %d %s", code, stderr)
	}
	p.stop()
	p = start(t, dir)
	if got := p.ok("node", "list"); !strings.Contains(got, "Z  1.0.0  2         -") {
		t.Errorf("another generation than 2 is declared:\n%s", got)
	}
}

func TestRunRefuses(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	p.enrol(timeout(t), "web")
	p.stop()
	for name, tt := range map[string]struct {
		change func(*config.Config)
		says   string
		code   int
	}{
		"another mesh":          {func(c *config.Config) { c.Mesh = "work" }, `mesh "work", and its store`, 2},
		"another range":         {func(c *config.Config) { c.Overlay.IPv4 = netip.MustParsePrefix("10.78.0.0/16") }, "10.77.0.1, which is in no range", 2},
		"a port that is in use": {func(c *config.Config) { c.Listen = occupied(t) }, "something else may have the port", 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := p.config
			tt.change(&c)
			err := program{config: c, log: slog.New(slog.NewTextHandler(io.Discard, nil))}.run(timeout(t))
			if err == nil || !strings.Contains(err.Error(), tt.says) || cli.Code(err) != tt.code {
				t.Errorf("got %v with exit code %d, want %q with %d", err, cli.Code(err), tt.says, tt.code)
			}
		})
	}
}

// occupied is an address that somebody listens on.
func occupied(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// The commented reference is read as strictly as any other file, and names
// every key that is rendered.
func TestTheReferenceIsAConfiguration(t *testing.T) {
	c, err := loadConfig("package/plane.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("package/plane.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(c.Render()) {
		if key, _, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(key, "#") && !strings.HasPrefix(key, "  -") && !strings.Contains(string(text), "\n"+key+":") {
			t.Errorf("it does not name %q", key)
		}
	}
}

// The scenario that is shipped raises its plane from what this plane makes.
func TestTheBundleOfTheScenario(t *testing.T) {
	want, err := os.ReadFile("../../scenarios/first-node/bundle.json")
	if err != nil {
		t.Fatal(err)
	}
	code, got, stderr := command("bundle", "--config", "../../scenarios/first-node/plane.yaml")
	if code != 0 {
		t.Fatal(stderr)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("made anew by `mesh-plane bundle --config scenarios/first-node/plane.yaml`: %s", d)
	}
}

func TestCommandLine(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "plane.yaml")
	if err := os.WriteFile(bad, []byte("mesh: home\nadresses: []\noverlay: {ipv4: 10.77.0.0/16}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(dir, "none")
	for _, tt := range []struct {
		args   string
		code   int
		stdout string // is in it; "" means it is empty
		stderr string
	}{
		{"--help", 0, "Available Commands", ""},
		{"--version", 0, "mesh-plane version", ""},
		{"nod list", 2, "", "unknown command"},
		{"node", 2, "", "node wants one of its commands"},
		{"node lst", 2, "", "mesh-plane node"},
		{"node list x", 2, "", "usage: mesh-plane node list"},
		{"node list --jsno", 2, "", "unknown flag"},
		{"node show", 2, "", "usage: mesh-plane node show NODE"},
		{"node retire", 2, "", "usage: mesh-plane node retire NODE"},
		{"node retire web --socket " + none, 4, "", "a plane has to run on this machine"},
		{"assign web", 2, "", "usage: mesh-plane assign NODE MODULE"},
		{"token issue --expires 10", 2, "", "--expires"},
		{"token issue --expires -1h", 2, "", "wanted whole seconds"},
		{"node list --socket " + none, 4, "", "a plane has to run on this machine"},
		{"host set", 2, "", "usage: mesh-plane host set FILE"},
		{"host set " + none, 2, "", "name the .deb of mesh-host that nodes shall have"},
		{"host set package/plane.yaml --digest 00", 2, "", "get it again"},
		{"host set package/plane.yaml --socket " + none, 4, "", "a plane has to run on this machine"},
		{"config check package/plane.yaml", 0, "package/plane.yaml: no problems\n", ""},
		{"config check --json package/plane.yaml", 0, `"problems": []`, ""},
		{"config check " + bad, 2, "", `plane.yaml:2:1: unknown key "adresses"; did you mean "addresses"?`},
		{"config check --json " + bad, 2, `"line": 2,`, ""},
		{"config check " + none, 2, "", "no such file"},
		{"config apply " + bad, 2, "", `did you mean "addresses"?`},
		{"config apply package/plane.yaml --socket " + none, 4, "", "a plane has to run on this machine"},
		{"bundle --config " + bad, 2, "", `key "addresses" is missing`},
		{"bundle --config " + none, 2, "", "name one with --config"},
		{"run --config " + bad, 2, "", `key "addresses" is missing`},
	} {
		code, stdout, stderr := command(strings.Fields(tt.args)...)
		if code != tt.code || !strings.Contains(stdout, tt.stdout) || tt.stdout == "" && stdout != "" || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("mesh-plane %s: exit code %d, want %d\nstdout: %s\nstderr: %s", tt.args, code, tt.code, stdout, stderr)
		}
	}
}
