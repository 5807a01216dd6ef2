package systemtest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/host/resource"
	"mesh/host/system"
)

// OfferedPackage is what PackageConformance needs: a package that is not installed,
// of which a release has versions 1.0 and 2.0, and 1.0 is in a file.
type OfferedPackage struct{ Name, Release, File string }

// PackageConformance is what a package system must do.
func PackageConformance(t *testing.T, p resource.Packages, offered OfferedPackage) {
	name, notes := offered.Name, 0
	note := func(string) { notes++ }
	is := func(t *testing.T, version string) {
		t.Helper()
		want := map[string]system.Package{}
		if version != "" {
			want[name] = system.Package{Version: version, Status: "installed"}
		}
		got, err := p.Installed(t.Context(), []string{name, "mesh-conformance-none"})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	fails := func(t *testing.T, what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%q is not said: %v", what, err)
		}
	}
	works := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if notes == 0 {
			t.Error("nobody was told")
		}
		notes = 0
	}
	t.Run("one that is not there", func(t *testing.T) {
		is(t, "")
		works(t, p.Uninstall(t.Context(), name, note))
	})
	t.Run("one that nobody has", func(t *testing.T) {
		fails(t, "install package mesh-conformance-none", p.Install(t.Context(), "mesh-conformance-none", "", note))
		fails(t, "install package "+name, p.Install(t.Context(), name, "3.0", note))
		is(t, "")
	})
	t.Run("a version", func(t *testing.T) {
		for range 2 {
			works(t, p.Install(t.Context(), name, "1.0", note))
			is(t, "1.0")
		}
	})
	t.Run("the newest of a release", func(t *testing.T) {
		newest, err := p.Newest(t.Context(), name, offered.Release)
		if err != nil || newest != "2.0" {
			t.Errorf("%q, %v", newest, err)
		}
		if none, err := p.Newest(t.Context(), "mesh-conformance-none", offered.Release); err != nil || none != "" {
			t.Errorf("%q, %v", none, err)
		}
		works(t, p.InstallFrom(t.Context(), name, offered.Release, note))
		is(t, "2.0")
	})
	t.Run("an older one in a file", func(t *testing.T) {
		works(t, p.InstallFile(t.Context(), name, offered.File, note))
		is(t, "1.0")
		fails(t, "install package "+name, p.InstallFile(t.Context(), name, offered.File+".none", note))
		is(t, "1.0")
	})
	t.Run("none any more", func(t *testing.T) {
		works(t, p.Uninstall(t.Context(), name, note))
		is(t, "")
	})
}
