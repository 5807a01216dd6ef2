package main

import (
	"bytes"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"mesh/host/declaration"
	"mesh/host/system/systemtest"
	"mesh/plane/module"
)

// metered counts what is sent over its connections, and sends no more than is let
// through.
type metered struct {
	net.Listener
	sent atomic.Int64
	most atomic.Int64
}

func (m *metered) Accept() (net.Conn, error) {
	c, err := m.Listener.Accept()
	return meteredConn{c, m}, err
}

type meteredConn struct {
	net.Conn
	m *metered
}

func (c meteredConn) Write(b []byte) (int, error) {
	if c.m.sent.Add(int64(len(b))) > c.m.most.Load() {
		return len(b), nil // it is lost on its way
	}
	return c.Conn.Write(b)
}

// hostProcess is mesh-host in directories of the test.
type hostProcess struct {
	t       *testing.T
	program string
	dir     string
}

func newHostProcess(t *testing.T) *hostProcess {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("the host writes files as root")
	}
	h := &hostProcess{t, filepath.Join(t.TempDir(), "mesh-host"), t.TempDir()}
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", h.program, "mesh/cmd/host").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return h
}

func (h *hostProcess) command(args ...string) *exec.Cmd {
	return exec.Command(h.program, append([]string{"--state", filepath.Join(h.dir, "state"), "--runtime", filepath.Join(h.dir, "run")}, args...)...)
}

// up runs the host until it is killed, at the latest with the test.
func (h *hostProcess) up(args ...string) (log *syncBuffer, kill func()) {
	h.t.Helper()
	cmd := h.command(append([]string{"run"}, args...)...)
	log = new(syncBuffer)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // it is killed
	}()
	kill = func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		<-done
	}
	h.t.Cleanup(kill)
	return log, kill
}

// TestPackageOfARealPlane has a plane declare a package by its digest, which no
// source of the machine offers in that version.
func TestPackageOfARealPlane(t *testing.T) {
	deb := "2.0" // what the machine of the test takes for a package of that version
	p := start(t, t.TempDir(), func(run *program) {
		run.modules = append(run.modules, module.Module{
			Name: "demo", Presence: module.Anywhere, Instantiation: module.Any,
			Resources: func(module.Facts) []declaration.Resource {
				return []declaration.Resource{{ID: "demo/package", Package: &declaration.Package{
					Name: "nginx", Version: "2.0", Blob: &declaration.Blob{Digest: declaration.Digest([]byte(deb)), Bytes: int64(len(deb))},
				}}}
			},
			Contents: func(module.Facts) []string { return []string{deb} },
		})
	})
	m := newMachine(t, "web", func() string { return p.address })
	m.OfferPackage("nginx", systemtest.Offer{Versions: []string{"1.0", "2.0"}})
	m.enrol(p.token("--name", "web", "--module", "demo"))
	defer m.up()()
	p.eventually("the package is there", func() bool { return strings.Contains(p.ok("node", "list"), "1 in sync") }, m.log)
	if !strings.Contains(m.Packages.String(), "package nginx 2.0 installed") {
		t.Errorf("%s", m.Packages)
	}
}

// TestCaseH7ContentOfARealPlane has a plane declare a file that is too long for a
// declaration to a host that is a process of its own. The line goes dead in the
// middle of it and the host is killed: the next one goes on from there.
func TestCaseH7ContentOfARealPlane(t *testing.T) {
	h := newHostProcess(t)
	target := filepath.Join(h.dir, "big")
	content := strings.Repeat("what is in a file that is long\n", 200_000)
	line := new(metered)
	line.most.Store(1 << 40)
	p := start(t, t.TempDir(), func(run *program) {
		line.Listener, run.listener = run.listener, line
		run.modules = append(run.modules, module.Module{
			Name: "big", Presence: module.Anywhere, Instantiation: module.Any,
			Resources: func(module.Facts) []declaration.Resource {
				return []declaration.Resource{{ID: "big/file", File: &declaration.File{Path: target, Mode: "0600", Content: content}}}
			},
		})
	})
	if out, err := h.command("enrol", strings.TrimSpace(p.ok("token", "issue", "--name", "web"))).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	line.most.Store(line.sent.Load() + int64(len(content))) // in base64 it is longer than that
	p.ok("assign", "web", "big")
	log, kill := h.up()
	var came int64
	p.eventually("a part of it came", func() bool {
		parts, err := filepath.Glob(filepath.Join(h.dir, "state", "content", "*.part"))
		if err != nil || len(parts) != 1 {
			return false
		}
		st, err := os.Stat(parts[0])
		if err != nil {
			return false
		}
		came = st.Size()
		return line.sent.Load() > line.most.Load()
	}, log)
	kill()
	if _, err := os.Stat(target); came == 0 || !os.IsNotExist(err) {
		t.Errorf("%d bytes came; %v", came, err)
	}

	line.most.Store(1 << 40)
	before := line.sent.Load()
	log, kill = h.up()
	p.eventually("the file is there", func() bool { return strings.Contains(p.ok("node", "list"), "1 in sync") }, log)
	kill()
	if got, err := os.ReadFile(target); err != nil || !bytes.Equal(got, []byte(content)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if st, err := os.Stat(target); err != nil || st.Mode() != fs.FileMode(0o600) {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if again, rest := line.sent.Load()-before, int64(len(content))-came; again > rest*3/2 {
		t.Errorf("%d bytes were sent for the %d that were missing of %d", again, rest, len(content))
	}
}
