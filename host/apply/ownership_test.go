package apply_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/host/apply"
	"mesh/host/apply/applytest"
	"mesh/host/store"
	"mesh/host/system"
	"mesh/host/system/systemtest"
)

// with opens the store of m for one change.
func with(t *testing.T, m *systemtest.Machine, do func(a *apply.Applier, s *store.Store)) {
	t.Helper()
	s, _, err := applytest.Open(m)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	do(applytest.Applier(m, s), s)
}

func orphans(t *testing.T, m *systemtest.Machine, d *apply.Desired) []string {
	t.Helper()
	all, err := apply.Orphans(t.Context(), m, viewOf(t, m), d)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range all {
		said := o.Where + ": " + o.Why
		if o.But != "" {
			said += "; " + o.But
		}
		got = append(got, said)
	}
	return got
}

// TestAdoptAndRelease: what was there before is adopted and then removed; what is
// released stays; what was left behind is taken back.
func TestAdoptAndRelease(t *testing.T) {
	m := systemtest.New()
	put(m, "/etc/same", "same")
	put(m, "/etc/kept", "same")
	first := applytest.Desired(1, applytest.File("same", "/etc/same", "same"), applytest.File("kept", "/etc/kept", "same"),
		applytest.File("made", "/etc/made", "1"), applytest.File("edited", "/etc/edited", "1"), applytest.Directory("dir", "/etc/dir", ""))
	came(t, m, first)
	want := []string{"/etc/same: it was there before it was first declared", "/etc/kept: it was there before it was first declared"}
	if d := cmp.Diff(want, orphans(t, m, &first)); d != "" {
		t.Error(d)
	}
	with(t, m, func(a *apply.Applier, _ *store.Store) {
		if _, err := a.Adopt(t.Context(), &first, []string{"/etc/same"}); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Release([]string{"/etc/made"}); err != nil {
			t.Fatal(err)
		}
	})
	came(t, m, first) // owns what is declared again, as found
	put(m, "/etc/edited", "by hand")
	came(t, m, applytest.Desired(2))
	for p, want := range map[string]string{"/etc/same": "(nothing)", "/etc/kept": "same", "/etc/made": "1", "/etc/edited": "by hand"} {
		if got := content(m, p); got != want {
			t.Errorf("%s: %s, want %s", p, got, want)
		}
	}
	with(t, m, func(a *apply.Applier, _ *store.Store) {
		taken, err := a.Adopt(t.Context(), nil, []string{"/etc/edited"})
		if err != nil || len(taken) != 1 || taken[0].Declared {
			t.Fatal(taken, err)
		}
	})
	came(t, m, applytest.Desired(2))
	if got := content(m, "/etc/edited"); got != "(nothing)" {
		t.Error(got)
	}
}

// TestAdoptRefuses: all or none, each with its reason, and the record as it was.
func TestAdoptRefuses(t *testing.T) {
	m := systemtest.New()
	for _, p := range []string{"/etc/a", "/etc/b", "/etc/c", "/etc/d"} {
		put(m, p, "same")
	}
	m.Disk.Put("/etc/dir", systemtest.Thing{Type: system.TypeDirectory, Mode: 0o755})
	put(m, "/etc/dir/theirs", "theirs")
	d := applytest.Desired(1, applytest.File("a", "/etc/a", "same"), applytest.File("b", "/etc/b", "same"), applytest.File("c", "/etc/c", "same"),
		applytest.File("d", "/etc/d", "same"), applytest.Directory("dir", "/etc/dir", ""), applytest.File("own", "/etc/own", "x"))
	came(t, m, d)
	put(m, "/etc/a", "by hand")
	m.Disk.Put("/etc/b", systemtest.Thing{Type: system.TypeLink})
	m.Disk.Put("/etc/c", systemtest.Thing{})
	before := viewOf(t, m).Owned
	with(t, m, func(a *apply.Applier, _ *store.Store) {
		_, err := a.Adopt(t.Context(), &d, []string{"/etc/a", "/etc/b", "/etc/c", "/etc/d", "/etc/own", "/etc/dir/theirs", "/etc/passwd"})
		want := []string{
			"adopt /etc/a: it is not as it was: its content is another", "adopt /etc/b: a symbolic link is in its place", "adopt /etc/c: nothing is there",
			"adopt /etc/own: the host owns it already", "adopt /etc/dir/theirs: the host has no record of it", "adopt /etc/passwd: the host has no record of it",
		}
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%q is not in %v", w, err)
			}
		}
		if _, err := a.Release([]string{"/etc/own", "/etc/passwd"}); err == nil || !strings.Contains(err.Error(), "release /etc/passwd: the host does not own it") {
			t.Error(err)
		}
	})
	if d := cmp.Diff(before, viewOf(t, m).Owned); d != "" {
		t.Error(d)
	}
}

