package upgrade_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"mesh/host/system"
	"mesh/host/system/systemtest"
	"mesh/host/upgrade"
)

const (
	program   = "/usr/bin/mesh-host"
	directory = "/var/lib/mesh-host/program"
	old       = "program 1.0"
	fresh     = "program 2.0"
)

func now() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }

// behaviour is what a program does when it is started and is on trial: what it
// says of itself, and what systemd says when it ended.
type behaviour struct {
	healthy              bool
	says                 string
	result, code, status string
	reason               string // that is remembered
}

var (
	healthy = behaviour{healthy: true}
	broken  = map[string]behaviour{
		"segfault":            {result: "core-dump", code: "dumped", status: "SEGV", reason: "it was killed by SIGSEGV"},
		"exit 1":              {result: "exit-code", code: "exited", status: "1", reason: "it ended with status 1"},
		"exit 0":              {result: "protocol", code: "exited", status: "0", reason: "it ended by itself before it was healthy"},
		"hang":                {result: "timeout", code: "killed", status: "TERM", reason: "it did not become healthy in time"},
		"no program":          {result: "exit-code", code: "exited", status: "203", reason: "it could not be executed"},
		"out of memory":       {result: "oom-kill", code: "killed", status: "KILL", reason: "it was killed because memory ran out"},
		"cannot read":         {says: "open the store:\nnot one record", result: "exit-code", code: "exited", status: "1", reason: "open the store: not one record"},
		"takes the machine":   {reason: "it went down with the machine"},
		"an unheard-of thing": {result: "new", code: "x", status: "y", reason: "it ended (new x y)"},
	}
)

// machine is one on which 1.0 proved itself and dpkg has put 2.0 in its place.
func machine(t *testing.T) *systemtest.Machine {
	t.Helper()
	m := systemtest.New()
	for _, p := range []string{"/usr", "/usr/bin", "/var/lib/mesh-host", directory} {
		m.Disk.Put(p, systemtest.Thing{Type: system.TypeDirectory, Mode: 0o755})
	}
	install(m, old)
	if err := keeper(m, old).Keep([]byte(old), "package-1.0"); err != nil {
		t.Fatal(err)
	}
	install(m, fresh)
	return m
}

// install is what dpkg does.
func install(m *systemtest.Machine, content string) {
	m.Disk.Put(program, systemtest.Thing{Type: system.TypeFile, Mode: 0o755, Content: content})
}

// keeper is that of the program with this content.
func keeper(m *systemtest.Machine, content string) *upgrade.Keeper {
	return upgrade.New(upgrade.Config{
		Files: m.Files, Directory: directory, Program: program, Version: strings.TrimPrefix(content, "program "), Now: now,
	})
}

func content(m *systemtest.Machine, path string) string {
	c, _ := m.Disk.Content(path)
	return c
}

// start is one start of the unit: what is there is watched by what is kept, and
// behaves. It says whether the program runs on.
func start(m *systemtest.Machine, newVersion behaviour) (runs bool, err error) {
	guard := keeper(m, content(m, directory+"/good"))
	if _, err := guard.Begin(func() string { return "2.0" }); err != nil {
		return false, err
	}
	running := content(m, program)
	self := keeper(m, running)
	standing, err := self.Standing(sum(running))
	switch {
	case err != nil:
		return false, err
	case standing == upgrade.Known:
		return true, nil
	case newVersion.healthy:
		return true, self.Keep([]byte(running), "")
	case newVersion.says != "":
		if err := self.Failed(newVersion.says); err != nil {
			return false, err
		}
	}
	if newVersion.result == "" {
		return false, nil // nobody is there to say how it ended
	}
	return false, guard.End(newVersion.result, newVersion.code, newVersion.status)
}

func sum(content string) string {
	m := systemtest.New()
	m.Disk.Put("/srv/x", systemtest.Thing{Type: system.TypeFile, Content: content})
	e, _ := m.Look("/srv/x")
	return e.Digest
}

// supervise starts the unit until it runs, and counts.
func supervise(m *systemtest.Machine, b behaviour) (starts int, err error) {
	for starts = 1; starts <= 2*upgrade.Attempts+2; starts++ {
		runs, err := start(m, b)
		if err != nil || runs {
			return starts, err
		}
	}
	return starts, errors.New("it never ran")
}

// always holds at every moment.
func always(m *systemtest.Machine) error {
	for _, path := range []string{program, directory + "/good"} {
		if c := content(m, path); c != old && c != fresh {
			return fmt.Errorf("%s holds %q", path, c)
		}
	}
	return nil
}

