package resource_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/host/declaration"
	"mesh/host/resource"
	"mesh/host/store"
	"mesh/host/system"
	"mesh/host/system/systemtest"
)

var accounts = system.Accounts{
	Users: map[string]uint32{"root": 0, "www-data": 33}, Groups: map[string]uint32{"root": 0, "adm": 4},
}

const (
	sumOfHello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" // printf hello | sha256sum
	otherSum   = "other"
)

func no() *bool { b := false; return &b }

func TestTarget(t *testing.T) {
	for _, tt := range []struct {
		name string
		r    declaration.Resource
		want store.State
		err  string
	}{
		{name: "a directory", r: declaration.Resource{Directory: &declaration.Directory{Path: "/d"}}, want: store.State{Type: "directory", Mode: 0o755}},
		{name: "a file", r: declaration.Resource{File: &declaration.File{Path: "/f", Content: "hello"}}, want: store.State{Type: "file", Digest: sumOfHello, Mode: 0o644}},
		{
			name: "somebody's file", r: declaration.Resource{File: &declaration.File{Path: "/f", Content: "hello", Owner: "www-data", Group: "adm", Mode: "4750"}},
			want: store.State{Type: "file", Digest: sumOfHello, UID: 33, GID: 4, Mode: 0o4750},
		},
		{name: "nobody's file", r: declaration.Resource{File: &declaration.File{Path: "/f", Owner: "nobody-here"}}, err: `user "nobody-here" does not exist on this machine: is the package that brings it declared before this?`},
		{name: "no such group", r: declaration.Resource{Directory: &declaration.Directory{Path: "/f", Group: "none"}}, err: `group "none" does not exist on this machine: is the package that brings it declared before this?`},
		{name: "any version", r: declaration.Resource{Package: &declaration.Package{Name: "p"}}, want: store.State{Type: "package", Status: "installed"}},
		{name: "one version", r: declaration.Resource{Package: &declaration.Package{Name: "p", Version: "1"}}, want: store.State{Type: "package", Status: "installed", Version: "1"}},
		{name: "a service", r: declaration.Resource{Service: &declaration.Service{Unit: "u"}}, want: store.State{Type: "service", Status: "active", Enabled: "enabled"}},
		{name: "a stopped one", r: declaration.Resource{Service: &declaration.Service{Unit: "u", State: "stopped", Enabled: no()}}, want: store.State{Type: "service", Status: "inactive", Enabled: "disabled"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := resource.Target(tt.r, accounts)
			if err != nil || tt.err != "" {
				if err == nil || err.Error() != tt.err {
					t.Errorf("got %v, want %q", err, tt.err)
				}
				return
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func service(active, enabled string) store.State {
	return store.State{Type: "service", Status: active, Enabled: enabled}
}

func TestDiffers(t *testing.T) {
	file := store.State{Type: "file", Digest: sumOfHello, UID: 33, GID: 4, Mode: 0o640}
	with := func(change func(*store.State)) store.State {
		s := file
		change(&s)
		return s
	}
	installed := store.State{Type: "package", Version: "1", Status: "installed"}
	for _, tt := range []struct {
		name          string
		kind          declaration.Kind
		target, found store.State
		want          string
	}{
		{"the same file", declaration.KindFile, file, file, ""},
		{"no file", declaration.KindFile, file, store.State{}, "it is not there"},
		{"a link", declaration.KindFile, file, store.State{Type: "symbolic link"}, "a symbolic link is in its place"},
		{"other content", declaration.KindFile, file, with(func(s *store.State) { s.Digest = otherSum }), "its content is another"},
		{"another owner", declaration.KindFile, file, with(func(s *store.State) { s.UID = 0 }), "its owner is 0:4 instead of 33:4"},
		{"another mode", declaration.KindFile, file, with(func(s *store.State) { s.Mode = 0o600 }), "its mode is 0600 instead of 0640"},
		{"a directory's mode", declaration.KindDirectory, store.State{Type: "directory", Mode: 0o755}, store.State{Type: "directory", Mode: 0o2755}, "its mode is 2755 instead of 0755"},
		{"a file for a directory", declaration.KindDirectory, store.State{Type: "directory"}, file, "a file is in its place"},
		{"any version", declaration.KindPackage, store.State{Type: "package", Status: "installed"}, installed, ""},
		{"another version", declaration.KindPackage, store.State{Type: "package", Status: "installed", Version: "2"}, installed, "version 1 is installed instead of 2"},
		{"half a package", declaration.KindPackage, installed, store.State{Type: "package", Version: "1", Status: "half-configured"}, "it is half-configured"},
		{"no package", declaration.KindPackage, installed, store.State{}, "it is not installed"},
		{"a running service", declaration.KindService, service("active", "enabled"), service("active", "enabled"), ""},
		{"one that reloads", declaration.KindService, service("active", "enabled"), service("reloading", "enabled"), ""},
		{"one that is down", declaration.KindService, service("active", "enabled"), service("failed", "enabled"), "it is failed"},
		{"one that starts again and again", declaration.KindService, service("active", "enabled"), service("auto-restart", "enabled"), "it is auto-restart"},
		{"one that is not enabled", declaration.KindService, service("active", "enabled"), service("active", "disabled"), "it is disabled"},
		{"one that is enabled until the reboot", declaration.KindService, service("active", "enabled"), service("active", "enabled-runtime"), "it is enabled-runtime"},
		{"one that cannot be enabled", declaration.KindService, service("active", "enabled"), service("active", "static"), ""},
		{"one that shall be down", declaration.KindService, service("inactive", "disabled"), service("active", "disabled"), "it is running"},
		{"one that shall not start", declaration.KindService, service("inactive", "disabled"), service("inactive", "enabled"), "it is enabled"},
		{"a failed one that shall be down", declaration.KindService, service("inactive", "disabled"), service("failed", "disabled"), ""},
		{"one that does not exist", declaration.KindService, service("active", "enabled"), store.State{}, "the unit does not exist"},
		{"one that need not exist", declaration.KindService, service("inactive", "disabled"), store.State{}, ""},
		{"another run of the same", declaration.KindService, service("active", "enabled"), store.State{Type: "service", Status: "active", Enabled: "enabled", Invocation: "2", Boot: "b"}, ""},
	} {
		if got := resource.Differs(tt.kind, tt.target, tt.found); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestFate(t *testing.T) {
	file := func(sum string) store.State { return store.State{Type: "file", Digest: sum, Mode: 0o644} }
	directory := store.State{Type: "directory", Mode: 0o755}
	pkg := store.State{Type: "package", Version: "1", Status: "installed"}
	for _, tt := range []struct {
		name                string
		kind                declaration.Kind
		origin, made, found store.State
		fate                resource.Fate
		why                 string
	}{
		{"our file", declaration.KindFile, store.State{}, file("a"), file("a"), resource.Remove, ""},
		{"our file with another mode", declaration.KindFile, store.State{}, file("a"), store.State{Type: "file", Digest: "a", Mode: 0o600}, resource.Remove, ""},
		{"our file in place of another", declaration.KindFile, file("b"), file("a"), file("a"), resource.Remove, ""},
		{"a file that is gone", declaration.KindFile, store.State{}, file("a"), store.State{}, resource.Gone, ""},
		{"a file changed by hand", declaration.KindFile, store.State{}, file("a"), file("b"), resource.Leave, "it was changed by hand"},
		{"a file that was there", declaration.KindFile, file("a"), file("a"), file("a"), resource.Leave, "it was there before it was first declared"},
		{"a file that is what it was again", declaration.KindFile, file("b"), file("a"), file("b"), resource.Leave, "it was there before it was first declared"},
		{"a file too large to be ours", declaration.KindFile, store.State{}, file("a"), file(""), resource.Leave, "it was changed by hand"},
		{"a link in its place", declaration.KindFile, store.State{}, file("a"), store.State{Type: "symbolic link"}, resource.Leave, "a symbolic link is in its place"},
		{"our directory", declaration.KindDirectory, store.State{}, directory, directory, resource.Remove, ""},
		{"a directory that was there", declaration.KindDirectory, directory, directory, directory, resource.Leave, "it was there before it was first declared"},
		{"our package", declaration.KindPackage, store.State{}, pkg, pkg, resource.Remove, ""},
		{"our package in another version", declaration.KindPackage, store.State{}, pkg, store.State{Type: "package", Version: "9", Status: "installed"}, resource.Remove, ""},
		{"a package that was there", declaration.KindPackage, pkg, pkg, pkg, resource.Leave, "it was installed before it was first declared"},
		{"our service", declaration.KindService, store.State{}, service("active", "enabled"), service("active", "enabled"), resource.Remove, ""},
		{"one that we only enabled", declaration.KindService, service("active", "disabled"), service("active", "enabled"), service("active", "enabled"), resource.Remove, ""},
		{"one that ran before", declaration.KindService, service("active", "enabled"), service("active", "enabled"), service("active", "enabled"), resource.Leave, "it ran, or was enabled, before it was first declared"},
		{"one that is down by now", declaration.KindService, store.State{}, service("active", "enabled"), service("inactive", "disabled"), resource.Gone, ""},
		{"one that is gone", declaration.KindService, store.State{}, service("active", "enabled"), store.State{}, resource.Gone, ""},
		{"one that we stopped", declaration.KindService, service("active", "enabled"), service("inactive", "disabled"), service("inactive", "disabled"), resource.Gone, ""},
	} {
		o := store.Owned{Key: store.Key{Kind: tt.kind}, Origin: tt.origin, Made: tt.made}
		if fate, why := resource.FateOf(o, tt.found); fate != tt.fate || why != tt.why {
			t.Errorf("%s: %d %q, want %d %q", tt.name, fate, why, tt.fate, tt.why)
		}
	}
}

func TestResolve(t *testing.T) {
	a, b, c := store.State{Type: "file", Digest: "a"}, store.State{Type: "file", Digest: "b"}, store.State{Type: "file", Digest: "c"}
	dir := func(mode uint32) store.State { return store.State{Type: "directory", Mode: mode} }
	run := func(invocation, boot string) store.State {
		return store.State{Type: "service", Status: "active", Enabled: "enabled", Invocation: invocation, Boot: boot}
	}
	installed, half := store.State{Type: "package", Version: "1", Status: "installed"}, store.State{Type: "package", Version: "1", Status: "unpacked"}
	for _, tt := range []struct {
		name                  string
		kind                  declaration.Kind
		act                   store.Act
		before, target, found store.State
		want                  resource.Resolution
	}{
		{"a file was written", declaration.KindFile, store.ActApply, a, b, b, resource.Done},
		{"a file was not", declaration.KindFile, store.ActApply, a, b, a, resource.Undone},
		{"somebody else wrote it", declaration.KindFile, store.ActApply, a, b, c, resource.Foreign},
		{"a file was removed", declaration.KindFile, store.ActRemove, a, store.State{}, store.State{}, resource.Done},
		{"a directory was made", declaration.KindDirectory, store.ActApply, store.State{}, dir(0o700), dir(0o700), resource.Done},
		{"somebody else changed it", declaration.KindDirectory, store.ActApply, store.State{}, dir(0o700), dir(0o777), resource.Foreign},
		{"only its owner was set", declaration.KindDirectory, store.ActApply, dir(0o755), store.State{Type: "directory", Mode: 0o700, UID: 3}, store.State{Type: "directory", Mode: 0o755, UID: 3}, resource.Partly},
		{"a package was installed", declaration.KindPackage, store.ActApply, store.State{}, store.State{Type: "package", Status: "installed"}, installed, resource.Done},
		{"half a package was", declaration.KindPackage, store.ActApply, store.State{}, store.State{Type: "package", Status: "installed"}, half, resource.Partly},
		{"it was not", declaration.KindPackage, store.ActApply, store.State{}, store.State{Type: "package", Status: "installed"}, store.State{}, resource.Undone},
		{"a package was removed", declaration.KindPackage, store.ActRemove, installed, store.State{}, store.State{}, resource.Done},
		{"it was not removed", declaration.KindPackage, store.ActRemove, installed, store.State{}, installed, resource.Undone},
		{"a service was started", declaration.KindService, store.ActApply, service("inactive", "enabled"), service("active", "enabled"), run("1", ""), resource.Done},
		{"it was only enabled", declaration.KindService, store.ActApply, service("inactive", "disabled"), service("active", "enabled"), service("inactive", "enabled"), resource.Partly},
		{"nothing was done", declaration.KindService, store.ActApply, service("inactive", "disabled"), service("active", "enabled"), service("inactive", "disabled"), resource.Undone},
		{"nothing was done, in another boot", declaration.KindService, store.ActApply, service("inactive", "disabled"), service("active", "enabled"), store.State{Type: "service", Status: "inactive", Enabled: "disabled", Boot: "2"}, resource.Undone},
		{"it was restarted", declaration.KindService, store.ActRestart, run("1", "x"), service("active", "enabled"), run("2", "x"), resource.Done},
		{"it was not restarted", declaration.KindService, store.ActRestart, run("1", "x"), service("active", "enabled"), run("1", "x"), resource.Undone},
		{"the machine was", declaration.KindService, store.ActRestart, run("1", "x"), service("active", "enabled"), run("2", "y"), resource.Undone},
		{"it did not come up again", declaration.KindService, store.ActRestart, run("1", "x"), service("active", "enabled"), store.State{Type: "service", Status: "failed", Enabled: "enabled", Boot: "x"}, resource.Partly},
		{"a service was released", declaration.KindService, store.ActRemove, service("active", "enabled"), store.State{}, service("inactive", "disabled"), resource.Done},
		{"it was only stopped", declaration.KindService, store.ActRemove, service("active", "enabled"), store.State{}, service("inactive", "enabled"), resource.Partly},
	} {
		in := store.Intent{Key: store.Key{Kind: tt.kind}, Act: tt.act, Before: tt.before, Target: tt.target}
		if got := resource.Resolve(in, tt.found); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

func note(string) {}

// TestTwice applies and removes each kind twice: the second time changes nothing.
func TestTwice(t *testing.T) {
	m := systemtest.New()
	m.OfferPackage("p", systemtest.Offer{Versions: []string{"1"}})
	m.AddUnit(systemtest.Unit{Name: "u.service"})
	m.OfferImage(imageOfShop)
	for _, dir := range []string{"/etc/containers", "/etc/containers/systemd"} { // as images, they stay
		m.Disk.Put(dir, systemtest.Thing{Type: system.TypeDirectory, Mode: 0o755})
	}
	if err := m.PullImage(context.Background(), imageOfShop, note); err != nil {
		t.Fatal(err)
	}
	untouched := m.String()
	for _, r := range []declaration.Resource{
		{Directory: &declaration.Directory{Path: "/srv/d", Mode: "0700"}},
		{File: &declaration.File{Path: "/srv/f", Content: "hello"}},
		{Package: &declaration.Package{Name: "p"}},
		{Service: &declaration.Service{Unit: "u.service"}},
		{Container: &declaration.Container{Name: "c", Image: imageOfShop}},
	} {
		t.Run(string(r.Kind()), func(t *testing.T) {
			ctx, key := context.Background(), resource.KeyOf(r)
			target, err := resource.Target(r, accounts)
			if err != nil {
				t.Fatal(err)
			}
			var after string
			for i := range 2 {
				before := resource.Look(ctx, m, []store.Key{key})[key]
				if i == 1 && (before.Err != nil || resource.Differs(key.Kind, target, before.State) != "") {
					t.Errorf("after it was applied: %+v", before)
				}
				change := resource.Change{Resource: r, Before: before.State, Target: target, Note: note}
				if err := resource.Apply(ctx, m, key.Kind, []resource.Change{change})[0]; err != nil {
					t.Fatal(err)
				}
				if i == 1 && m.String() != after {
					t.Errorf("the second time changed something:\n%s", m)
				}
				after = m.String()
			}
			made := resource.Look(ctx, m, []store.Key{key})[key].State
			for range 2 {
				if err := resource.TakeAway(ctx, m, key.Kind, []store.Owned{{Key: key, Made: made}}, note)[0]; err != nil {
					t.Fatal(err)
				}
				if m.String() != untouched {
					t.Errorf("removal left something:\n%s\nwas\n%s", m, untouched)
				}
			}
		})
	}
}

// TestLookFailsForOneKindOnly: one kind that cannot be looked at does not hide the
// others.
func TestLookFailsForOneKindOnly(t *testing.T) {
	m := systemtest.New()
	m.Hook(func(op systemtest.Op) error {
		if op.Name == "read units" {
			return system.ErrNoSystemd
		}
		return nil
	})
	unit, file := store.Key{Kind: declaration.KindService, Where: "u.service"}, store.Key{Kind: declaration.KindFile, Where: "/etc/none"}
	seen := resource.Look(context.Background(), m, []store.Key{unit, file})
	if err := seen[unit].Err; err == nil || !strings.Contains(err.Error(), "systemd is not running") {
		t.Errorf("%v", err)
	}
	if found := seen[file]; found.Err != nil || !found.State.Absent() {
		t.Errorf("%+v", found)
	}
}

func TestKinds(t *testing.T) {
	for _, k := range declaration.Kinds() {
		if !resource.Known(k) {
			t.Errorf("the contract has %s, and nothing applies it", k)
		}
	}
	if resource.Known("quantum") {
		t.Error("a kind is known that there is not")
	}
}
