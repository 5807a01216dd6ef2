package resource_test

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/host/declaration"
	"mesh/host/resource"
	"mesh/host/store"
	"mesh/host/system"
	"mesh/host/system/systemtest"
)

var (
	update  = flag.Bool("update", false, "write goldens anew")
	quadlet = flag.String("quadlet", "/usr/libexec/podman/quadlet", "podman's generator of units, which reads the golden")
)

const imageOfShop = "registry.test/shop@sha256:1111111111111111111111111111111111111111111111111111111111111111"

// shop has every word of a container.
func shop() *declaration.Container {
	return &declaration.Container{
		Name: "shop", Image: imageOfShop,
		Arguments:   []string{"--listen", "a b", `it's "quoted" \ $HOME ${HOME} 100 %n`},
		Environment: []declaration.Variable{{Name: "A", Value: `b "c" \ $HOME %n`}, {Name: "EMPTY"}},
		Ports: []declaration.Port{
			{Port: 8080, To: 80}, {Address: "192.0.2.1", Port: 53, To: 5353, Protocol: "udp"}, {Address: "2001:db8::1", Port: 53, To: 53},
		},
		Secrets: []declaration.Secret{{Name: "key", Path: "/etc/shop.key"}},
		Volumes: []declaration.Volume{{Source: "/srv/shop", Target: "/data"}, {Source: "cache", Target: "/cache"}, {Source: "/etc/ssl", Target: "/ssl", ReadOnly: true}},
	}
}

// machineOf has what shop needs.
func machineOf() *systemtest.Machine {
	m := systemtest.New()
	m.OfferImage(imageOfShop)
	m.Disk.Put("/etc/shop.key", systemtest.Thing{Type: system.TypeFile, Mode: 0o600, Content: "secret\n"})
	m.Disk.Put("/etc/ssl", systemtest.Thing{Type: system.TypeDirectory, Mode: 0o755})
	m.Disk.Put("/srv/shop", systemtest.Thing{Type: system.TypeDirectory, Mode: 0o755})
	return m
}

// bring applies a container and says what is there then.
func bring(t *testing.T, m *systemtest.Machine, d *declaration.Container, change func(*resource.Change)) (store.State, error) {
	t.Helper()
	r := declaration.Resource{Container: d}
	key := resource.KeyOf(r)
	target, err := resource.Target(r, accounts)
	if err != nil {
		t.Fatal(err)
	}
	c := resource.Change{Resource: r, Before: look(t, m, key), Target: target, Note: note}
	if change != nil {
		change(&c)
	}
	err = resource.Apply(context.Background(), m, key.Kind, []resource.Change{c})[0]
	return look(t, m, key), err
}

func look(t *testing.T, m *systemtest.Machine, key store.Key) store.State {
	t.Helper()
	found := resource.Look(context.Background(), m, []store.Key{key})[key]
	if found.Err != nil {
		t.Fatal(found.Err)
	}
	return found.State
}

// TestQuadlet: the unit file, byte for byte, and what podman's own generator makes
// of it where it is installed.
func TestQuadlet(t *testing.T) {
	m := machineOf()
	if _, err := bring(t, m, shop(), nil); err != nil {
		t.Fatal(err)
	}
	got, _ := m.Disk.Content(declaration.ContainerFile("shop"))
	golden := filepath.Join("testdata", "mesh-shop.container")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if strings.Contains(got, "secret\\n") || strings.Contains(got, "secret\n") {
		t.Error("the secret is in the unit file")
	}
	t.Run("podman's generator", func(t *testing.T) {
		if _, err := os.Stat(*quadlet); err != nil {
			t.Skipf("there is none here: %v", err)
		}
		dir, err := filepath.Abs("testdata")
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), *quadlet, "-dryrun")
		cmd.Env = append(os.Environ(), "QUADLET_UNIT_DIRS="+dir)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		const line = `podman run --name mesh-shop `
		const rest = ` -v /etc/shop.key:/run/secrets/key:ro -v /srv/shop:/data -v mesh-cache:/cache -v /etc/ssl:/ssl:ro` +
			` --publish 8080:80/tcp --publish 192.0.2.1:53:5353/udp --publish [2001:db8::1]:53:53/tcp` +
			` --env "A=b \"c\" \\ $$HOME %%n" --env EMPTY= --label mesh-host.made=`
		const end = imageOfShop + ` --listen "a b" "it's \"quoted\" \\ $$HOME $${HOME} 100 %%n"`
		for _, part := range []string{line, rest, end} {
			if !strings.Contains(string(out), part) {
				t.Errorf("%s\nis not in\n%s", part, out)
			}
		}
	})
}