// concluded holds once the unit runs again.
func concluded(m *systemtest.Machine, b behaviour) error {
	want := fresh
	if !b.healthy {
		want = old
	}
	for _, path := range []string{program, directory + "/good"} {
		if c := content(m, path); c != want {
			return fmt.Errorf("%s holds %q, not %q", path, c, want)
		}
	}
	if b.healthy { // then dpkg's work is at the path, with its mode
		if e, err := m.Look(directory + "/good"); err != nil || e.Mode != 0o700 {
			return fmt.Errorf("what is kept has mode %o: %w", e.Mode, err)
		}
	} else if e, err := m.Look(program); err != nil || e.Mode != 0o755 {
		return fmt.Errorf("what was put back has mode %o: %w", e.Mode, err)
	}
	if strings.Contains(m.Disk.String(), system.TemporaryPrefix) {
		return fmt.Errorf("a temporary file stays:\n%s", m.Disk)
	}
	s, err := keeper(m, old).Read()
	switch {
	case err != nil:
		return err
	case s.Trial != nil:
		return fmt.Errorf("a trial stays: %+v", *s.Trial)
	case b.healthy && (len(s.Broken) > 0 || s.Kept == nil || s.Kept.Version != "2.0"):
		return fmt.Errorf("what works is not on record: %+v", s)
	case !b.healthy && (len(s.Broken) != 1 || s.Broken[0].Version != "2.0" || s.Kept == nil || s.Kept.Version != "1.0" || s.Kept.Package != "package-1.0"):
		return fmt.Errorf("what is broken is not on record: %+v", s)
	}
	return nil
}

