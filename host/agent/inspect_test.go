package agent_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"io/fs"

	"github.com/google/go-cmp/cmp"

	"mesh/host/agent"
	"mesh/host/bundle"
	"mesh/host/declaration"
	"mesh/host/store"
)

// Append and Rename make memory a store.Directory as well.
func (m *memory) Append(name string) (store.Appender, error) {
	if _, err := m.Read(name); err != nil {
		return nil, err
	}
	return &appender{m, name}, nil
}

func (m *memory) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[to] = m.files[from]
	delete(m.files, from)
	return nil
}

type appender struct {
	m    *memory
	name string
}

func (a *appender) Write(b []byte) (int, error) {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	a.m.files[a.name] = append(bytes.Clone(a.m.files[a.name]), b...)
	return len(b), nil
}
func (a *appender) Sync() error  { return nil }
func (a *appender) Close() error { return nil }

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// inspected is a machine that is only looked at.
type inspected struct {
	agent.Inspection
	identity, runtime, record *memory
	alive                     bool
}

func newInspected() *inspected {
	i := &inspected{identity: newMemory(), runtime: newMemory(), record: newMemory()}
	i.Inspection = agent.Inspection{
		Identity: i.identity, Runtime: i.runtime, Store: i.record, Version: "1.0.0",
		Alive: func(p agent.Process) bool { return i.alive && p == agent.Process{PID: 7, Start: 70} },
	}
	return i
}