// TestEveryWordOfAContainerCounts: what is declared otherwise is made of another
// unit file, by another name, so that it is started anew.
func TestEveryWordOfAContainerCounts(t *testing.T) {
	name := func(change func(*declaration.Container)) string {
		d := shop()
		change(d)
		s, err := resource.Target(declaration.Resource{Container: d}, accounts)
		if err != nil || len(s.Version) != 64 || len(s.Digest) != 64 {
			t.Fatalf("%+v %v", s, err)
		}
		return s.Version + s.Digest
	}
	seen := map[string]string{name(func(*declaration.Container) {}): "nothing"}
	for what, change := range map[string]func(*declaration.Container){
		"name":        func(c *declaration.Container) { c.Name = "other" },
		"image":       func(c *declaration.Container) { c.Image = strings.Replace(c.Image, "1", "2", 1) },
		"arguments":   func(c *declaration.Container) { c.Arguments = c.Arguments[1:] },
		"environment": func(c *declaration.Container) { c.Environment[0].Value = "" },
		"network":     func(c *declaration.Container) { c.Network = "host" },
		"ports":       func(c *declaration.Container) { c.Ports[0].Address = "192.0.2.1" },
		"secrets":     func(c *declaration.Container) { c.Secrets[0].Name = "KEY" },
		"volumes":     func(c *declaration.Container) { c.Volumes[0].ReadOnly = true },
	} {
		made := name(change)
		if other, taken := seen[made]; taken {
			t.Errorf("%s counts as much as %s", what, other)
		}
		seen[made] = what
	}
	if name(func(c *declaration.Container) { c.RestartOn = []string{"a"}; c.Network = "own" }) != name(func(*declaration.Container) {}) {
		t.Error("what is no business of podman's counts")
	}
}

// TestContainerDrift: whatever somebody does to a container, the next pass finds
// it and puts it right, and nothing is started anew that runs as declared.
func TestContainerDrift(t *testing.T) {
	target, err := resource.Target(declaration.Resource{Container: shop()}, accounts)
	if err != nil {
		t.Fatal(err)
	}
	unit, file := declaration.ContainerUnit("shop"), declaration.ContainerFile("shop")
	for _, tt := range []struct {
		name  string
		drift func(*systemtest.Machine)
		want  string
		anew  bool
	}{
		{"the file is gone", func(m *systemtest.Machine) { m.Disk.Put(file, systemtest.Thing{}) }, "its unit file is not there", false},
		{"the file was edited", func(m *systemtest.Machine) {
			m.Disk.Put(file, systemtest.Thing{Type: system.TypeFile, Mode: 0o644, Content: "[Container]\n"})
		}, "its unit file is another", false},
		{"it was stopped", func(m *systemtest.Machine) { _ = m.Stop(t.Context(), unit) }, "it is inactive", true},
		{"it was removed", func(m *systemtest.Machine) { m.LoseContainer("mesh-shop") }, "it is failed", true},
		{"it runs another image", func(m *systemtest.Machine) {
			m.AddContainer("mesh-shop", system.Container{Unit: unit, Made: target.Version, Image: "sha256:2"})
		}, "it runs the image sha256:2 instead of " + target.Image, true},
		{"it was made of another file", func(m *systemtest.Machine) {
			m.AddContainer("mesh-shop", system.Container{Unit: unit, Made: "other", Image: target.Image})
		}, "what runs was made of another unit file", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := machineOf()
			made, err := bring(t, m, shop(), nil)
			if err != nil || resource.Differs(declaration.KindContainer, target, made) != "" {
				t.Fatalf("%+v %v", made, err)
			}
			whole := m.String()
			tt.drift(m)
			if got := resource.Differs(declaration.KindContainer, target, look(t, m, resource.KeyOf(declaration.Resource{Container: shop()}))); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
			again, err := bring(t, m, shop(), nil)
			if err != nil || m.String() != whole {
				t.Errorf("%v:\n%s\nwas\n%s", err, m, whole)
			}
			if anew := again.Invocation != made.Invocation; anew != tt.anew {
				t.Errorf("it was started anew: %t", anew)
			}
		})
	}
}

