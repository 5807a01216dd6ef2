// Package applytest is what every proof of the host shares: a scenario that a
// machine is brought through, and the one checker of what must hold at every
// moment, however the machine was stopped.
//
// Only tests import it.
package applytest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"mesh/host/apply"
	"mesh/host/declaration"
	"mesh/host/store"
	"mesh/host/system"
	"mesh/host/system/systemtest"
)

// StatePath is where the store lies in every scenario.
const StatePath = "/var/lib/mesh-host"

// MaxStoreBytes is the cap of the store in every scenario.
const MaxStoreBytes = 1 << 20

// Scenario is a machine and the declarations it gets, one after the other.
type Scenario struct {
	Prepare func(m *systemtest.Machine) // on a machine with empty /etc, /var/lib, /run and /srv
	Passes  []apply.Desired
}

// Machine is a new one in memory, as it is before the first pass.
func (s Scenario) Machine() *systemtest.Machine {
	m := systemtest.New()
	s.Prepare(m)
	return m
}

// Clock is a wall clock that stands still.
func Clock() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }

// Demo brings a machine through a first declaration with everything in it, a
// second that changes, adds and removes, and an empty one. Some files are there
// before, and some of them are declared.
func Demo() Scenario {
	return Scenario{Prepare: demoMachine, Passes: []apply.Desired{
		Desired(1, demoFirst()...), Desired(2, demoSecond()...), Desired(3),
	}}
}

// Desired is a declaration of the plane with these resources.
func Desired(generation uint64, resources ...declaration.Resource) apply.Desired {
	return apply.Desired{
		Source: store.SourcePlane, Epoch: 1, Generation: generation,
		Digest: fmt.Sprintf("digest-%d", generation), Resources: resources,
	}
}

func demoMachine(m *systemtest.Machine) {
	file := func(content string) systemtest.Thing {
		return systemtest.Thing{Type: system.TypeFile, Mode: 0o644, Content: content}
	}
	m.Disk.Put("/etc/foreign.conf", file("not ours\n"))
	m.Disk.Put("/etc/same.conf", file("same\n"))
	m.Disk.Put("/etc/other.conf", file("was here\n"))
	m.AddUnit(systemtest.Unit{Name: "web.service", Active: "active", Enabled: "enabled", Reads: []string{"/etc/other.conf", "/etc/demo/b.conf", "/etc/demo/f.conf"}})
	m.OfferImage(image('1'))
	m.OfferImage(image('2'))
	m.OfferPackage("demo", systemtest.Offer{
		Versions: []string{"1.0", "1.1"},
		Files:    map[string]string{"/srv/demo": "program\n", "/etc/demo.conf": "default\n"},
		Users:    map[string]uint32{"demo": 999},
		Units:    []systemtest.Unit{{Name: "demo.service", Reads: []string{"/etc/demo.conf", "/etc/demo/a.conf"}}},
	})
}

func demoFirst() []declaration.Resource {
	return []declaration.Resource{
		Directory("demo/dir", "/etc/demo", "0750"),
		Directory("demo/sub", "/etc/demo/sub", ""),
		Directory("demo/empty", "/srv/empty", "0700"),
		File("demo/a", "/etc/demo/a.conf", "a1\n"),
		File("demo/b", "/etc/demo/b.conf", "b1\n"),
		File("demo/c", "/etc/demo/sub/c.conf", "c1\n"),
		File("demo/f", "/etc/demo/f.conf", "f1\n"),
		File("demo/d", "/srv/d", "d1\n"),
		File("demo/same", "/etc/same.conf", "same\n"),
		keeping(File("demo/other", "/etc/other.conf", "ours\n")),
		{ID: "demo/package", Package: &declaration.Package{Name: "demo"}},
		{ID: "demo/conf", File: &declaration.File{Path: "/etc/demo.conf", Content: "conf1\n", Owner: "demo", Mode: "0640"}},
		Service("demo/service", "demo.service", "demo/a", "demo/conf"),
		Container("demo/shop", "shop", image('1'), "/etc/demo/a.conf", "demo/a"),
		{ID: "demo/web", Service: &declaration.Service{Unit: "web.service", RestartOn: []string{"demo/other"}, ReloadOn: []string{"demo/b", "demo/f"}}},
	}
}

