package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"mesh/host/declaration"
	"mesh/host/identity"
	"mesh/host/link"
	"mesh/plane/api"
	"mesh/plane/planetest"
	"mesh/plane/registry"
)

var update = flag.Bool("update", false, "write the goldens anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers operators of a new plane, and returns a client of it.
func serve(t *testing.T, o planetest.Options) (*planetest.Plane, *api.Client) {
	t.Helper()
	p := planetest.New(t, o)
	socket := filepath.Join(t.TempDir(), "run", "api.sock")
	l, err := api.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	s := api.NewServer(api.Config{Enrolment: p.Enrolments, Assigner: p.Declarer, Configurer: p.Declarer, HostSetter: p.Declarer, Reader: p.Store, Links: p.Links, Catalogue: p.Catalogue})
	go func() { done <- s.Run(ctx, l) }()
	c := api.NewClient(socket)
	t.Cleanup(func() {
		c.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return p, c
}

func TestOperator(t *testing.T) {
	p, c := serve(t, planetest.Options{PlaneMachine: planetest.MachineID("one")})
	ctx := t.Context()
	issued, err := c.IssueToken(ctx, api.TokenRequest{Node: "web", Modules: []string{"welcome"}, LifetimeSeconds: 60})
	if err != nil {
		t.Fatal(err)
	}
	token, err := identity.ParseToken(string(issued.Token))
	if err != nil || token.IDText() != issued.ID || !issued.ExpiresAt.Equal(p.Now().Add(time.Minute)) {
		t.Fatalf("%v %+v", err, issued)
	}
	if _, err := p.Enrolments.Enrol(ctx, planetest.NewMachine("x").With(token)); err != nil {
		t.Fatal(err)
	}
	p.Enrol(t, "one")
	assigned, err := c.Assign(ctx, api.AssignRequest{Node: "one", Module: "welcome"})
	if d := cmp.Diff(&api.AssignResponse{Node: "one", Module: "welcome", Changed: true, Generation: 2}, assigned); err != nil || d != "" {
		t.Error(err, d)
	}
	modules, err := c.Modules(ctx)
	if err != nil || len(modules.Modules) != 3 || !cmp.Equal(modules.Modules[2].Nodes, []string{"one", "web"}) || !cmp.Equal(modules.Modules[0].Nodes, []string{"one", "web"}) {
		t.Errorf("%v %+v", err, modules)
	}
	if err := c.RemoveNode(ctx, "web"); err != nil {
		t.Error(err)
	}
	nodes, err := c.Nodes(ctx)
	if err != nil || len(nodes.Nodes) != 1 || nodes.Nodes[0].State != api.Disconnected {
		t.Errorf("%v %+v", err, nodes)
	}
}

// Every answer has a golden, because --json prints it.
func TestAnswersAreWhatTheyWere(t *testing.T) {
	dir := t.TempDir()
	p, c := serve(t, planetest.Options{Dir: dir, PlaneMachine: planetest.MachineID("one")})
	ctx := t.Context()
	p.Enrol(t, "one")
	m := p.Enrol(t, "web", "welcome")
	err := p.Store.SaveReport(ctx, registry.Report{Node: m.Key.Public(), At: p.Now().Add(time.Second), Inventory: m.Inventory,
		Outcome: declaration.Outcome{Epoch: 1, Generation: 1, Digest: "d", Results: []declaration.Result{
			{ID: "welcome/package", Kind: declaration.KindPackage, Where: "nginx", Status: declaration.StatusFailed, Reason: "no such package"},
		}},
		Refused: &link.Refused{Epoch: 1, Generation: 2, Digest: "e", Reason: "declaration is not signed by this mesh", Time: p.Now()}})
	if err != nil {
		t.Fatal(err)
	}
	for _, golden := range []struct {
		name string
		ask  func() (any, error)
	}{
		{"token", func() (any, error) { return c.IssueToken(ctx, api.TokenRequest{}) }},
		{"nodes", func() (any, error) { return c.Nodes(ctx) }},
		{"node", func() (any, error) { return c.Node(ctx, "web") }},
		{"node-new", func() (any, error) { return c.Node(ctx, "one") }},
		{"modules", func() (any, error) { return c.Modules(ctx) }},
		{"assign", func() (any, error) { return c.Assign(ctx, api.AssignRequest{Node: "one", Module: "welcome"}) }},
		{"host-none", func() (any, error) { return c.Host(ctx) }},
		{"host-set", func() (any, error) {
			return c.SetHost(ctx, api.SetHostRequest{Deb: planetest.Deb("mesh-host", "2.0", "amd64", "p")})
		}},
		{"host", func() (any, error) { return c.Host(ctx) }},
		{"host-unset", func() (any, error) { return c.UnsetHost(ctx) }},
		{"retire", func() (any, error) { return c.RetireNode(ctx, "web") }},
		{"node-retiring", func() (any, error) { return c.Node(ctx, "web") }},
		{"configure", func() (any, error) {
			next := planetest.Running(dir)
			next.Listen = ":8443"
			return c.Configure(ctx, api.ConfigureRequest{Text: next.Render()})
		}},
	} {
		t.Run(golden.name, func(t *testing.T) {
			answer, err := golden.ask()
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			enc := json.NewEncoder(&got)
			enc.SetIndent("", "  ")
			if err := enc.Encode(answer); err != nil {
				t.Fatal(err)
			}
			// What is drawn at random is written as what it is.
			text := got.String()
			for form, name := range map[string]string{`mesh1[a-z0-9A-Z]+`: "TOKEN", `nodekey:[0-9a-f]{64}`: "KEY", `"[0-9a-f]{16}"`: `"ID"`} {
				text = regexp.MustCompile(form).ReplaceAllString(text, name)
			}
			path := filepath.Join("testdata", golden.name+".json")
			if *update {
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), text); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestRefusalsKeepTheirExitCode(t *testing.T) {
	p, c := serve(t, planetest.Options{})
	p.Enrol(t, "web")
	ctx := t.Context()
	nobody := api.NewClient(filepath.Join(t.TempDir(), "none.sock"))
	defer nobody.Close()
	for name, tt := range map[string]struct {
		ask  func() error
		code int
		says string
	}{
		"a bad name":        {func() error { _, err := c.IssueToken(ctx, api.TokenRequest{Node: "_"}); return err }, 2, "not a name"},
		"a huge lifetime":   {func() error { _, err := c.IssueToken(ctx, api.TokenRequest{LifetimeSeconds: 1 << 62}); return err }, 2, "lifetime"},
		"a negative one":    {func() error { _, err := c.IssueToken(ctx, api.TokenRequest{LifetimeSeconds: -5}); return err }, 2, "lifetime"},
		"an unknown node":   {func() error { _, err := c.Node(ctx, "wbe"); return err }, 1, `"wbe"`},
		"one to be retired": {func() error { _, err := c.RetireNode(ctx, "wbe"); return err }, 1, `"wbe"`},
		"one to be removed": {func() error { return c.RemoveNode(ctx, "wbe") }, 1, `"wbe"`},
		"an unknown module": {func() error { _, err := c.Assign(ctx, api.AssignRequest{Node: "web", Module: "x"}); return err }, 1, "welcome"},
		"a bad configuration": {func() error {
			_, err := c.Configure(ctx, api.ConfigureRequest{File: "f", Text: "mesh: a\naddresses: [192.0.2.1:7443]"})
			return err
		}, 2, "f:1:1"},
		"no package": {func() error { _, err := c.SetHost(ctx, api.SetHostRequest{Deb: []byte("x")}); return err }, 2, "not a Debian package"},
		"a lower version": {func() error {
			_, err := c.SetHost(ctx, api.SetHostRequest{Deb: planetest.Deb("mesh-host", "0.9", "amd64", "")})
			return err
		}, 2, "--downgrade"},
		"no plane to answer": {func() error { _, err := nobody.Nodes(ctx); return err }, 4, "systemctl status mesh-plane"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tt.ask()
			var coder interface{ ExitCode() int }
			if !errors.As(err, &coder) || coder.ExitCode() != tt.code || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want exit code %d and %q in one line", err, tt.code, tt.says)
			}
		})
	}
}

func TestATokenIsNotPrinted(t *testing.T) {
	r := api.TokenResponse{Token: "mesh1secret", ID: "x"}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "token", r.Token, "response", r)
	for _, s := range []string{fmt.Sprint(r), fmt.Sprintf("%v %+v %#v %s %q", r, r, r, r.Token, r.Token), log.String()} {
		if strings.Contains(s, "secret") {
			t.Errorf("printed: %s", s)
		}
	}
}

func TestListen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "api.sock")
	l, err := api.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	var accepted sync.WaitGroup
	accepted.Go(func() {
		if conn, err := l.Accept(); err == nil {
			conn.Close()
		}
	})
	if _, err := api.Listen(path); err == nil || !strings.Contains(err.Error(), "another plane is running") {
		t.Errorf("beside one that answers: %v", err)
	}
	accepted.Wait()
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	again, err := api.Listen(path) // as after a crash
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := api.Listen(path); err == nil {
		t.Error("took a file for a socket")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("%q %v", b, err)
	}
}
