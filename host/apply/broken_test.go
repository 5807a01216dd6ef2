package apply_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"mesh/host/apply"
	"mesh/host/apply/applytest"
	"mesh/host/declaration"
	"mesh/host/resource"
	"mesh/host/system/systemtest"
)

// triedMachine is one that knows of versions that do not work.
type triedMachine struct {
	*systemtest.Machine
	broken map[string][]resource.Broken
}

func (m triedMachine) Broken(name string) ([]resource.Broken, error) { return m.broken[name], nil }

// reconciled makes one pass over resources, and says what became of the first.
func (m triedMachine) reconciled(t *testing.T, generation uint64, p declaration.Package) string {
	t.Helper()
	s, _, err := applytest.Open(m.Machine)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	d := applytest.Desired(generation, declaration.Resource{ID: "host/package", Package: &p})
	out, err := apply.New(apply.Config{Machine: m, Store: s, Now: applytest.Clock}).Reconcile(context.Background(), d)
	if err != nil {
		t.Fatal(err)
	}
	r := out.Results[0]
	return string(r.Status) + ": " + r.Reason
}

// hostMachine has version 1.0 of a package whose version 2.0 does not work, and
// may know what to install in its place.
func hostMachine(t *testing.T, keepsPackage bool) triedMachine {
	t.Helper()
	m := triedMachine{systemtest.New(), map[string][]resource.Broken{}}
	m.OfferPackage("mesh-host", systemtest.Offer{Versions: []string{"1.0", "3.0", "2.0"}})
	if got := m.reconciled(t, 1, declaration.Package{Name: "mesh-host", Version: "1.0"}); got != "changed: it is not installed" {
		t.Fatal(got)
	}
	if got := m.reconciled(t, 2, declaration.Package{Name: "mesh-host", Version: "2.0"}); !strings.HasPrefix(got, "changed") {
		t.Fatal(got)
	}
	b := resource.Broken{Version: "2.0", Why: "version 2.0 is broken"}
	if keepsPackage {
		digest, err := m.KeepContent([]byte("1.0"))
		if err != nil {
			t.Fatal(err)
		}
		b.Instead = &declaration.Package{Name: "mesh-host", Version: "1.0", Blob: &declaration.Blob{Digest: digest, Bytes: 3}}
	}
	m.broken["mesh-host"] = []resource.Broken{b}
	return m
}

const notAgain = "failed: version 2.0 is broken; it is not tried again until another version is declared"

func TestBrokenVersionIsNotTriedAgain(t *testing.T) {
	for name, declared := range map[string]declaration.Package{
		"by version": {Name: "mesh-host", Version: "2.0"},
		"by release": {Name: "mesh-host", Release: "stable"}, // its newest is 2.0
		"by blob":    {Name: "mesh-host", Version: "2.0", Blob: &declaration.Blob{Digest: strings.Repeat("0", 64), Bytes: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			m := hostMachine(t, false)
			before := m.Packages.String()
			for range 3 {
				if got := m.reconciled(t, 2, declared); got != notAgain {
					t.Error(got)
				}
			}
			if m.Packages.String() != before {
				t.Errorf("packages changed:\n%s", m.Packages)
			}
			if got := m.reconciled(t, 3, declaration.Package{Name: "mesh-host", Version: "3.0"}); !strings.HasPrefix(got, "changed") {
				t.Errorf("another version is declared: %s", got)
			}
		})
	}
}

// What is known to work is installed in place of what does not, once, so that
// dpkg knows what is there; the declared version fails all the same.
func TestBrokenVersionIsReplaced(t *testing.T) {
	m := hostMachine(t, true)
	declared := declaration.Package{Name: "mesh-host", Version: "2.0"}
	m.Hook(func(op systemtest.Op) error {
		if op.Name == "unpack" {
			return errors.New("no room")
		}
		return nil
	})
	if got := m.reconciled(t, 2, declared); got != "failed: version 2.0 is broken; version 1.0 is installed in its place, which failed: unpack mesh-host: unpack mesh-host: no room" {
		t.Error(got)
	}
	m.Hook(nil)
	if got := m.reconciled(t, 2, declared); got != "changed: version 2.0 is broken; version 1.0 is installed in its place" {
		t.Error(got)
	}
	if got := m.Packages.String(); got != "package mesh-host 1.0 installed\n" {
		t.Error(got)
	}
	for range 2 {
		if got := m.reconciled(t, 2, declared); got != notAgain {
			t.Error(got)
		}
	}
	if got := m.Packages.String(); got != "package mesh-host 1.0 installed\n" {
		t.Error(got)
	}
	if got := m.reconciled(t, 3, declaration.Package{Name: "mesh-host", Version: "1.0"}); !strings.HasPrefix(got, "in_sync") {
		t.Errorf("what works is declared: %s", got)
	}
}

// A version that works is none of it, and neither is another package.
func TestBrokenVersionOfAnotherPackage(t *testing.T) {
	m := hostMachine(t, true)
	m.OfferPackage("other", systemtest.Offer{Versions: []string{"2.0"}})
	if got := m.reconciled(t, 4, declaration.Package{Name: "other", Version: "2.0"}); got != "changed: it is not installed" {
		t.Error(got)
	}
}