// A version that does not become healthy in three starts is put back, and its
// reason remembered, whatever it does (case H4).
func TestCaseH4BrokenVersions(t *testing.T) {
	for name, b := range broken {
		t.Run(name, func(t *testing.T) {
			m := machine(t)
			starts, err := supervise(m, b)
			if err := errors.Join(err, concluded(m, b)); err != nil {
				t.Fatal(err)
			}
			if starts != upgrade.Attempts+1 {
				t.Errorf("it took %d starts", starts)
			}
			s, _ := keeper(m, old).Read()
			if s.Broken[0].Reason != b.reason {
				t.Errorf("the reason is %q, wanted %q", s.Broken[0].Reason, b.reason)
			}

			install(m, fresh) // by hand, once more
			if starts, err := supervise(m, b); starts != 1 || err != nil {
				t.Errorf("what is known to be broken was started %d times: %v", starts-1, err)
			}
			if err := concluded(m, b); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestHealthyVersion(t *testing.T) {
	m := machine(t)
	starts, err := supervise(m, healthy)
	if err := errors.Join(err, concluded(m, healthy)); err != nil || starts != 1 {
		t.Errorf("%d starts: %v", starts, err)
	}
}

// A start that is called off does not count: somebody stops the unit, or the
// machine shuts down, as often as he likes.
func TestStartsThatAreCalledOff(t *testing.T) {
	m := machine(t)
	for range 10 {
		if _, err := start(m, behaviour{result: "success", code: "exited", status: "0"}); err != nil {
			t.Fatal(err)
		}
	}
	if c := content(m, program); c != fresh {
		t.Fatalf("%q was put back", c)
	}
	if _, err := supervise(m, healthy); err != nil || concluded(m, healthy) != nil {
		t.Error(err, concluded(m, healthy))
	}
}

// What a version said of a start that was then called off is not taken for the
// reason of a later one.
func TestReasonOfAStartThatWasCalledOff(t *testing.T) {
	m := machine(t)
	called := behaviour{says: "it is in the way of something", result: "success", code: "exited", status: "0"}
	down := broken["takes the machine"]
	for _, b := range []behaviour{down, down, called, down} {
		if _, err := start(m, b); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := supervise(m, healthy); err != nil {
		t.Fatal(err)
	}
	s, _ := keeper(m, old).Read()
	if len(s.Broken) != 1 || s.Broken[0].Reason != down.reason {
		t.Errorf("%+v", s)
	}
}

// Each version has three starts of its own, however many come one after another;
// and a trial is over when what works is installed again.
func TestVersionsOneAfterAnother(t *testing.T) {
	m := machine(t)
	for _, c := range []string{fresh, "program 3.0", "program 4.0"} {
		install(m, c)
		for range upgrade.Attempts - 1 {
			if _, err := start(m, broken["exit 1"]); err != nil {
				t.Fatal(err)
			}
		}
		if s, _ := keeper(m, old).Read(); content(m, program) != c || s.Trial == nil || s.Trial.Starts != upgrade.Attempts-1 || len(s.Broken) > 0 {
			t.Fatalf("%s: %+v", c, s)
		}
	}
	install(m, old)
	if runs, err := start(m, healthy); err != nil || !runs {
		t.Fatal(err)
	}
	if s, _ := keeper(m, old).Read(); s.Trial != nil || len(s.Broken) > 0 {
		t.Errorf("%+v", s)
	}
}

// A version that was broken and works after all, in another build, is not broken.
func TestVersionThatWorksAfterAll(t *testing.T) {
	m := machine(t)
	if _, err := supervise(m, broken["exit 1"]); err != nil {
		t.Fatal(err)
	}
	rebuilt := fresh + " rebuilt"
	install(m, rebuilt)
	if err := upgrade.New(upgrade.Config{Files: m.Files, Directory: directory, Program: program, Version: "2.0", Now: now}).Keep([]byte(rebuilt), ""); err != nil {
		t.Fatal(err)
	}
	if s, _ := keeper(m, old).Read(); len(s.Broken) > 0 {
		t.Errorf("%+v", s)
	}
}

// TestCutAtEveryChange cuts the power, with any part lost of what was not
// synced, and kills, before every change on the way, and again while it goes on.
func TestCutAtEveryChange(t *testing.T) {
	behaviours := map[string]behaviour{"healthy": healthy, "exit 1": broken["exit 1"], "cannot read": broken["cannot read"]}
	for name, b := range behaviours {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			seen := map[string]bool{}
			for k := 1; ; k++ {
				m := machine(t)
				m.Hook(systemtest.CutAt(k))
				_, err := supervise(m, b)
				if !m.Off() {
					if err != nil {
						t.Fatal(err)
					}
					break
				}
				for _, loss := range systemtest.Losses(m.Pending(), random) {
					up := m.PowerCut(loss)
					if seen[up.String()] {
						continue
					}
					seen[up.String()] = true
					if err := goesOn(up, b, 0); err != nil {
						t.Fatalf("cut before change %d, %s: %v", k, loss.Name, err)
					}
					again := m.PowerCut(loss)
					if err := goesOn(again, b, 1+random.IntN(12)); err != nil {
						t.Fatalf("cut before change %d, %s, and again: %v", k, loss.Name, err)
					}
				}
				m.Killed()
				if err := goesOn(m, b, 0); err != nil {
					t.Fatalf("killed before change %d: %v", k, err)
				}
			}
			if len(seen) < 20 {
				t.Errorf("%d different machines came up: too few to show anything", len(seen))
			}
		})
	}
}

// goesOn checks a machine that came up; cut is when its power is cut once more.
func goesOn(m *systemtest.Machine, b behaviour, cut int) error {
	if err := always(m); err != nil {
		return err
	}
	if cut > 0 {
		m.Hook(systemtest.CutAt(cut))
		if _, err := supervise(m, b); m.Off() {
			m = m.PowerCut(systemtest.Loss{Keeps: func(i, _ int) bool { return i%2 == 0 }})
			if err := always(m); err != nil {
				return err
			}
		} else if err != nil {
			return err
		}
		m.Hook(nil)
	}
	_, err := supervise(m, b)
	return errors.Join(err, concluded(m, b))
}

// TestErrorAtEveryCall lets each call fail once; the next start goes on.
func TestErrorAtEveryCall(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EIO, unix.ENOSPC, unix.EROFS} {
		for k := 1; ; k++ {
			m, fired := machine(t), false
			fail := systemtest.FailAt(k, errno)
			m.Hook(func(op systemtest.Op) error {
				if !op.Changes && errno != unix.EIO {
					return nil
				}
				err := fail(op)
				fired = fired || err != nil
				return err
			})
			runs := false
			for range 10 { // systemd starts it whatever Begin and End say
				var err error
				if runs, err = start(m, broken["exit 1"]); err == nil && runs {
					break
				}
				if err := always(m); err != nil {
					t.Fatalf("%s at call %d: %v", errno, k, err)
				}
			}
			m.Hook(nil)
			if err := concluded(m, broken["exit 1"]); err != nil || !runs {
				t.Fatalf("%s at call %d: %v", errno, k, err)
			}
			if !fired {
				break
			}
		}
	}
}

func TestBegin(t *testing.T) {
	link := systemtest.Thing{Type: system.TypeLink}
	for name, tc := range map[string]struct {
		prepare func(m *systemtest.Machine)
		said    string
		program string
	}{
		"nothing is kept": {func(m *systemtest.Machine) { m.Disk.Put(directory+"/good", systemtest.Thing{}) }, "", fresh},
		"the program is gone": {func(m *systemtest.Machine) { m.Disk.Put(program, systemtest.Thing{}) },
			"there is no program at /usr/bin/mesh-host; version 1.0 is put back", old},
		"somebody put a link there": {func(m *systemtest.Machine) { m.Disk.Put(program, link) }, "", ""},
		"the record is damaged": {func(m *systemtest.Machine) {
			m.Disk.Put(directory+"/state", systemtest.Thing{Type: system.TypeFile, Content: `{"format":1,"tri`})
		}, "version 2.0 is on trial, start 1 of 3", fresh},
		"the same again": {func(m *systemtest.Machine) { install(m, old) }, "", old},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine(t)
			tc.prepare(m)
			said, err := keeper(m, old).Begin(func() string { return "2.0" })
			if err != nil || said != tc.said || content(m, program) != tc.program {
				t.Errorf("%q, %v; %q is there", said, err, content(m, program))
			}
		})
	}
}

