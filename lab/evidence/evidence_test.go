package evidence_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"mesh/lab/evidence"
	"mesh/lab/guest"
	"mesh/lab/lifecycle"
	"mesh/lab/machine"
	"mesh/lab/underlay"
	"mesh/lab/world"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// secret is what no file may hold.
const secret = "quite a secret"

// stage is a scenario of two machines, and everything that is asked of it.
type stage struct {
	record lifecycle.Record
	cfg    evidence.Config

	silent map[string]bool // domains whose agent says nothing
	hang   bool            // agents never answer, and hear only ctx
	asked  []string        // of a silent domain
}

func newStage(t *testing.T) *stage {
	t.Helper()
	dir := t.TempDir()
	s := &stage{silent: map[string]bool{}, record: lifecycle.Record{
		Format: 1, Phase: lifecycle.Raising, Accelerator: machine.TCG,
		Plan: lifecycle.Plan{
			Name: "shop", Scenario: "pair", Source: "pair.yaml", Run: "0000000a", Directory: dir,
			World: world.Config{
				Log:      filepath.Join(dir, "world.log"),
				Underlay: underlay.Underlay{Namespace: "ml-0000000a", Routers: []underlay.Router{{Name: "box", Namespace: "ml-0000000a-1"}}},
			},
			Machines: []lifecycle.Machine{
				{Name: "one", Spec: machine.Spec{Name: "mesh-shop.one", ConsoleLog: filepath.Join(dir, "one.console")}},
				{Name: "two", Spec: machine.Spec{Name: "mesh-shop.two", ConsoleLog: filepath.Join(dir, "two.console")}},
			},
		},
	}}
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("world.log", "lease for one; "+secret+"\n")
	write("one.console.1", "first part\n")
	write("one.console.0", "second part\n")
	write("one.console", "mesh1abcdefghijklmnopqrstuv is a token\n")
	write("one.console.stamped", "2026-11-30T12:00:00.000Z all of it\n")
	write("captures/public.pcap", "\xd4\xc3\xb2\xa1 not text \x00")
	write("id_ed25519", "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n")
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	s.cfg = evidence.Config{
		Store: filepath.Join(t.TempDir(), "evidence"), Guest: s, Hypervisor: s, Here: s, Version: "1.2.3",
		Now: func() time.Time { now = now.Add(time.Second); return now },
		Status: func(context.Context, string) (lifecycle.Status, error) {
			return lifecycle.Status{Name: "shop", Why: secret}, nil
		},
	}
	return s
}

func (s *stage) Exec(ctx context.Context, name string, c guest.Command) (guest.Result, error) {
	script := c.Args[len(c.Args)-1]
	if s.hang {
		<-ctx.Done()
		return guest.Result{}, context.Cause(ctx)
	}
	if s.silent[name] {
		s.asked = append(s.asked, script)
		return guest.Result{}, machine.ErrAgent
	}
	switch {
	case strings.Contains(script, "mesh-plane"):
		return guest.Result{ExitCode: 127, Stderr: []byte("mesh-plane is not installed\n")}, nil
	case strings.Contains(script, "mesh-host"):
		return guest.Result{ExitCode: 3, Stdout: []byte(`{"private_key": "c2VjcmV0c2VjcmV0c2VjcmV0", "state": "enrolled"}` + "\n"), Stderr: []byte("it differs")}, nil
	}
	return guest.Result{Stdout: []byte("of " + name + ": " + secret + "\n")}, nil
}

func (s *stage) Diagnosis(_ context.Context, name string) (string, error) {
	if name == "mesh-shop.two" {
		return "", nil
	}
	return "qemu: warning\n", nil
}

func (s *stage) Description(_ context.Context, name string) (string, error) {
	if name == "mesh-shop.two" {
		return "", machine.ErrAbsent
	}
	return "<domain/>\n", nil
}

func (s *stage) Run(_ context.Context, out io.Writer, command ...string) error {
	if command[0] == "df" {
		return errors.New("exec: df: not found")
	}
	_, err := fmt.Fprintln(out, strings.Join(command, " "))
	return err
}

// collect collects into a new directory.
func (s *stage) collect(t *testing.T) (evidence.Index, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "evidence")
	x, err := evidence.New(s.cfg).Collect(t.Context(), s.record, dir, evidence.Reason{Why: "it failed\nwith " + secret, Secrets: []string{secret + "\n"}})
	if err != nil {
		t.Fatal(err)
	}
	return x, dir
}