func demoSecond() []declaration.Resource {
	return []declaration.Resource{
		Directory("demo/dir", "/etc/demo", "0755"),
		Directory("demo/empty", "/srv/empty", "0711"),
		File("demo/a", "/etc/demo/a.conf", "a2\n"),
		File("demo/b-renamed", "/etc/demo/b.conf", "b1\n"),
		File("demo/d", "/srv/d", "d2\n"),
		File("demo/e", "/srv/e", "e1\n"),
		keeping(File("demo/other", "/etc/other.conf", "ours too\n")),
		{ID: "demo/package", Package: &declaration.Package{Name: "demo"}},
		{ID: "demo/conf", File: &declaration.File{Path: "/etc/demo.conf", Content: "conf1\n", Owner: "demo", Mode: "0600"}},
		Service("demo/service", "demo.service", "demo/a", "demo/conf"),
		Container("demo/shop", "shop", image('2'), "/etc/demo/a.conf", "demo/a"),
		{ID: "demo/web", Service: &declaration.Service{Unit: "web.service", ReloadOn: []string{"demo/other"}}},
	}
}

// keeping is r with a copy kept of what somebody else wrote there.
func keeping(r declaration.Resource) declaration.Resource {
	r.File.Policy = declaration.PolicyKeepCopy
	return r
}

// Directory, File and Service make resources in one line each.
func Directory(id, path, mode string) declaration.Resource {
	return declaration.Resource{ID: id, Directory: &declaration.Directory{Path: path, Mode: mode}}
}

// File is a file of root's, mode 0644.
func File(id, path, content string) declaration.Resource {
	return declaration.Resource{ID: id, File: &declaration.File{Path: path, Content: content}}
}

// Service is a running, enabled unit.
func Service(id, unit string, restartOn ...string) declaration.Resource {
	return declaration.Resource{ID: id, Service: &declaration.Service{Unit: unit, RestartOn: restartOn}}
}

// Container is one that is given a secret.
func Container(id, name, image, secret string, restartOn ...string) declaration.Resource {
	return declaration.Resource{ID: id, Container: &declaration.Container{
		Name: name, Image: image, Secrets: []declaration.Secret{{Name: "secret", Path: secret}}, RestartOn: restartOn,
	}}
}

// image is one of the images that the machine of Demo can fetch.
func image(digit rune) string {
	return "registry.test/shop@sha256:" + strings.Repeat(string(digit), 64)
}

// Open opens the store of m. No process is started meanwhile: until one that was
// has become another program, it holds the locks of this one, the store's of a
// moment ago among them.
func Open(m *systemtest.Machine) (*store.Store, store.Report, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return store.Open(store.Config{
		Directory: system.NewStateDirectory(m.Files, StatePath), Now: Clock, MaxBytes: MaxStoreBytes,
	})
}

// Pass accepts d and brings m to it, as the agent does.
func Pass(ctx context.Context, m *systemtest.Machine, d apply.Desired) (declaration.Outcome, error) {
	s, _, err := Open(m)
	if err != nil {
		return declaration.Outcome{}, err
	}
	defer s.Close()
	if held := s.View().Accepted; held == nil || held.Digest != d.Digest {
		err := s.Append(store.Accepted{
			Source: d.Source, Mesh: "demo", Epoch: d.Epoch, Generation: d.Generation, Digest: d.Digest,
			Time: Clock(), Document: []byte("signed " + d.Digest),
		})
		if err != nil {
			return declaration.Outcome{}, err
		}
	}
	m.Promise(d.Generation)
	out, err := Applier(m, s).Reconcile(ctx, d)
	if err != nil {
		return out, err
	}
	copies := s.View().Copies
	return out, m.PruneContents(func(digest string) bool {
		return slices.ContainsFunc(copies, func(c store.Copied) bool { return c.Digest == digest })
	})
}

// Applier applies to m with the store s.
func Applier(m *systemtest.Machine, s *store.Store) *apply.Applier {
	return apply.New(apply.Config{Machine: m, Store: s, Now: Clock})
}