// TestCaseH9ContainerTwice: the same again starts nothing; another digest is
// exactly one replacement; a restart that is owed is one.
func TestCaseH9ContainerTwice(t *testing.T) {
	m, unit := machineOf(), declaration.ContainerUnit("shop")
	next := shop()
	next.Image = strings.ReplaceAll(imageOfShop, "1", "2")
	m.OfferImage(next.Image)
	for i, step := range []struct {
		d        *declaration.Container
		change   func(*resource.Change)
		restarts int
	}{
		{shop(), nil, 0}, {shop(), nil, 0}, {shop(), nil, 0}, {next, nil, 1}, {next, nil, 1},
		{next, func(c *resource.Change) { c.Restart = true }, 2}, {next, nil, 2},
	} {
		if _, err := bring(t, m, step.d, step.change); err != nil {
			t.Fatal(err)
		}
		if got := m.Restarts(unit); got != step.restarts {
			t.Errorf("step %d: started anew %d times, want %d", i, got, step.restarts)
		}
	}
}

// TestContainerThatComes: what systemd starts already, as when the machine starts, is
// waited for and not begun anew; but for what it would not be.
func TestContainerThatComes(t *testing.T) {
	unit := declaration.ContainerUnit("shop")
	coming := func() *systemtest.Machine {
		m := machineOf()
		if _, err := bring(t, m, shop(), nil); err != nil {
			t.Fatal(err)
		}
		text, _ := m.Disk.Content(declaration.ContainerFile("shop"))
		m.LoseContainer("mesh-shop")
		m.AddUnit(systemtest.Unit{Name: unit, Active: "activating", Enabled: "generated", File: text})
		return m
	}
	m := coming()
	if _, err := bring(t, m, shop(), nil); err != nil || m.Restarts(unit) != 0 || !strings.Contains(m.String(), "unit "+unit+" active generated") {
		t.Errorf("%v\n%s", err, m)
	}
	m = coming()
	other := shop()
	other.Arguments = nil
	if _, err := bring(t, m, other, nil); err != nil || m.Restarts(unit) != 1 {
		t.Errorf("%v\n%s", err, m)
	}
}

// TestBadInputContainerMeetsMachine: what the machine does not have is named, and
// nothing of the container is there then.
func TestBadInputContainerMeetsMachine(t *testing.T) {
	for _, tt := range []struct {
		name string
		with func(*systemtest.Machine)
		want string
	}{
		{"no such image", func(m *systemtest.Machine) { m.WithdrawImage(imageOfShop) }, "fetch image " + imageOfShop + ": manifest unknown"},
		{"no secret", func(m *systemtest.Machine) { m.Disk.Put("/etc/shop.key", systemtest.Thing{}) }, "secret key: /etc/shop.key is not there: declare it before this, or put it there"},
		{"a link for a secret", func(m *systemtest.Machine) {
			m.Disk.Put("/etc/shop.key", systemtest.Thing{Type: system.TypeLink, Content: "/etc/shadow"})
		}, "secret key: /etc/shop.key is a symbolic link, and a file is wanted"},
		{"a secret behind a link", func(m *systemtest.Machine) {
			m.Disk.Put("/srv/shop", systemtest.Thing{Type: system.TypeLink, Content: "/etc"})
		}, "volume for /data: /srv/shop is a symbolic link"},
		{"no volume", func(m *systemtest.Machine) { m.Disk.Put("/srv/shop", systemtest.Thing{}) }, "volume for /data: /srv/shop is not there"},
		{"no podman", func(m *systemtest.Machine) { m.LacksPodman("podman is not installed") }, "this machine cannot run containers: podman is not installed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := machineOf()
			tt.with(m)
			before := m.String()
			state, err := bring(t, m, shop(), nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("\n got: %v\nwant: …%s…", err, tt.want)
			}
			if !state.Absent() || m.String() != before {
				t.Errorf("something was done: %+v\n%s\nwas\n%s", state, m, before)
			}
		})
	}
}

// TestForeignContainer: one of that name which is not of that unit is in the way,
// and stays.
func TestForeignContainer(t *testing.T) {
	m := machineOf()
	m.AddContainer("mesh-shop", system.Container{Image: "sha256:9"})
	key := store.Key{Kind: declaration.KindContainer, Where: "shop"}
	found := look(t, m, key)
	if found.Type != "container of somebody else's" {
		t.Fatalf("%+v", found)
	}
	made := store.State{Type: "container", Digest: "x"}
	if fate, why := resource.FateOf(store.Owned{Key: key, Made: made}, found); fate != resource.Leave || why != "a container of somebody else's is in its place" {
		t.Errorf("%d %q", fate, why)
	}
	before := m.String()
	err := resource.TakeAway(t.Context(), m, key.Kind, []store.Owned{{Key: key, Made: made}}, note)[0]
	if err == nil || m.String() != before {
		t.Errorf("%v\n%s", err, m)
	}
}