// A program that came by another way than dpkg has no version: what dpkg says is
// that of the one that works.
func TestProgramUnknownToDpkg(t *testing.T) {
	m := machine(t)
	for range upgrade.Attempts + 1 {
		if _, err := keeper(m, old).Begin(func() string { return "1.0" }); err != nil {
			t.Fatal(err)
		}
	}
	s, err := keeper(m, old).Read()
	if err != nil || len(s.Broken) != 1 || s.Broken[0].Version != "" {
		t.Errorf("%+v, %v", s, err)
	}
}

// repacked is a machine on which 2.0 is broken and dpkg has put the same program
// in place once more, as 2.1.
func repacked(t *testing.T) *systemtest.Machine {
	t.Helper()
	m := machine(t)
	if _, err := supervise(m, broken["exit 1"]); err != nil {
		t.Fatal(err)
	}
	install(m, fresh)
	return m
}

func repackedVersion() string { return "2.1" }

// A program that is known to be broken is put back at once under whichever version
// it comes; and dpkg's name for it is known as broken, so that nobody takes it for
// what runs, until it may be tried again under any of its names.
func TestBrokenProgramUnderAnotherVersion(t *testing.T) {
	m := repacked(t)
	want := []upgrade.Broken{
		{Version: "2.0", Digest: sum(fresh), Since: now(), Reason: "it ended with status 1"},
		{Version: "2.1", Digest: sum(fresh), Since: now(), Reason: "it ended with status 1"},
	}
	for range 2 { // the second time there is nothing to add
		install(m, fresh)
		said, err := keeper(m, old).Begin(repackedVersion)
		if err != nil || content(m, program) != old || !strings.HasSuffix(said, "; version 1.0 is put back") {
			t.Fatalf("%q, %v; %q is there", said, err, content(m, program))
		}
		s, err := keeper(m, old).Read()
		if diff := cmp.Diff(want, s.Broken); diff != "" || err != nil {
			t.Fatal(err, diff)
		}
	}
	if err := keeper(m, old).Forget("2.0"); err != nil {
		t.Fatal(err)
	}
	install(m, fresh)
	if said, err := keeper(m, old).Begin(repackedVersion); err != nil || said != "version 2.1 is on trial, start 1 of 3" {
		t.Errorf("forgotten, it is begun with %q: %v", said, err)
	}
}

// What dpkg does not say, or says of the version that works, is no name for it.
func TestBrokenProgramWithoutAVersion(t *testing.T) {
	for _, version := range []string{"", "1.0"} {
		m := repacked(t)
		if _, err := keeper(m, old).Begin(func() string { return version }); err != nil {
			t.Fatal(err)
		}
		if s, err := keeper(m, old).Read(); err != nil || len(s.Broken) != 1 || content(m, program) != old {
			t.Errorf("dpkg says %q: %+v, %v", version, s, err)
		}
	}
}

