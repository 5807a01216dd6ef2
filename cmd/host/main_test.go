package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"mesh/cmd/internal/cli"
	"mesh/host/agent"
	"mesh/host/apply"
	"mesh/host/link"
	"mesh/host/store"
	"mesh/host/upgrade"
)

var update = flag.Bool("update", false, "write goldens anew")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"mesh-host": main})
}

// TestScripts runs the program on directories of its own. What it applies is
// below them too, but the files are written as root would.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Condition: func(name string) (bool, error) {
			if name == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", name)
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("AT", e.WorkDir)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "until": until, "expand": expand},
	})
}

// exits CODE COMMAND... demands an exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	err, code := ts.Exec(args[1], args[2:]...), 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, wanted %s", code, args[0])
	}
}

// until PATTERN COMMAND... repeats a command until its output has the text.
func until(ts *testscript.TestScript, neg bool, args []string) {
	deadline := time.Now().Add(time.Minute)
	for {
		_ = ts.Exec(args[1], args[2:]...)
		if out := ts.ReadFile("stdout"); strings.Contains(out, args[0]) != neg {
			return
		} else if time.Now().After(deadline) {
			ts.Fatalf("still not %q:\n%s", args[0], out)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// expand FILE puts the script's directory where the file says $AT.
func expand(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	text := strings.ReplaceAll(ts.ReadFile(args[0]), "$AT", ts.Getenv("AT"))
	ts.Check(os.WriteFile(path, []byte(text), 0o644))
}

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func ptr[T any](v T) *T { return &v }

// samples are statuses that show everything a status can.
func samples() map[string]agent.Status {
	key := store.Key{Kind: "file", Where: "/etc/demo.conf"}
	member := func(plane ...string) *agent.StatusMember {
		return &agent.StatusMember{Mesh: "home", Node: "one", Addresses: []string{"10.90.0.1", "fd00:90::1"}, Plane: plane, Key: "nodekey:00", Since: noon.Add(-72 * time.Hour)}
	}
	base := agent.Status{HostVersion: "1.0.0", Resources: []agent.StatusItem{}, Owed: []agent.StatusOwed{}, Left: []agent.StatusLeft{}, Losses: []agent.StatusLoss{}, Problems: []string{}}

	hosted := base
	hosted.State, hosted.Converged = agent.StateHosted, true

	begun := hosted
	begun.Attempt = ptr(noon.Add(-5 * time.Minute))
	begun.Running = true
	begun.Held = &agent.StatusHeld{Source: store.SourceBundle, Digest: strings.Repeat("ab", 32), Accepted: noon.Add(-time.Hour)}
	begun.Pass = &agent.StatusPass{Started: noon.Add(-90 * time.Second), Activity: &apply.Activity{ID: "demo/package", Kind: "package", Where: "nginx", What: "waiting for the package lock held by apt-get (pid 811)"}}
	begun.Converged = false

	enrolled := base
	enrolled.State, enrolled.Since, enrolled.Running, enrolled.Converged = agent.StateEnrolled, ptr(noon.Add(-3*time.Hour)), true, true
	enrolled.Member = member("192.0.2.10:7443")
	enrolled.Held = &agent.StatusHeld{Source: store.SourcePlane, Mesh: "home", Epoch: 1, Generation: 4, Digest: strings.Repeat("cd", 32), Accepted: noon.Add(-2 * time.Hour)}
	enrolled.Pass = &agent.StatusPass{Started: noon.Add(-13 * time.Second), Finished: ptr(noon.Add(-12 * time.Second))}
	owned := &agent.StatusOwned{Since: noon.Add(-2 * time.Hour), Epoch: 1, Generation: 4}
	enrolled.Resources = []agent.StatusItem{
		{ID: "demo/directory", Kind: "directory", Where: "/etc/demo", Status: "in_sync", Owned: &agent.StatusOwned{Since: owned.Since, Found: true}},
		{ID: "demo/config", Kind: "file", Where: "/etc/demo.conf", Status: "changed", Reason: "its content is another", Owned: owned},
	}

	troubled := enrolled
	troubled.State, troubled.Since, troubled.Reason, troubled.Converged = agent.StateDisconnected, ptr(noon.Add(-45*time.Second)), "192.0.2.10:7443: connection refused", false
	troubled.Member = member("192.0.2.10:7443", "[2001:db8::10]:7443")
	troubled.Resources = append(troubled.Resources[:2:2],
		agent.StatusItem{ID: "demo/package", Kind: "package", Where: "nginx", Status: "waiting", Reason: "another process holds the package lock"},
		agent.StatusItem{ID: "demo/service", Kind: "service", Where: "nginx.service", Status: "failed", Reason: "the unit did not start: exit code 1"},
		agent.StatusItem{ID: "demo/full", Kind: "file", Where: "/srv/full.conf", Status: "failed", Reason: "write /srv/full.conf: no space left on device"},
		agent.StatusItem{ID: "demo/report", Kind: "file", Where: "/etc/report.conf", Status: "kept", Reason: "its content is another, which is reported and left so"},
		agent.StatusItem{ID: "demo/gone", Kind: "file", Where: "/etc/gone.conf", Status: "removed", Reason: "it is not declared any more"},
		agent.StatusItem{ID: "demo/new", Kind: "file", Where: "/etc/new.conf"},
	)
	troubled.Refused = &link.Refused{Epoch: 1, Generation: 3, Digest: "ef", Reason: "its generation 3 is lower than 4, which is held", Time: noon.Add(-time.Minute)}
	troubled.Owed = []agent.StatusOwed{{Unit: "nginx.service", Because: key, ID: "demo/config", Epoch: 1, Generation: 4, Since: noon.Add(-10 * time.Minute)}}
	troubled.Left = []agent.StatusLeft{{ID: "demo/old", Kind: "file", Where: "/etc/old.conf", Why: "it was changed by hand", Since: noon.Add(-time.Hour)}}
	troubled.Losses = []agent.StatusLoss{{What: "journal: its 100 bytes hold not one record; everything recorded is lost", Grave: true, Since: noon.Add(-50 * time.Hour)}}
	troubled.Copies = []agent.StatusCopy{{Kind: "file", Where: "/etc/demo.conf", Digest: strings.Repeat("0a", 32), Bytes: 12, Path: "/var/lib/mesh-host/content/" + strings.Repeat("0a", 32), Since: noon.Add(-10 * time.Minute)}}
	troubled.Program = &upgrade.State{
		Kept:   &upgrade.Kept{Version: "1.0.0", Digest: strings.Repeat("0b", 32), Package: strings.Repeat("0c", 32), Since: noon.Add(-72 * time.Hour)},
		Trial:  &upgrade.Trial{Version: "1.2.0", Digest: strings.Repeat("0d", 32), Since: noon.Add(-time.Minute), Starts: 2, Reason: "it ended with status 1", ReasonOf: 1},
		Broken: []upgrade.Broken{{Version: "1.1.0", Digest: strings.Repeat("0e", 32), Since: noon.Add(-5 * time.Hour), Reason: "it was killed by SIGSEGV"}},
	}
	troubled.Problems = []string{"this machine's identity cannot be read"}

	return map[string]agent.Status{"hosted": hosted, "begun": begun, "enrolled": enrolled, "troubled": troubled}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestGoldenStatus(t *testing.T) {
	for name, s := range samples() {
		var text, doc strings.Builder
		if err := writeStatus(&text, s, noon); err != nil {
			t.Fatal(err)
		}
		golden(t, "status-"+name+".txt", text.String())
		if err := cli.JSON(&doc, s); err != nil {
			t.Fatal(err)
		}
		golden(t, "status-"+name+".json", doc.String())
		var again agent.Status
		if err := json.Unmarshal([]byte(doc.String()), &again); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s, again); diff != "" {
			t.Errorf("%s does not read back (-want +got):\n%s", name, diff)
		}
	}
}

func TestGoldenWhy(t *testing.T) {
	var text strings.Builder
	for _, where := range []string{"/etc/demo.conf", "/etc/demo", "nginx.service", "/etc/old.conf", "/etc/new.conf", "/etc/passwd"} {
		fmt.Fprintf(&text, "$ mesh-host why %s\n", where)
		if err := writeWhy(&text, samples()["troubled"].About(where), where); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "why.txt", text.String())
	var doc strings.Builder
	if err := writeWhyJSON(&doc, samples()["troubled"].About("/etc/demo.conf")); err != nil {
		t.Fatal(err)
	}
	golden(t, "why.json", doc.String())
}

func TestAgo(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 seconds ago", time.Second: "1 second ago", 119 * time.Second: "119 seconds ago", 2 * time.Minute: "2 minutes ago",
		119 * time.Minute: "119 minutes ago", 5 * time.Hour: "5 hours ago", 72 * time.Hour: "3 days ago", -time.Hour: "in the future, by this machine's clock",
	} {
		if got := ago(noon.Add(-d), noon); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}

func TestWatchIdentity(t *testing.T) {
	dir := t.TempDir()
	changed, watch, err := watchIdentity(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- watch(ctx) }()
	for range 2 {
		if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "identity")); err != nil {
			t.Fatal(err)
		}
		select {
		case <-changed:
		case <-time.After(10 * time.Second):
			t.Fatal("nobody noticed")
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestReplaced(t *testing.T) {
	if r := replaced(); r == nil || r() {
		t.Error("this program is taken for another")
	}
}