// TestContainerIsTakenAwayWithoutPodman: podman may have gone first.
func TestContainerIsTakenAwayWithoutPodman(t *testing.T) {
	m := machineOf()
	made, err := bring(t, m, shop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	m.LacksPodman("podman is not installed")
	key := store.Key{Kind: declaration.KindContainer, Where: "shop"}
	if err := resource.TakeAway(t.Context(), m, key.Kind, []store.Owned{{Key: key, Made: made}}, note)[0]; err != nil {
		t.Fatal(err)
	}
	if _, there := m.Disk.Content(declaration.ContainerFile("shop")); there {
		t.Error("the unit file is there")
	}
	if found := look(t, m, key); !found.Absent() {
		t.Errorf("%+v", found)
	}
}

func TestContainerFate(t *testing.T) {
	c := func(digest string) store.State {
		return store.State{Type: "container", Digest: digest, Status: "active"}
	}
	for _, tt := range []struct {
		name                string
		origin, made, found store.State
		fate                resource.Fate
		why                 string
	}{
		{"ours", store.State{}, c("a"), c("a"), resource.Remove, ""},
		{"ours, of which the file is gone", store.State{}, c("a"), c(""), resource.Remove, ""},
		{"gone", store.State{}, c("a"), store.State{}, resource.Gone, ""},
		{"changed by hand", store.State{}, c("a"), c("b"), resource.Leave, "its unit file was changed by hand"},
		{"there before", c("a"), c("a"), c("a"), resource.Leave, "it was there before it was first declared"},
		{"ours in place of another", c("b"), c("a"), c("a"), resource.Remove, ""},
		{"a link for a file", store.State{}, c("a"), store.State{Type: "symbolic link"}, resource.Leave, "a symbolic link is in its place"},
	} {
		o := store.Owned{Key: store.Key{Kind: declaration.KindContainer}, Origin: tt.origin, Made: tt.made}
		if fate, why := resource.FateOf(o, tt.found); fate != tt.fate || why != tt.why {
			t.Errorf("%s: %d %q, want %d %q", tt.name, fate, why, tt.fate, tt.why)
		}
	}
}

func TestContainerResolve(t *testing.T) {
	c := func(digest, version, invocation, boot string) store.State {
		return store.State{Type: "container", Digest: digest, Version: version, Image: "i", Status: "active", Invocation: invocation, Boot: boot}
	}
	none, target := store.State{}, store.State{Type: "container", Digest: "b", Version: "b", Image: "i", Status: "active"}
	for _, tt := range []struct {
		name          string
		act           store.Act
		before, found store.State
		want          resource.Resolution
	}{
		{"it was made", store.ActApply, none, c("b", "b", "1", ""), resource.Done},
		{"only its file was", store.ActApply, none, store.State{Type: "container", Digest: "b", Status: "inactive"}, resource.Partly},
		{"nothing was", store.ActApply, none, none, resource.Undone},
		{"it was replaced", store.ActApply, c("a", "a", "1", "x"), c("b", "b", "2", "x"), resource.Done},
		{"only its file was replaced", store.ActApply, c("a", "a", "1", "x"), c("b", "a", "1", "x"), resource.Partly},
		{"nothing was replaced", store.ActApply, c("a", "a", "1", "x"), c("a", "a", "1", "x"), resource.Undone},
		{"nothing was replaced, and the machine started", store.ActApply, c("a", "a", "1", "x"), c("a", "a", "2", "y"), resource.Partly},
		{"it was started anew", store.ActRestart, c("b", "b", "1", "x"), c("b", "b", "2", "x"), resource.Done},
		{"it was not", store.ActRestart, c("b", "b", "1", "x"), c("b", "b", "1", "x"), resource.Undone},
		{"it was removed", store.ActRemove, c("b", "b", "1", "x"), none, resource.Done},
		{"it was only stopped", store.ActRemove, c("b", "b", "1", "x"), store.State{Type: "container", Digest: "b", Status: "inactive", Boot: "x"}, resource.Partly},
	} {
		in := store.Intent{Key: store.Key{Kind: declaration.KindContainer}, Act: tt.act, Before: tt.before, Target: target}
		if got := resource.Resolve(in, tt.found); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