// TestAdoptedDirectoryGoesOnlyIfEmpty: what is in it is not adopted with it.
func TestAdoptedDirectoryGoesOnlyIfEmpty(t *testing.T) {
	m := systemtest.New()
	m.Disk.Put("/etc/dir", systemtest.Thing{Type: system.TypeDirectory, Mode: 0o755})
	put(m, "/etc/dir/theirs", "theirs")
	d := applytest.Desired(1, applytest.Directory("dir", "/etc/dir", ""))
	came(t, m, d)
	with(t, m, func(a *apply.Applier, _ *store.Store) {
		if _, err := a.Adopt(t.Context(), &d, []string{"/etc/dir"}); err != nil {
			t.Fatal(err)
		}
	})
	if got := came(t, m, applytest.Desired(2)); got != "kept: it is not empty" || content(m, "/etc/dir/theirs") != "theirs" {
		t.Error(got)
	}
}

// TestMountBelowAnOwnedDirectory: neither the directory nor what is mounted in it
// is touched, and the place stays the host's until the mount is gone.
func TestMountBelowAnOwnedDirectory(t *testing.T) {
	m := systemtest.New()
	d := applytest.Desired(1, applytest.Directory("dir", "/etc/dir", ""), applytest.Directory("sub", "/etc/dir/sub", ""))
	came(t, m, d)
	m.Disk.Put("/etc/dir/sub", systemtest.Thing{Type: system.TypeDirectory, Mode: 0o755, Mount: true})
	out, err := applytest.Pass(t.Context(), m, applytest.Desired(2))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range out.Results {
		got = append(got, r.ID+" "+string(r.Status)+": "+r.Reason)
	}
	want := []string{"sub kept: a file system is mounted on it", "dir waiting: something in it is still to be removed"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	m.Disk.Put("/etc/dir/sub", systemtest.Thing{Type: system.TypeDirectory, Mode: 0o755})
	came(t, m, applytest.Desired(2))
	if strings.Contains(m.Disk.String(), "/etc/dir") {
		t.Errorf("the mount is gone, and yet:\n%s", m.Disk)
	}
}

// TestCaseH5InTheWayOfARemoval: what took the place of an owned file is left.
func TestCaseH5InTheWayOfARemoval(t *testing.T) {
	for _, typ := range []system.Type{system.TypeLink, system.TypeFIFO, system.TypeDevice, system.TypeSocket, system.TypeDirectory} {
		m := systemtest.New()
		came(t, m, applytest.Desired(1, applytest.File("f", "/etc/f", "x")))
		m.Disk.Put("/etc/f", systemtest.Thing{Type: typ, Mode: 0o600})
		if got := came(t, m, applytest.Desired(2)); got != "kept: a "+string(typ)+" is in its place" {
			t.Error(got)
		}
		if !strings.Contains(m.Disk.String(), "/etc/f") {
			t.Errorf("the %s is gone", typ)
		}
	}
}

// TestCaseH1AdoptAfterTheStoreIsLost: the declaration is applied again and changes
// nothing, what is unowned is listed, and adopting takes back what still matches.
func TestCaseH1AdoptAfterTheStoreIsLost(t *testing.T) {
	m := systemtest.New()
	d := applytest.Desired(1, applytest.Directory("dir", "/etc/dir", ""), applytest.File("a", "/etc/dir/a", "1"), applytest.File("b", "/etc/b", "1"))
	came(t, m, d)
	damage(m, "journal", "")
	damage(m, "snapshot", "")
	world := applytest.World(m)
	if got := summary(pass(t, m, d)); got != "" {
		t.Errorf("it did something: %s", got)
	}
	if applytest.World(m) != world {
		t.Error("the machine changed")
	}
	if got := orphans(t, m, &d); len(got) != 3 {
		t.Errorf("unowned: %q", got)
	}
	with(t, m, func(a *apply.Applier, s *store.Store) {
		if err := s.Append(store.Acknowledged{}); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Adopt(t.Context(), &d, []string{"/etc/dir", "/etc/dir/a", "/etc/b"}); err != nil {
			t.Fatal(err)
		}
	})
	want := "removed b: it is not declared any more\nremoved a: it is not declared any more\nremoved dir: it is not declared any more\n"
	if got := summary(pass(t, m, applytest.Desired(2))); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
