package store_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"mesh/host/store"
	"mesh/host/system/systemtest"
)

// TestDamagedForgottenMakesDoubtful: what may have been given up by a record that is
// lost is not the host's to remove.
func TestDamagedForgottenMakesDoubtful(t *testing.T) {
	for name, where := range map[string]func(journal string) int{
		"its payload": func(journal string) int { return strings.Index(journal, "by hand") },
		"its header": func(journal string) int {
			return strings.LastIndex(journal[:strings.Index(journal, "by hand")], "mhR1") + 9
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := systemtest.New()
			s, _ := open(t, m)
			must(t, s.Append(owned("/a")))
			must(t, s.Append(store.Forgotten{Key: file("/a"), ID: "a/a", Left: "by hand", Time: now()}))
			must(t, s.Append(owned("/b")))
			must(t, s.Close())
			journal := content(m, "journal")
			b := []byte(journal)
			b[where(journal)] ^= 1
			put(m, "journal", string(b))
			s, _ = open(t, m)
			defer s.Close()
			v := s.View()
			if len(v.Losses) != 1 || !v.Losses[0].Grave || len(v.Owned) != 2 || !v.Owned[0].Doubtful {
				t.Errorf("%+v; %+v", v.Losses, v.Owned)
			}
		})
	}
}

// TestFailedAppendIsNotRecorded: what was refused because it could not be made durable
// is not what whoever opens the store next finds.
func TestFailedAppendIsNotRecorded(t *testing.T) {
	m := systemtest.New()
	s, _ := open(t, m)
	must(t, s.Append(accepted(5), owned("/a")))
	m.Hook(func(op systemtest.Op) error {
		if op.Name == "sync" && strings.HasSuffix(op.Where, "journal") {
			return unix.EIO
		}
		return nil
	})
	if err := s.Append(accepted(9), store.Forgotten{Key: file("/a"), ID: "a/a", Time: now()}); err == nil {
		t.Error("it was taken for durable")
	}
	m.Hook(nil)
	must(t, s.Close())
	s, report := open(t, m)
	defer s.Close()
	if v := s.View(); v.Accepted.Generation != 5 || len(v.Owned) != 1 || len(v.Losses) > 0 || len(report.Notes) > 0 {
		t.Errorf("%+v; %+v; %q", v.Accepted, v.Owned, report.Notes)
	}
}

// TestClosed: without the lock nothing is written, whoever tries.
func TestClosed(t *testing.T) {
	m := systemtest.New()
	s, _ := open(t, m)
	must(t, s.Close())
	other, _ := open(t, m)
	defer other.Close()
	must(t, other.Append(owned("/b")))
	if err := s.Append(owned("/late")); err == nil {
		t.Error("it was written")
	}
	must(t, s.Close())
	must(t, other.Append(owned("/c")))
	if v, _, err := store.Read(directory(m), nil); err != nil || len(v.Owned) != 2 {
		t.Errorf("%+v, %v", v.Owned, err)
	}
}

// TestCopiesLeaveRoomForOthers: one file that somebody rewrites again and again does
// not take the place of the copies of others.
func TestCopiesLeaveRoomForOthers(t *testing.T) {
	m := systemtest.New()
	s, _ := open(t, m)
	defer s.Close()
	copied := func(where, digest string) {
		t.Helper()
		must(t, s.Append(store.Copied{Key: file(where), Digest: digest, Bytes: 10, Time: now()}))
	}
	copied("/etc/precious", "precious")
	for i := range 300 {
		copied("/etc/flaps", "same")
		copied("/etc/counts", strings.Repeat("x", i+1))
	}
	count := map[string]int{}
	for _, c := range s.View().Copies {
		count[c.Where]++
	}
	copies := s.View().Copies
	if count["/etc/precious"] != 1 || count["/etc/flaps"] != 1 || count["/etc/counts"] != 10 || copies[len(copies)-1].Digest != strings.Repeat("x", 300) {
		t.Errorf("%v", count)
	}
}