// TestCollect: everything is there, with an index that tells the truth of it.
func TestCollect(t *testing.T) {
	s := newStage(t)
	s.silent["mesh-shop.two"] = true
	x, dir := s.collect(t)

	data, err := os.ReadFile(filepath.Join(dir, "index.md"))
	if err != nil {
		t.Fatal(err)
	}
	// The sizes of some change with other things.
	var lines []string
	for line := range strings.Lines(strings.ReplaceAll(string(data), s.record.Plan.Directory, "/store/shop")) {
		if !strings.Contains(line, "](lab/") && !strings.Contains(line, "](record.json") && !strings.Contains(line, "](status.json") {
			lines = append(lines, line)
		}
	}
	golden(t, "index.md", strings.Join(lines, ""))

	var read evidence.Index
	text, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err == nil {
		err = json.Unmarshal(text, &read)
	}
	if diff := cmp.Diff(x, read); err != nil || diff != "" {
		t.Errorf("index.json: %v (-returned +read):\n%s", err, diff)
	}
	for name, want := range map[string]string{
		"one/console.log":      "first part\nsecond part\n(token, left out) is a token\n",
		"one/host.json":        `{"private_key": "(left out)", "state": "enrolled"}` + "\n",
		"captures/public.pcap": "\xd4\xc3\xb2\xa1 not text \x00",
		"one/domain.xml":       "<domain/>\n",
	} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if len(s.asked) != 1 {
		t.Errorf("a machine that says nothing was asked %d times", len(s.asked))
	}
	listed := map[string]bool{"index.md": true, "index.json": true}
	for _, e := range x.Entries {
		listed[e.File] = true
	}
	for path := range files(t, dir) {
		if !listed[path] {
			t.Errorf("%s is not in the index", path)
		}
	}
}

// TestNoSecrets: what must not be found is in no file, wherever it stood.
func TestNoSecrets(t *testing.T) {
	_, dir := newStage(t).collect(t)
	for path, text := range files(t, dir) {
		for _, bad := range []string{secret, "mesh1abcdef", "PRIVATE KEY", "c2VjcmV0"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s holds %q", path, bad)
			}
		}
	}
}

// TestHang: agents that never answer cost their time, once each, side by side.
func TestHang(t *testing.T) {
	s := newStage(t)
	s.hang, s.cfg.Each = true, 50*time.Millisecond
	x, _ := s.collect(t)
	var whys []string
	for _, e := range x.Missing() {
		if e.Machine == "one" && !strings.Contains(e.Problem, "not asked") {
			whys = append(whys, e.Problem)
		}
	}
	if diff := cmp.Diff([]string{"not within 50ms"}, whys); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTimeIsUp: when there is none left, what is there is kept.
func TestTimeIsUp(t *testing.T) {
	s := newStage(t)
	s.hang, s.cfg.All = true, 50*time.Millisecond
	x, dir := s.collect(t)
	if _, err := os.Stat(filepath.Join(dir, "one", "console.log")); err != nil || len(x.Missing()) == 0 {
		t.Errorf("%v, %d missing", err, len(x.Missing()))
	}
}

// TestBounded: all files together are no larger than allowed, and say so.
func TestBounded(t *testing.T) {
	s := newStage(t)
	s.cfg.Bytes = 100
	x, dir := s.collect(t)
	var sum int64
	cut := 0
	for _, e := range x.Entries {
		sum += e.Bytes
		if e.Cut {
			cut++
		}
		if info, err := os.Stat(filepath.Join(dir, e.File)); e.File != "" && (err != nil || info.Size() != e.Bytes) {
			t.Errorf("%s: %v, the index says %d bytes", e.File, err, e.Bytes)
		}
	}
	if sum > 100 || cut == 0 {
		t.Errorf("%d bytes, %d files cut", sum, cut)
	}
}

// TestNotOver what is there already.
func TestNotOver(t *testing.T) {
	s := newStage(t)
	dir := t.TempDir()
	_, err := evidence.New(s.cfg).Collect(t.Context(), s.record, dir, evidence.Reason{})
	if coded := (interface{ ExitCode() int })(nil); !errors.As(err, &coded) || coded.ExitCode() != 2 || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v", err)
	}
	if len(files(t, dir)) > 0 {
		t.Error("it wrote there")
	}
}

// TestKeep: one for each run, the newest, and nothing of others is touched.
func TestKeep(t *testing.T) {
	s := newStage(t)
	s.cfg.Kept = 2
	c := evidence.New(s.cfg)
	foreign := filepath.Join(s.cfg.Store, "notes")
	if err := os.MkdirAll(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	for i, run := range []string{"0000000a", "0000000b", "0000000b", "0000000c", "0000000d"} {
		s.record.Plan.Run = run
		dir, err := c.Keep(t.Context(), s.record, "it failed", []string{secret})
		if want := filepath.Join(s.cfg.Store, "shop-"+run); err != nil || dir != want {
			t.Fatalf("kept in %q, want %q: %v", dir, want, err)
		}
		at := time.Now().Add(time.Duration(i-10) * time.Minute)
		if err := os.Chtimes(filepath.Join(dir, "index.json"), at, at); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(s.cfg.Store)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff([]string{"notes", "shop-0000000c", "shop-0000000d"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestKeepSurvives what a collection that was killed left.
func TestKeepSurvives(t *testing.T) {
	s := newStage(t)
	if err := os.MkdirAll(filepath.Join(s.cfg.Store, ".shop-0000000a", "one"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := evidence.New(s.cfg).Keep(t.Context(), s.record, "", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(s.cfg.Store, ".shop-0000000a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

// files reads everything below a directory.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		all[filepath.ToSlash(name)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// golden compares got with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(got), 0o644)); err != nil {
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
