package apply_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"mesh/host/apply"
	"mesh/host/apply/applytest"
	"mesh/host/declaration"
	"mesh/host/store"
	"mesh/host/system"
	"mesh/host/system/systemtest"
)

// pass brings m to d and fails the test when the pass as a whole fails.
func pass(t *testing.T, m *systemtest.Machine, d apply.Desired) declaration.Outcome {
	t.Helper()
	out, err := applytest.Pass(context.Background(), m, d)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// summary is a line for each result that is not in sync.
func summary(out declaration.Outcome) string {
	var b strings.Builder
	for _, r := range out.Results {
		if r.Status != declaration.StatusInSync {
			fmt.Fprintf(&b, "%s %s: %s\n", r.Status, r.ID, r.Reason)
		}
	}
	return b.String()
}

func view(t *testing.T, m *systemtest.Machine) store.View {
	t.Helper()
	v, _, err := store.Read(system.NewStateDirectory(m.Files, applytest.StatePath), nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// damage replaces a file of the store.
func damage(m *systemtest.Machine, name, content string) {
	m.Disk.Put(applytest.StatePath+"/"+name, systemtest.Thing{Type: system.TypeFile, Mode: 0o600, Content: content})
}

// TestCaseH1DamagedStore damages the journal of a machine in every way the case
// names: the host starts, says what was lost, removes nothing, and the next
// good declaration converges.
func TestCaseH1DamagedStore(t *testing.T) {
	t.Parallel()
	s := applytest.Demo()
	s.Passes = s.Passes[:1]
	whole := s.Machine()
	pass(t, whole, s.Passes[0])
	journal, _ := whole.Disk.Content(applytest.StatePath + "/journal")
	nothing := systemtest.Loss{Keeps: func(int, int) bool { return true }}

	damaged := map[string]string{"empty": "", "one byte": journal[:1], "all zero": strings.Repeat("\x00", len(journal))}
	// Every single byte is the store's own test; here a few of each record do.
	for n := 0; n < len(journal); n += 11 * stride {
		damaged[fmt.Sprintf("cut to %d bytes", n)] = journal[:n]
		if n%7 == 0 {
			damaged[fmt.Sprintf("byte %d changed", n)] = journal[:n] + string(journal[n]^0x20) + journal[n+1:]
		}
	}
	for name, content := range damaged {
		m := whole.PowerCut(nothing)
		damage(m, "journal", content)
		before := applytest.World(m)
		st, report, err := applytest.Open(m)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(report.Notes) == 0 && !ends(journal, len(content)) {
			t.Errorf("%s: nothing is said", name)
		}
		st.Close()
		out := pass(t, m, s.Passes[0])
		if got := summary(out); strings.Contains(got, "removed") || strings.Contains(got, "failed") {
			t.Errorf("%s: %s", name, got)
		}
		if after := applytest.World(m); after != before {
			t.Fatalf("%s: the same declaration changed the machine:\n%s---\n%s", name, before, after)
		}
		if out := pass(t, m, applytest.Desired(2, s.Passes[0].Resources...)); summary(out) != "" {
			t.Errorf("%s: the next pass is not quiet: %s", name, summary(out))
		}
	}
}

// ends says whether a record of the journal ends at byte n: a cut there cannot
// be seen.
func ends(journal string, n int) bool {
	return n > 0 && (n == len(journal) || strings.HasPrefix(journal[n:], "mhR1"))
}

// TestCaseH1EverythingLost: with the whole store gone bad nothing that was made
// is removed, what was lost is listed, and what is made from then on is owned.
func TestCaseH1EverythingLost(t *testing.T) {
	m := systemtest.New()
	first := applytest.Desired(1, applytest.File("a/one", "/etc/one", "1"), applytest.File("a/two", "/etc/two", "2"))
	pass(t, m, first)
	damage(m, "journal", "\x00")
	damage(m, "snapshot", "")

	out := pass(t, m, applytest.Desired(2, applytest.File("a/one", "/etc/one", "1"), applytest.File("a/three", "/etc/three", "3")))
	if got, want := summary(out), "changed a/three: it is not there\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	v := view(t, m)
	if len(v.Losses) != 2 || !v.Losses[1].Grave {
		t.Errorf("losses: %+v", v.Losses)
	}
	for _, o := range v.Owned {
		if found := o.Where == "/etc/one"; o.Found() != found {
			t.Errorf("%s found: %t", o.Where, o.Found())
		}
	}

	out = pass(t, m, applytest.Desired(3))
	want := "removed a/three: it is not declared any more\nkept a/one: it was there before it was first declared\n"
	if got := summary(out); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if kept, ok := m.Disk.Content("/etc/two"); !ok || kept != "2" {
		t.Error("a file of which the record was lost is gone")
	}
	for _, name := range []string{"journal.damaged", "snapshot.damaged"} {
		if _, ok := m.Disk.Content(applytest.StatePath + "/" + name); !ok {
			t.Errorf("%s was not kept", name)
		}
	}
}

// TestCaseH1DoubtfulRemoval: the snapshot survived a lost journal, so its
// records may be outdated: what they say is not removed until it is confirmed.
func TestCaseH1DoubtfulRemoval(t *testing.T) {
	m := systemtest.New()
	one, two := applytest.File("a/one", "/etc/one", "1"), applytest.File("a/two", "/etc/two", "2")
	pass(t, m, applytest.Desired(1, one, two))
	damage(m, "snapshot", "x") // a damaged snapshot is rewritten with all that is known
	pass(t, m, applytest.Desired(1, one, two))
	damage(m, "journal", "")

	out := pass(t, m, applytest.Desired(2, one))
	if got := summary(out); !strings.HasPrefix(got, "kept a/two: the record of it is older than a loss") {
		t.Errorf("got %q", got)
	}
	out = pass(t, m, applytest.Desired(3))
	if got := summary(out); !strings.Contains(got, "removed a/one") || !strings.Contains(got, "kept a/two") {
		t.Errorf("a confirmed record removes, a doubtful one does not: %q", got)
	}
	s, _, err := applytest.Open(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Append(store.Acknowledged{Time: applytest.Clock()}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if got := summary(pass(t, m, applytest.Desired(3))); got != "removed a/two: it is not declared any more\n" {
		t.Errorf("after the loss was acknowledged: %q", got)
	}
}

// killedBefore is a hook that stops the host before the nth call of this name.
func killedBefore(name, where string) func(systemtest.Op) error {
	return func(op systemtest.Op) error {
		if op.Name == name && strings.Contains(op.Where, where) {
			return systemtest.ErrCut
		}
		return nil
	}
}

// TestCaseH2MadeAndNotRecorded: killed between making a file and recording it;
// the next declaration is empty.
func TestCaseH2MadeAndNotRecorded(t *testing.T) {
	for _, tt := range []struct {
		name  string
		since string // what somebody else made of the file in between
		want  string
		left  string
	}{
		{name: "it is still ours", want: "removed a/file: it is not declared any more\n"},
		{name: "somebody changed it", since: "by hand", want: "", left: "what is there is neither what was nor what was to be"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := systemtest.New()
			renamed := false
			m.Hook(func(op systemtest.Op) error {
				if renamed && op.Name == "write" && strings.HasSuffix(op.Where, "journal") {
					return systemtest.ErrCut
				}
				renamed = renamed || op.Name == "sync directory" && op.Where == "/etc"
				return nil
			})
			if _, err := applytest.Pass(context.Background(), m, applytest.Desired(1, applytest.File("a/file", "/etc/file", "x"))); err == nil {
				t.Fatal("the host was not killed")
			}
			m.Killed()
			if content, _ := m.Disk.Content("/etc/file"); content != "x" {
				t.Fatal("the file was not made")
			}
			if v := view(t, m); len(v.Owned) != 0 || len(v.Intents) != 1 {
				t.Fatalf("it was recorded: %+v", v)
			}
			if tt.since != "" {
				m.Disk.Put("/etc/file", systemtest.Thing{Type: system.TypeFile, Mode: 0o644, Content: tt.since})
			}
			if got := summary(pass(t, m, applytest.Desired(2))); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			_, there := m.Disk.Content("/etc/file")
			left := view(t, m).Left
			switch {
			case tt.left == "" && (there || len(left) != 0):
				t.Errorf("there: %t, left: %+v", there, left)
			case tt.left != "" && (!there || len(left) != 1 || left[0].Left != tt.left):
				t.Errorf("there: %t, left: %+v", there, left)
			}
		})
	}
}

// h3 is a service that restarts because of a file, and something that fails
// behind it.
func h3(generation uint64, content string) apply.Desired {
	return applytest.Desired(generation,
		applytest.File("a/file", "/etc/file", content),
		applytest.Service("a/service", "a.service", "a/file"),
		applytest.File("a/nowhere", "/nowhere/file", "x"))
}

// TestCaseH3OwedRestart: killed between the change of a file and the restart of
// its service; a later resource fails; a reboot.
func TestCaseH3OwedRestart(t *testing.T) {
	for _, reboot := range []bool{false, true} {
		t.Run(fmt.Sprintf("reboot %t", reboot), func(t *testing.T) {
			m := systemtest.New()
			m.AddUnit(systemtest.Unit{Name: "a.service", Active: "active", Enabled: "enabled", Reads: []string{"/etc/file"}})
			pass(t, m, h3(1, "one"))
			m.Hook(killedBefore("restart", "a.service"))
			if _, err := applytest.Pass(context.Background(), m, h3(2, "two")); err == nil {
				t.Fatal("the host was not killed")
			}
			if reboot {
				m = m.PowerCut(systemtest.Loss{Keeps: func(int, int) bool { return false }})
			} else {
				m.Killed()
			}
			before := m.Restarts("a.service")
			if content, _ := m.Disk.Content("/etc/file"); content != "two" {
				t.Fatal("the file did not change")
			}
			debts := view(t, m).Debts
			if len(debts) != 1 || debts[0].ID != "a/file" || debts[0].Because.Where != "/etc/file" || debts[0].Generation != 2 || debts[0].Time != applytest.Clock() {
				t.Errorf("who owes it, and since when: %+v", debts)
			}
			out := pass(t, m, h3(2, "two"))
			want := "changed a/service: it owes a restart because of a/file (file /etc/file) since generation 2\n" +
				"failed a/nowhere: /nowhere/file: the directory it lies in is not there: declare it before this: file does not exist\n"
			if got := summary(out); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			pass(t, m, h3(2, "two"))
			if n := m.Restarts("a.service") - before; n != 1 {
				t.Errorf("restarted %d times", n)
			}
			if debts := view(t, m).Debts; len(debts) != 0 {
				t.Errorf("still owed: %+v", debts)
			}
		})
	}
}

// TestCaseH3RestartedAndNotRecorded: killed after the restart and before it was
// recorded; it is not done twice.
func TestCaseH3RestartedAndNotRecorded(t *testing.T) {
	m := systemtest.New()
	m.AddUnit(systemtest.Unit{Name: "a.service", Active: "active", Enabled: "enabled", Reads: []string{"/etc/file"}})
	pass(t, m, h3(1, "one"))
	before, restarted := m.Restarts("a.service"), false
	m.Hook(func(op systemtest.Op) error {
		if restarted && op.Changes {
			return systemtest.ErrCut
		}
		restarted = restarted || op.Name == "restart"
		return nil
	})
	if _, err := applytest.Pass(context.Background(), m, h3(2, "two")); err == nil {
		t.Fatal("the host was not killed")
	}
	m.Killed()
	pass(t, m, h3(2, "two"))
	if n := m.Restarts("a.service") - before; n != 1 {
		t.Errorf("restarted %d times", n)
	}
	if v := view(t, m); len(v.Debts)+len(v.Intents) != 0 {
		t.Errorf("still open: %+v %+v", v.Debts, v.Intents)
	}
}

// TestCaseH3FailedRestart: a restart that fails stays owed until it works.
func TestCaseH3FailedRestart(t *testing.T) {
	m := systemtest.New()
	m.AddUnit(systemtest.Unit{Name: "a.service", Active: "active", Enabled: "enabled", Reads: []string{"/etc/file"}})
	pass(t, m, h3(1, "one"))
	m.AddUnit(systemtest.Unit{Name: "a.service", Active: "active", Enabled: "enabled", Reads: []string{"/etc/file"}, Fails: "exit status 1"})
	for range 3 {
		out := pass(t, m, h3(2, "two"))
		if i := slices.IndexFunc(out.Results, func(r declaration.Result) bool { return r.ID == "a/service" }); out.Results[i].Status != declaration.StatusFailed {
			t.Errorf("%+v", out.Results[i])
		}
		if debts := view(t, m).Debts; len(debts) != 1 || debts[0].Generation != 2 {
			t.Errorf("owed: %+v", debts)
		}
	}
	m.AddUnit(systemtest.Unit{Name: "a.service", Active: "failed", Enabled: "enabled", Reads: []string{"/etc/file"}})
	pass(t, m, h3(2, "two"))
	if v := view(t, m); len(v.Debts) != 0 || len(m.Stale()) != 0 {
		t.Errorf("owed: %+v, stale: %v", v.Debts, m.Stale())
	}
}

// TestCaseH5LinkInTheWay: nothing is written through a link, and the component
// is named.
func TestCaseH5LinkInTheWay(t *testing.T) {
	m := systemtest.New()
	m.Disk.Put("/etc/dir", systemtest.Thing{Type: system.TypeLink})
	m.Disk.Put("/etc/link", systemtest.Thing{Type: system.TypeLink})
	m.Disk.Put("/etc/pipe", systemtest.Thing{Type: system.TypeFIFO})
	m.Disk.Put("/etc/null", systemtest.Thing{Type: system.TypeDevice})
	before := applytest.World(m)
	out := pass(t, m, applytest.Desired(1,
		applytest.File("a/below", "/etc/dir/file", "x"),
		applytest.File("a/link", "/etc/link", "x"),
		applytest.File("a/pipe", "/etc/pipe", "x"),
		applytest.Directory("a/null", "/etc/null", "")))
	want := "failed a/below: /etc/dir: /etc/dir is a symbolic link, which is not followed or replaced: move it away, or declare another path\n" +
		"failed a/link: a symbolic link is in the way: move it away, or declare another path\n" +
		"failed a/pipe: a fifo is in the way: move it away, or declare another path\n" +
		"failed a/null: a device is in the way: move it away, or declare another path\n"
	if got := summary(out); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if after := applytest.World(m); after != before {
		t.Errorf("the machine changed:\n%s", after)
	}
}

// TestCaseH5SwappedDuringApply: a directory becomes a link after it was looked
// at and before it is written to.
func TestCaseH5SwappedDuringApply(t *testing.T) {
	m := systemtest.New()
	m.Disk.Put("/etc/dir", systemtest.Thing{Type: system.TypeDirectory, Mode: 0o755})
	s, _, err := applytest.Open(m)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a := apply.New(apply.Config{Machine: m, Store: s, Now: applytest.Clock, Watch: func(apply.Activity) {
		m.Disk.Put("/etc/dir", systemtest.Thing{Type: system.TypeLink})
	}})
	out, err := a.Reconcile(context.Background(), applytest.Desired(1, applytest.File("a/file", "/etc/dir/file", "x")))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := summary(out), "failed a/file: /etc/dir: /etc/dir is a symbolic link, which is not followed or replaced: move it away, or declare another path\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestSlowService: one that never comes to the end of its start is said to go on,
// is not started again and again, keeps nothing else waiting, and reads a file that
// changes meanwhile.
func TestSlowService(t *testing.T) {
	m := systemtest.New()
	m.AddUnit(systemtest.Unit{Name: "a.service", Slow: true, Reads: []string{"/etc/file"}})
	desired := func(generation uint64, says string) apply.Desired {
		return applytest.Desired(generation,
			declaration.Resource{ID: "f", File: &declaration.File{Path: "/etc/file", Content: says}},
			declaration.Resource{ID: "s", Service: &declaration.Service{Unit: "a.service", RestartOn: []string{"f"}}},
			declaration.Resource{ID: "after", File: &declaration.File{Path: "/etc/after", Content: says}})
	}
	pass := func(d apply.Desired) string {
		t.Helper()
		out, err := applytest.Pass(t.Context(), m, d)
		if err != nil || content(m, "/etc/after") != d.Resources[2].File.Content || len(m.Stale()) > 0 {
			t.Errorf("%v; %q; stale: %q", err, content(m, "/etc/after"), m.Stale())
		}
		return string(out.Results[1].Status)
	}
	var became []string
	for _, d := range []apply.Desired{desired(1, "1"), desired(1, "1"), desired(2, "2"), desired(2, "2")} {
		became = append(became, pass(d))
	}
	if got := strings.Join(became, " "); got != "failed in_sync failed in_sync" {
		t.Error(got)
	}
	if v := viewOf(t, m); len(v.Debts)+len(v.Intents) > 0 || len(v.Owned) != 3 {
		t.Errorf("%+v", v)
	}
}

// TestCaseH1ReleasedIsNotRemoved: a file that was given up by hand stays, though the
// record of that is damaged.
func TestCaseH1ReleasedIsNotRemoved(t *testing.T) {
	m := systemtest.New()
	pass(t, m, applytest.Desired(1, applytest.File("a/one", "/etc/one", "1"), applytest.File("a/two", "/etc/two", "2")))
	s, _, err := applytest.Open(m)
	if err != nil {
		t.Fatal(err)
	}
	_, err = apply.New(apply.Config{Machine: m, Store: s, Now: applytest.Clock}).Release([]string{"/etc/two"})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	left := applytest.File("a/one", "/etc/one", "1b")
	pass(t, m, applytest.Desired(2, left))
	journal := []byte(content(m, applytest.StatePath+"/journal"))
	journal[strings.Index(string(journal), "released by hand")] ^= 1
	damage(m, "journal", string(journal))
	for generation := range uint64(2) {
		pass(t, m, applytest.Desired(3+generation, left))
		if got := content(m, "/etc/two"); got != "2" {
			t.Fatalf("it is %s", got)
		}
	}
}