func (i *inspected) append(t *testing.T, records ...store.Record) {
	t.Helper()
	s, _, err := store.Open(store.Config{Directory: i.record, Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Append(records...); err != nil {
		t.Fatal(err)
	}
}

func (i *inspected) enrol(t *testing.T) {
	t.Helper()
	p := newPlane(t, 1)
	e := agent.Enrolment{Identity: i.identity, Facts: facts, Random: rand.Reader, Now: time.Now}
	if _, err := e.Run(t.Context(), p.token("one", loopback(t, p)).Encode()); err != nil {
		t.Fatal(err)
	}
}

func (i *inspected) status(t *testing.T) agent.Status {
	t.Helper()
	s, err := i.Status()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The states of a machine, from what lies in its folders.
func TestStatusStates(t *testing.T) {
	link := func(format string, args ...any) []byte {
		return fmt.Appendf(nil, `{"process":{"pid":7,"start":70},"since":"2026-12-01T12:00:00Z",`+format+`}`, args...)
	}
	for _, tc := range []struct {
		name     string
		enrolled bool
		alive    bool
		link     []byte
		state    agent.State
		since    bool
		reason   string
		running  bool
	}{
		{"fresh", false, false, nil, agent.StateHosted, false, "", false},
		{"running", false, true, link(`"up":false,"error":"mesh-host has just started"`), agent.StateHosted, false, "", true},
		{"linked", true, true, link(`"up":true,"address":"192.0.2.1:7443"`), agent.StateEnrolled, true, "", true},
		{"link down", true, true, link(`"up":false,"error":"connection refused"`), agent.StateDisconnected, true, "connection refused", true},
		{"stopped", true, false, link(`"up":false,"error":"mesh-host was stopped"`), agent.StateDisconnected, true, "mesh-host is not running", false},
		{"killed", true, false, link(`"up":true,"address":"192.0.2.1:7443"`), agent.StateDisconnected, false, "mesh-host is not running; it ended without saying so", false},
		{"after a reboot", true, false, nil, agent.StateDisconnected, false, "mesh-host is not running", false},
		{"nonsense in the way", true, true, []byte("{"), agent.StateDisconnected, false, "mesh-host is not running", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			i := newInspected()
			i.alive = tc.alive
			if tc.enrolled {
				i.enrol(t)
			}
			if tc.link != nil {
				i.runtime.files["link.json"] = tc.link
			}
			s := i.status(t)
			if s.State != tc.state || (s.Since != nil) != tc.since || s.Reason != tc.reason || s.Running != tc.running {
				t.Errorf("state %s since %v, reason %q, running %t", s.State, s.Since, s.Reason, s.Running)
			}
			if tc.enrolled && (s.Member == nil || s.Member.Node != "one" || !strings.HasPrefix(s.Member.Key, "nodekey:")) {
				t.Errorf("member: %+v", s.Member)
			}
		})
	}
}

func key(kind declaration.Kind, where string) store.Key { return store.Key{Kind: kind, Where: where} }

// accept records a bundle of two files and a service.
func (i *inspected) accept(t *testing.T) store.Accepted {
	t.Helper()
	text, err := declaration.Bundle{Format: 1, Resources: []declaration.Resource{
		{ID: "demo/a", File: &declaration.File{Path: "/etc/a", Content: "a"}},
		{ID: "demo/b", File: &declaration.File{Path: "/etc/b", Content: "b"}},
		{ID: "demo/s", Service: &declaration.Service{Unit: "demo.service", RestartOn: []string{"demo/a"}}},
	}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := bundle.Accept(text, noon)
	if err != nil {
		t.Fatal(err)
	}
	i.append(t, accepted)
	return accepted
}

func TestStatusResources(t *testing.T) {
	i := newInspected()
	accepted := i.accept(t)
	made := store.State{Type: "file", Digest: "1"}
	i.append(t,
		store.Owned{Key: key(declaration.KindFile, "/etc/a"), ID: "demo/a", Made: made, Time: noon},
		store.Owned{Key: key(declaration.KindFile, "/etc/b"), ID: "demo/b", Origin: made, Made: made, Time: noon},
		store.Owned{Key: key(declaration.KindFile, "/etc/old"), ID: "demo/old", Made: made, Time: noon},
		store.Owed{Unit: "demo.service", ID: "demo/a", Because: key(declaration.KindFile, "/etc/a"), Time: noon},
		store.Forgotten{Key: key(declaration.KindFile, "/etc/c"), ID: "demo/c", Left: "it was changed by hand", Time: noon},
	)
	i.runtime.files["pass.json"] = []byte(`{"process":{"pid":7,"start":70},"started":"2026-12-01T12:00:00Z","finished":"2026-12-01T12:00:01Z"}`)
	i.runtime.files["outcome.json"] = fmt.Appendf(nil, `{"epoch":0,"generation":0,"digest":%q,"results":[
			{"id":"demo/a","kind":"file","where":"/etc/a","status":"changed","reason":"it is not there"},
			{"id":"demo/s","kind":"service","where":"demo.service","status":"waiting","reason":"for demo/b"}]}`, accepted.Digest)
	s := i.status(t)
	owned := func(found bool) *agent.StatusOwned { return &agent.StatusOwned{Since: noon, Found: found} }
	want := []agent.StatusItem{
		{ID: "demo/a", Kind: "file", Where: "/etc/a", Status: "changed", Reason: "it is not there", Owned: owned(false)},
		{ID: "demo/b", Kind: "file", Where: "/etc/b", Owned: owned(true)},
		{ID: "demo/s", Kind: "service", Where: "demo.service", Status: "waiting", Reason: "for demo/b"},
		{ID: "demo/old", Kind: "file", Where: "/etc/old", Owned: owned(false)},
	}
	if diff := cmp.Diff(want, s.Resources); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	if s.Converged || len(s.Owed) != 1 || len(s.Left) != 1 {
		t.Errorf("converged %t, owed %+v, left %+v", s.Converged, s.Owed, s.Left)
	}
	about := s.About("demo.service")
	if len(about.Resources) != 1 || len(about.Owed) != 1 || len(about.Left) != 0 || len(s.Resources) != 4 {
		t.Errorf("about the service: %+v", about)
	}
	if about := s.About("/etc/c"); len(about.Resources) != 0 || len(about.Left) != 1 {
		t.Errorf("about what was left: %+v", about)
	}
	reasons, err := i.MayRemove()
	if err != nil || len(reasons) != 3 || reasons[0] != "it owns file /etc/a (demo/a)" {
		t.Errorf("MayRemove: %q, %v", reasons, err)
	}
}

// TestStatusOfAnImage: it is listed where it is owned, as well as its container is.
func TestStatusOfAnImage(t *testing.T) {
	image := "registry.test/shop@sha256:" + strings.Repeat("1", 64)
	text, err := declaration.Bundle{Format: 3, Resources: []declaration.Resource{
		{ID: "shop/a", Container: &declaration.Container{Name: "a", Image: image}},
	}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := bundle.Accept(text, noon)
	if err != nil {
		t.Fatal(err)
	}
	for status, want := range map[string]string{"changed": "in_sync ", "in_sync": "in_sync ", "failed": "failed why"} {
		i := newInspected()
		i.append(t, accepted, store.Owned{Key: key("image", image), ID: "shop/a", Made: store.State{Type: "image"}, Time: noon})
		i.runtime.files["pass.json"] = []byte(`{"process":{"pid":7,"start":70},"started":"2026-12-01T12:00:00Z","finished":"2026-12-01T12:00:01Z"}`)
		i.runtime.files["outcome.json"] = fmt.Appendf(nil, `{"digest":%q,"results":[{"id":"shop/a","kind":"container","where":"a","status":%q,"reason":%q}]}`,
			accepted.Digest, status, map[bool]string{true: "", false: "why"}[status == "in_sync"])
		about := i.status(t).About(image).Resources
		if len(about) != 1 || about[0].Owned == nil || string(about[0].Status)+" "+about[0].Reason != want {
			t.Errorf("%s: %+v", status, about)
		}
	}
}

// TestAboutAContainer: whoever meets one of its three names finds the resource.
func TestAboutAContainer(t *testing.T) {
	s := agent.Status{Resources: []agent.StatusItem{
		{ID: "shop/web", Kind: "container", Where: "web"}, {ID: "shop/unit", Kind: "service", Where: "web.service"},
	}, Owed: []agent.StatusOwed{{Unit: "web"}}}
	for _, name := range []string{"web", "mesh-web.service", "/etc/containers/systemd/mesh-web.container"} {
		if about := s.About(name); len(about.Resources) != 1 || about.Resources[0].ID != "shop/web" || len(about.Owed) != 1 {
			t.Errorf("%s: %+v", name, about)
		}
	}
	if about := s.About("web.service"); len(about.Resources) != 1 || about.Resources[0].ID != "shop/unit" || len(about.Owed) != 0 {
		t.Errorf("%+v", about)
	}
}

// Converged means: the last pass was over what is held now, finished, and left
// nothing to do.
func TestStatusConverged(t *testing.T) {
	for _, tc := range []struct {
		name, pass, outcome string
		want                bool
	}{
		{"no pass yet", "", "", false},
		{"in sync", `"finished":"2026-12-01T12:00:01Z"`, `{"digest":"DIGEST","results":[{"id":"demo/a","status":"in_sync"},{"id":"demo/c","status":"kept"}]}`, true},
		{"in sync, and looked at again", `"activity":null`, `{"digest":"DIGEST","results":[{"id":"demo/a","status":"in_sync"}]}`, true},
		{"no pass finished yet", `"activity":null`, "", false},
		{"failed", `"finished":"2026-12-01T12:00:01Z"`, `{"digest":"DIGEST","results":[{"id":"demo/a","status":"failed"}]}`, false},
		{"over another declaration", `"finished":"2026-12-01T12:00:01Z"`, `{"digest":"x","results":[]}`, false},
		{"as a whole failed", `"finished":"2026-12-01T12:00:01Z","error":"no space"`, `{"digest":"DIGEST","results":[]}`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			i := newInspected()
			accepted := i.accept(t)
			if tc.pass != "" {
				i.runtime.files["pass.json"] = []byte(`{"process":{"pid":7,"start":70},"started":"2026-12-01T12:00:00Z",` + tc.pass + `}`)
			}
			if tc.outcome != "" {
				i.runtime.files["outcome.json"] = []byte(strings.ReplaceAll(tc.outcome, "DIGEST", accepted.Digest))
			}
			if s := i.status(t); s.Converged != tc.want {
				t.Errorf("converged: %t\n%+v", s.Converged, s)
			}
		})
	}
	if s := newInspected().status(t); !s.Converged {
		t.Error("a machine of which nothing is asked is not converged")
	}
}

// A pass that goes on says what it is at; one whose process died does not.
func TestStatusDuringAPass(t *testing.T) {
	i := newInspected()
	i.accept(t)
	i.runtime.files["pass.json"] = []byte(`{"process":{"pid":7,"start":70},"started":"2026-12-01T12:00:00Z","activity":{"id":"a","kind":"package","where":"nginx","what":"waiting for the package lock held by apt-get (pid 811)"}}`)
	i.alive = true
	if p := i.status(t).Pass; p == nil || p.Finished != nil || p.Activity == nil || !strings.Contains(p.Activity.What, "apt-get") {
		t.Errorf("pass: %+v", p)
	}
	i.alive = false
	if p := i.status(t).Pass; p == nil || p.Activity != nil || p.Error != "it was cut short; the next one goes on from there" {
		t.Errorf("pass: %+v", p)
	}
}

// What is lost is said loudly, and the rest of the status is there (case H1).
func TestCaseH1StatusSaysWhatIsLost(t *testing.T) {
	i := newInspected()
	i.accept(t)
	i.record.files["journal"] = make([]byte, 100)
	s := i.status(t)
	if len(s.Losses) == 0 || !s.Losses[0].Grave || s.State != agent.StateHosted {
		t.Errorf("losses: %+v", s.Losses)
	}
	i.identity.files["identity"] = []byte("garbage")
	s = i.status(t)
	if len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "enrol it again with a new token") {
		t.Errorf("problems: %q", s.Problems)
	}
}

func TestStatusOfAnUnfinishedEnrolment(t *testing.T) {
	i := newInspected()
	i.identity.files["identity"] = []byte(`{"format":1,"attempt":{"key":"x","token_id":"01","time":"2026-12-01T12:00:00Z"}}`)
	if s := i.status(t); s.State != agent.StateHosted || s.Attempt == nil || !s.Attempt.Equal(noon) {
		t.Errorf("%+v", s)
	}
}

func TestFindProcess(t *testing.T) {
	stat := func(state string) fs.FS {
		return fstest.MapFS{"proc/7/stat": {Data: []byte("7 (a ) b) " + state + " 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 9 0 4242 1 1")}}
	}
	if p, err := agent.FindProcess(stat("S"), 7); err != nil || p != (agent.Process{PID: 7, Start: 4242}) {
		t.Errorf("%+v, %v", p, err)
	}
	for _, fsys := range []fs.FS{fstest.MapFS{}, stat("Z"), stat("X")} {
		if _, err := agent.FindProcess(fsys, 7); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v", err)
		}
	}
	if p, err := agent.FindProcess(os.DirFS("/"), os.Getpid()); err != nil || p.Start == 0 {
		t.Errorf("this process: %+v, %v", p, err)
	}
}
