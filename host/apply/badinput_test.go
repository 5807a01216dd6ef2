package apply_test

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mesh/host/apply"
	"mesh/host/apply/applytest"
	"mesh/host/declaration"
	"mesh/host/system"
	"mesh/host/system/systemtest"
)

// TestBadInputOnTheMachine is the list of what can be wrong with a machine, one
// case each. The resource is named with what is wrong and what to do, nothing of
// it is half done, and the one behind it is applied.
func TestBadInputOnTheMachine(t *testing.T) {
	f := func(path string) declaration.Resource { return applytest.File("bad", path, "x") }
	inWay := func(typ system.Type) func(*systemtest.Machine) {
		return func(m *systemtest.Machine) { m.Disk.Put("/etc/bad", systemtest.Thing{Type: typ, Mode: 0o600}) }
	}
	refusing := func(errno unix.Errno) func(*systemtest.Machine) {
		return func(m *systemtest.Machine) {
			m.Hook(func(op systemtest.Op) error {
				grows := op.Name == "create" || op.Name == "write"
				if op.Changes && strings.HasPrefix(op.Where, "/srv/") && (grows || errno == unix.EROFS) {
					return errno
				}
				return nil
			})
		}
	}
	blob := declaration.Resource{ID: "bad", File: &declaration.File{Path: "/etc/bad", Blob: blobOf("what was declared")}}
	for _, tc := range []struct {
		name    string
		machine func(*systemtest.Machine)
		bad     declaration.Resource
		want    string
	}{
		{"a link in the way", inWay(system.TypeLink), f("/etc/bad"), "failed: a symbolic link is in the way: move it away, or declare another path"},
		{"a device in the way", inWay(system.TypeDevice), f("/etc/bad"), "failed: a device is in the way"},
		{"a fifo in the way", inWay(system.TypeFIFO), f("/etc/bad"), "failed: a fifo is in the way"},
		{"a link on the way", inWay(system.TypeLink), f("/etc/bad/x"), "failed: /etc/bad: /etc/bad is a symbolic link, which is not followed or replaced"},
		{"a directory for a file", inWay(system.TypeDirectory), f("/etc/bad"), "failed: a directory is in the way"},
		{"no directory to lie in", nil, f("/etc/none/bad"), "failed: /etc/none/bad: the directory it lies in is not there: declare it before this"},
		{"an unknown user", nil, declaration.Resource{ID: "bad", File: &declaration.File{Path: "/etc/bad", Owner: "nobody-knows"}},
			`failed: user "nobody-knows" does not exist on this machine: is the package that brings it declared before this?`},
		{"an unknown group", nil, declaration.Resource{ID: "bad", Directory: &declaration.Directory{Path: "/etc/bad", Group: "nobody-knows"}}, `failed: group "nobody-knows" does not exist`},
		{"a unit that does not exist", nil, applytest.Service("bad", "none.service"), "failed: enable none.service: unit none.service does not exist"},
		{"a package that does not exist", nil, declaration.Resource{ID: "bad", Package: &declaration.Package{Name: "none"}}, "failed: install package none: no source offers it"},
		{"content that has not come", nil, blob, "waiting: it waits for its content, 17 bytes of digest"},
		{"content of another digest", func(m *systemtest.Machine) {
			digest, err := m.KeepContent([]byte("what was declared"))
			if err != nil {
				panic(err)
			}
			put(m, m.ContentPath(digest), "what was declarad")
		}, blob, "failed: read content"},
		{"a full disk", refusing(unix.ENOSPC), f("/srv/bad"), "no space left on device"},
		{"a read-only disk", refusing(unix.EROFS), f("/srv/bad"), "read-only file system"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := systemtest.New()
			m.Disk.Put(applytest.StatePath, systemtest.Thing{Type: system.TypeDirectory, Mode: 0o700})
			if tc.machine != nil {
				tc.machine(m)
			}
			out, err := applytest.Pass(t.Context(), m, applytest.Desired(1, tc.bad, applytest.File("good", "/etc/good", "good")))
			if err != nil {
				t.Fatal(err)
			}
			r := out.Results[0]
			if got := string(r.Status) + ": " + r.Reason; r.ID != "bad" || r.Where != tc.bad.Where() || !strings.Contains(got, tc.want) {
				t.Errorf("\n got: %s: %s\nwant: …%s…", r.ID, got, tc.want)
			}
			if out.Results[1].Status != declaration.StatusChanged || content(m, "/etc/good") != "good" {
				t.Errorf("the rest did not go on: %+v", out.Results[1])
			}
			m.Hook(nil)
			if strings.Contains(m.Disk.String(), system.TemporaryPrefix) || content(m, tc.bad.Where()) != "(nothing)" {
				t.Errorf("something is half done:\n%s", m.Disk)
			}
		})
	}
}

// TestBadInputClock: with a clock in 1970, or one that goes back, everything is
// applied, and what is owned is removed.
func TestBadInputClock(t *testing.T) {
	m := systemtest.New()
	d := applytest.Desired(1, applytest.File("a", "/etc/a", "1"))
	for i, now := range []time.Time{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(0, 0), time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)} {
		put(m, "/etc/a", "by hand")
		s, _, err := applytest.Open(m)
		if err != nil {
			t.Fatal(err)
		}
		a := apply.New(apply.Config{Machine: m, Store: s, Now: func() time.Time { return now }})
		if i == 2 {
			d = applytest.Desired(2)
			put(m, "/etc/a", "1")
		}
		if _, err := a.Reconcile(t.Context(), d); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if want := []string{"1", "1", "(nothing)"}[i]; content(m, "/etc/a") != want {
			t.Errorf("at %s: %s, want %s", now, content(m, "/etc/a"), want)
		}
	}
}
