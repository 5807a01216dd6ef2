package lifecycle_test

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"mesh/lab/images"
	"mesh/lab/lifecycle"
	"mesh/lab/lifecycle/lifecycletest"
	"mesh/lab/scenario"
	"mesh/lab/underlay"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestMain keeps what tests write in memory where it can: a raise waits for the
// disk dozens of times, and these tests raise hundreds of times.
func TestMain(m *testing.M) {
	const memory = "/dev/shm"
	if info, err := os.Stat(memory); err == nil && info.IsDir() && os.Getenv("TMPDIR") == "" {
		if err := os.Setenv("TMPDIR", memory); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

// golden compares got with a file of testdata.
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

// secret is what the scenario's token step prints; it must be found nowhere.
const secret = "mesh1SECRETSECRET"

// small is a scenario with one machine outside and one behind a router.
func small() *scenario.Scenario {
	return &scenario.Scenario{
		File: "small.yaml", Name: "small",
		Machines: []scenario.Machine{
			{Name: "one", Image: "debian-13", MemoryBytes: 512 << 20, CPUs: 1, Segments: []string{"public"}},
			{Name: "two", Image: "debian-12", MemoryBytes: 256 << 20, CPUs: 2, Segments: []string{"home"}},
		},
		Place: []scenario.Step{
			{On: "one", Package: "mesh-host", Line: 20},
			{On: "one", File: "plane.yaml", To: "/etc/mesh-plane/plane.yaml", Line: 22},
			{On: "one", Run: "echo " + secret, Save: "token", Line: 25},
			{On: "two", Run: "take", Input: "token", Line: 28},
		},
	}
}

func smallUnderlay(run string) underlay.Underlay {
	return underlay.Underlay{
		Run: run, Namespace: "ml-" + run,
		Routers: []underlay.Router{{Name: "gate", Namespace: "ml-" + run + "-1"}},
		Machines: []underlay.Machine{
			{Name: "one", NICs: []underlay.NIC{{
				Segment: "public", MAC: "52:54:00:00:00:01", Tap: "t" + run + "-1",
				IPv4: netip.MustParsePrefix("203.0.113.10/24"), IPv6: netip.MustParsePrefix("2001:db8::10/64"),
			}}},
			{Name: "two", NICs: []underlay.NIC{{
				Segment: "home", MAC: "52:54:00:00:00:02", Tap: "t" + run + "-2",
				IPv4: netip.MustParsePrefix("192.168.1.10/24"),
			}}},
		},
		Services: underlay.Services{ArtefactsName: "packages.world.test"},
	}
}

func builtImages() map[string]images.Image {
	all := map[string]images.Image{}
	for _, name := range []string{"debian-12", "debian-13"} {
		dir := "/images/" + name
		all[name] = images.Image{
			Name: name, Disk: dir + "/disk.qcow2", Kernel: dir + "/kernel", Initrd: dir + "/initrd",
			Cmdline: "root=/dev/vda console=ttyS0", Repository: dir + "/repository",
		}
	}
	return all
}

// files is what lies beside the scenario.
var files = fstest.MapFS{"plane.yaml": {Data: []byte("listen: :7443\n")}}

// bed is a fake lab machine with one Lab on it.
type bed struct {
	*lifecycletest.Fake
	*lifecycle.Lab
	Narration  *narration
	store, run string
}

// newBed makes a bed in dir.
func newBed(t *testing.T, dir string) *bed {
	t.Helper()
	b := &bed{
		Fake: &lifecycletest.Fake{Dir: filepath.Join(dir, "world")}, Narration: &narration{},
		store: filepath.Join(dir, "store"), run: filepath.Join(dir, "run"),
	}
	if err := os.MkdirAll(b.Fake.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b.Lab = b.lab()
	return b
}

func (b *bed) lab() *lifecycle.Lab {
	start, calls := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), 0
	var mu sync.Mutex
	return lifecycle.New(b.Ports(lifecycle.Config{
		Store: b.store, Runtime: b.run, Progress: b.Narration, Poll: 5 * time.Millisecond,
		Now: func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			calls++
			return start.Add(time.Duration(calls) * time.Second)
		},
	}))
}

// plan plans the small scenario as name; its run is made from the name.
func (b *bed) plan(t *testing.T, name string) lifecycle.Plan {
	t.Helper()
	run := fmt.Sprintf("%08x", []byte(name + "\x00\x00\x00\x00")[:4])
	p, err := lifecycle.NewPlan(small(), smallUnderlay(run), lifecycle.Options{
		Name: name, Source: "small.yaml", Run: run, Images: builtImages(), Packages: "/dist",
		Directory: b.Directory(name), Layers: b.Layers(), Runtime: b.RuntimeOf(run),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// raise raises the small scenario as name and fails the test if it cannot.
func (b *bed) raise(t *testing.T, name string) lifecycle.Record {
	t.Helper()
	r, err := b.Raise(t.Context(), b.plan(t, name), lifecycle.RaiseOptions{Files: files})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// leftovers is everything that stands or lies about, a line each, but for warm
// images that are whole.
func (b *bed) leftovers(t *testing.T) string {
	t.Helper()
	lines := b.Fake.String()
	warm, err := b.WarmImages()
	if err != nil {
		t.Fatal(err)
	}
	kept := map[string]bool{}
	for _, w := range warm {
		kept[w.Digest], kept[filepath.Base(b.Layer(w.Layer))] = true, true
	}
	for _, dir := range []string{filepath.Join(b.store, "scenarios"), filepath.Join(b.store, "warm"), b.Layers(), b.run} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !kept[e.Name()] {
				lines += "\n" + filepath.Join(filepath.Base(dir), e.Name())
			}
		}
	}
	return strings.TrimSpace(lines)
}

func (b *bed) wantNothingLeft(t *testing.T) {
	t.Helper()
	if left := b.leftovers(t); left != "" {
		t.Errorf("left behind:\n%s", left)
	}
}

// narration records progress.
type narration struct {
	on    func(what string) // called when a step begins, if set
	noted func(line string) // called with each note, if set
	mu    sync.Mutex
	lines []string
}

func (n *narration) Step(what string) func(error) {
	n.Note("%s", what)
	if n.on != nil {
		n.on(what)
	}
	return func(error) {}
}

func (n *narration) Note(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	n.lines = append(n.lines, line)
	if n.noted != nil {
		n.noted(line)
	}
}

func (n *narration) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.lines, "\n")
}

// exitCode is what the program would end with.
func exitCode(err error) int {
	var c interface{ ExitCode() int }
	if errors.As(err, &c) {
		return c.ExitCode()
	}
	return -1
}
