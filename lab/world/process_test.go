package world_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"mesh/lab/world"
	"mesh/lab/world/namespace"
	"mesh/lab/world/worldtest"
)

// TestKilled kills a world: the network goes on, a new one finds it standing, and
// Remove leaves nothing of it, as often as it is called.
func TestKilled(t *testing.T) {
	worldtest.Need(t)
	before := worldtest.Surroundings(t)
	u := plan(t, town, "00000011")
	c := config(t, u)
	p := start(t, c)
	in, pub := up(t, u, "in"), up(t, u, "pub")
	says(t, pub, ":80", "pub")

	kill(t, p, unix.SIGKILL)
	if p.Alive() {
		t.Error("it counts as alive after its death")
	}
	if _, err := world.NewClient(c.Control).Status(t.Context()); !errors.Is(err, world.ErrAbsent) {
		t.Errorf("status of a killed world: %v, want ErrAbsent", err)
	}
	if got := fetch(t, in, "http://203.0.113.10/"); got != "pub" {
		t.Errorf("without the world's process: %q", got)
	}

	p = start(t, c)
	in.Lease(soon(t))
	if got := fetch(t, in, "http://packages.world.test/debian-13/Packages"); got != "Package: hello\n" {
		t.Errorf("after a new start: %q", got)
	}

	kill(t, p, unix.SIGKILL)
	for range 2 {
		remove(t, c, p)
		if diff := cmp.Diff([]string{"machine-00000011-in", "machine-00000011-pub"}, namespaces(t)); diff != "" {
			t.Errorf("namespaces left (-want +got):\n%s", diff)
		}
	}
	if _, err := os.Stat(c.Control); err == nil {
		t.Error("the control socket is left")
	}
	if diff := cmp.Diff(before, worldtest.Surroundings(t)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

// TestRemoveUnknown removes a running world of which nobody knows the process.
func TestRemoveUnknown(t *testing.T) {
	worldtest.Need(t)
	c := config(t, plan(t, town, "00000012"))
	p := start(t, c)
	var stray *exec.Cmd
	err := namespace.Do(c.Underlay.Routers[0].Namespace, func() error {
		stray = exec.Command("sleep", "600")
		return stray.Start()
	})
	if err != nil {
		t.Fatal(err)
	}
	remove(t, c, world.Process{})
	if p.Alive() {
		t.Error("the world runs on")
	}
	if err := unix.Kill(stray.Process.Pid, 0); err == nil {
		t.Error("what was started in a router's namespace runs on")
	}
	if got := namespaces(t); len(got) > 0 {
		t.Errorf("namespaces left: %v", got)
	}
}

// TestRemoveSpares leaves a process alone that only has the number of the world.
func TestRemoveSpares(t *testing.T) {
	worldtest.Need(t)
	c := config(t, plan(t, town, "00000013"))
	other := exec.Command("sleep", "600")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait()
	defer other.Process.Kill()
	remove(t, c, world.Process{PID: other.Process.Pid, Start: 1})
	if err := unix.Kill(other.Process.Pid, 0); err != nil {
		t.Errorf("it was ended: %v", err)
	}
}

// TestStartTwice refuses a second world beside one that answers, and leaves that
// one as it is.
func TestStartTwice(t *testing.T) {
	worldtest.Need(t)
	c := config(t, plan(t, town, "00000014"))
	p := start(t, c)
	_, err := world.Start(t.Context(), self(t), filepath.Join(t.TempDir(), "again.json"), c)
	if err == nil || !strings.Contains(err.Error(), "a world already answers") {
		t.Errorf("second start: %v", err)
	}
	if status, err := world.NewClient(c.Control).Status(t.Context()); err != nil || status.PID != p.PID {
		t.Errorf("the first: %+v, %v", status, err)
	}
}

// TestStartFails says why, and leaves nothing.
func TestStartFails(t *testing.T) {
	worldtest.Need(t)
	c := config(t, plan(t, town, "00000015"))
	c.Repositories["gone"] = "/nowhere"
	_, err := world.Start(t.Context(), self(t), filepath.Join(t.TempDir(), "world.json"), c)
	if err == nil || !strings.Contains(err.Error(), "/nowhere is not a directory") {
		t.Errorf("start: %v; want the reason out of the log", err)
	}
	if got := namespaces(t); len(got) > 0 {
		t.Errorf("namespaces left: %v", got)
	}
	if _, err := os.Stat(c.Control); err == nil {
		t.Error("the control socket is left")
	}
}

// TestStartCancelled ends the process that does not become ready.
func TestStartCancelled(t *testing.T) {
	worldtest.Need(t)
	c := config(t, plan(t, town, "00000016"))
	dir := t.TempDir()
	slow, mark := filepath.Join(dir, "slow"), filepath.Join(dir, "pid")
	script := "#!/bin/sh\necho $$ > " + mark + ".new\nmv " + mark + ".new " + mark + "\nexec sleep 600\n"
	if err := os.WriteFile(slow, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := world.Start(ctx, slow, filepath.Join(dir, "world.json"), c)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("start: %v, want the deadline", err)
	}
	if text, err := os.ReadFile(mark); err == nil {
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		if unix.Kill(pid, 0) == nil {
			t.Error("the process runs on")
		}
	}
	if got := namespaces(t); len(got) > 0 {
		t.Errorf("namespaces left: %v", got)
	}
}

// TestTerminated ends by itself, cleanly, and leaves the network standing.
func TestTerminated(t *testing.T) {
	worldtest.Need(t)
	c := config(t, plan(t, town, "00000017"))
	p := start(t, c)
	if session, err := unix.Getsid(p.PID); err != nil || session != p.PID {
		t.Errorf("it is in session %d, %v, want its own", session, err)
	}
	if status := kill(t, p, unix.SIGTERM); status.ExitStatus() != 0 {
		t.Errorf("exit status %d, want 0", status.ExitStatus())
	}
	if got := len(namespaces(t)); got != 3 {
		t.Errorf("%d namespaces stand, want 3", got)
	}
	log, err := os.ReadFile(c.Log)
	if err != nil || !strings.Contains(string(log), "world ends") {
		t.Errorf("log: %v\n%s", err, log)
	}
}

// TestAttachTwice joins a tap that is joined already.
func TestAttachTwice(t *testing.T) {
	worldtest.Need(t)
	u := plan(t, town, "00000018")
	start(t, config(t, u))
	m := up(t, u, "pub")
	if err := world.Attach(u, m.NIC.Tap); err != nil {
		t.Error(err)
	}
	m.Lease(soon(t))
	if err := world.Attach(u, "nobody"); err == nil {
		t.Error("a tap of no machine is attached")
	}
	u.Machines[0].NICs[0].Tap = "missing"
	if err := world.Attach(u, "missing"); err == nil {
		t.Error("a tap that is nowhere is attached")
	}
}

// TestNothingRunsOn waits for every goroutine of a world but the one that Pebble
// cannot be rid of.
func TestNothingRunsOn(t *testing.T) {
	worldtest.Need(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent(),
		goleak.IgnoreTopFunction("github.com/letsencrypt/pebble/v2/va.VAImpl.processTasks"))
	c := config(t, plan(t, town, "00000019"))
	defer remove(t, c, world.Process{})
	w := world.New(c, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group errgroup.Group
	group.Go(func() error { return w.Run(ctx) })
	select {
	case <-w.Ready():
	case <-soon(t).Done():
		t.Error("not ready")
	}
	cancel()
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

// kill signals a world that is this process's child and waits for its end.
func kill(t *testing.T, p world.Process, signal unix.Signal) unix.WaitStatus {
	t.Helper()
	if err := unix.Kill(p.PID, signal); err != nil {
		t.Fatal(err)
	}
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(p.PID, &status, 0, nil)
		if !errors.Is(err, unix.EINTR) {
			return status
		}
	}
}

// namespaces lists the named ones there are.
func namespaces(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(namespace.Path("any")))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