// Wherever the power is cut, the old program is back only once the other name of
// the broken one is known.
func TestCutWhileABrokenProgramIsPutBack(t *testing.T) {
	known := func(m *systemtest.Machine) (bool, error) {
		s, err := keeper(m, old).Read()
		return slices.ContainsFunc(s.Broken, func(b upgrade.Broken) bool { return b.Version == "2.1" }), err
	}
	for k := 1; ; k++ {
		m := repacked(t)
		m.Hook(systemtest.CutAt(k))
		_, err := keeper(m, old).Begin(repackedVersion)
		if !m.Off() {
			if k < 4 || err != nil {
				t.Errorf("it took %d changes: %v", k-1, err)
			}
			return
		}
		for _, loss := range systemtest.Losses(m.Pending(), rand.New(rand.NewPCG(1, uint64(k)))) {
			up := m.PowerCut(loss)
			if is, err := known(up); err != nil || content(up, program) == old && !is {
				t.Fatalf("cut before change %d, %s: put back, and 2.1 not known: %v", k, loss.Name, err)
			}
			if _, err := keeper(up, old).Begin(repackedVersion); err != nil {
				t.Fatal(err)
			}
			if is, err := known(up); err != nil || !is || content(up, program) != old {
				t.Fatalf("cut before change %d, %s, and gone on: %q is there: %v", k, loss.Name, content(up, program), err)
			}
		}
	}
}

func TestForget(t *testing.T) {
	m := machine(t)
	if _, err := supervise(m, broken["hang"]); err != nil {
		t.Fatal(err)
	}
	k := keeper(m, old)
	if err := k.Forget("3.0"); !errors.Is(err, upgrade.ErrUnknown) {
		t.Errorf("%v", err)
	}
	if err := k.Forget("2.0"); err != nil {
		t.Fatal(err)
	}
	install(m, fresh)
	if _, err := supervise(m, healthy); err != nil || concluded(m, healthy) != nil {
		t.Error(err, concluded(m, healthy))
	}
}

func TestRememberedIsBounded(t *testing.T) {
	m := machine(t)
	for i := range 20 {
		install(m, fmt.Sprintf("program 2.%d", i))
		if _, err := supervise(m, broken["exit 1"]); err != nil {
			t.Fatal(err)
		}
	}
	s, err := keeper(m, old).Read()
	if err != nil || len(s.Broken) != 16 || s.Broken[15].Digest != sum("program 2.19") {
		t.Errorf("%d, %v", len(s.Broken), err)
	}
}

// The document is what older and newer versions read, too.
func TestStateOfAnotherVersion(t *testing.T) {
	m := machine(t)
	m.Disk.Put(directory+"/state", systemtest.Thing{Type: system.TypeFile, Content: `{"format":2,"later":true,` +
		`"broken":[{"version":"2.0","digest":"d","since":"2026-11-30T12:00:00Z","reason":"r","more":1}]}`})
	got, err := keeper(m, old).Read()
	want := upgrade.State{Broken: []upgrade.Broken{{Version: "2.0", Digest: "d", Since: now(), Reason: "r"}}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if said := got.Broken[0].String(); said != "version 2.0 is broken since 2026-11-30T12:00:00Z: r" {
		t.Error(said)
	}
}

// Whatever is on the disk, a start is counted and the record is whole afterwards.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"format":1}`))
	f.Add([]byte(`{"format":1,"trial":{"version":"2.0","digest":"d","since":"2026-11-30T12:00:00Z","starts":2,"reason":"r","reason_of":2}}`))
	f.Add([]byte(`{"format":1,"kept":{"version":"1.0","digest":"x","since":"2026-11-30T12:00:00Z"},"broken":[{"digest":"d"}]}`))
	f.Add([]byte(`{"format":1,"trial":{"starts":-5}}`))
	f.Add([]byte(`null`))
	f.Add([]byte(``))
	m := systemtest.New()
	for _, p := range []string{"/usr", "/usr/bin", "/var/lib/mesh-host", directory} {
		m.Disk.Put(p, systemtest.Thing{Type: system.TypeDirectory, Mode: 0o755})
	}
	m.Disk.Put(directory+"/good", systemtest.Thing{Type: system.TypeFile, Content: old})
	f.Fuzz(func(t *testing.T, b []byte) {
		install(m, fresh)
		m.Disk.Put(directory+"/state", systemtest.Thing{Type: system.TypeFile, Content: string(b)})
		k := keeper(m, old)
		if _, err := k.Begin(func() string { return "2.0" }); err != nil {
			t.Fatal(err)
		}
		s, err := k.Read()
		if err != nil || s.Trial == nil && len(s.Broken) == 0 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}
