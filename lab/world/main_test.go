package world_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mesh/lab/scenario"
	"mesh/lab/underlay"
	"mesh/lab/world"
	"mesh/lab/world/worldtest"
)

func TestMain(m *testing.M) { worldtest.Main(m) }

// town is one public segment, a home behind a translating router, an office
// behind a plain one, and an island.
const town = `
name: town
segments:
  public: {kind: public, ipv4: 203.0.113.0/24, ipv6: 2001:db8:113::/64}
  home: {kind: site, ipv4: 192.168.1.0/24, ipv6: 2001:db8:114::/64}
  office: {kind: site, ipv4: 172.20.0.0/24, ipv6: 2001:db8:115::/64}
  island: {kind: site, ipv4: 10.9.0.0/24, ipv6: 2001:db8:116::/64}
routers:
  box: {inside: home, outside: public, nat: easy}
  plain: {inside: office, outside: public, nat: none}
machines:
  pub: {segments: [public]}
  shop: {segments: [public]}
  in: {segments: [home]}
  desk: {segments: [office]}
  robin: {segments: [island]}
`

// plan makes the underlay of a scenario as a raise with that id does.
func plan(t testing.TB, document, run string) underlay.Underlay {
	t.Helper()
	s, err := scenario.Parse("test.yaml", strings.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	u, err := underlay.Plan(s, run)
	if err != nil {
		t.Fatal(err)
	}
	return *u
}

// config is a configuration in a fresh directory, with one repository.
func config(t testing.TB, u underlay.Underlay) world.Config {
	t.Helper()
	dir := t.TempDir()
	repository := filepath.Join(dir, "debian-13")
	if err := os.Mkdir(repository, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(repository, "Packages"), []byte("Package: hello\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return world.Config{
		Underlay:     u,
		Repositories: map[string]string{"debian-13": repository},
		Control:      filepath.Join(dir, "world.sock"),
		Log:          filepath.Join(dir, "world.log"),
	}
}

// start starts a world, to be removed with the test.
func start(t testing.TB, c world.Config) world.Process {
	t.Helper()
	p, err := world.Start(t.Context(), self(t), filepath.Join(filepath.Dir(c.Log), "world.json"), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, c, p) })
	return p
}

func remove(t testing.TB, c world.Config, p world.Process) {
	t.Helper()
	if err := world.Remove(context.WithoutCancel(t.Context()), c, p); err != nil {
		t.Error(err)
	}
	log, err := os.ReadFile(c.Log)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for _, bad := range []string{`"level":"ERROR"`, "router advertisement is not sent", "lease reply is not sent"} {
		if bytes.Contains(log, []byte(bad)) {
			t.Errorf("the world logged %s", bad)
		}
	}
	if t.Failed() {
		t.Logf("%s:\n%s", c.Log, log)
	}
}

// self is this binary, which is a world when it is started as one.
func self(t testing.TB) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// soon bounds what should take a moment.
func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// up is a machine of u with its addresses of both families.
func up(t testing.TB, u underlay.Underlay, name string) *worldtest.Machine {
	t.Helper()
	m := worldtest.NewMachine(t, u, name)
	m.Up()
	m.Lease(soon(t))
	return m
}
