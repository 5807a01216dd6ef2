package snapshot_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"mesh/lab/images"
	"mesh/lab/lifecycle"
	"mesh/lab/lifecycle/lifecycletest"
	"mesh/lab/scenario"
	"mesh/lab/snapshot"
	"mesh/lab/underlay"
)

// TestMain keeps what tests write in memory where it can: they wait for the disk
// thousands of times.
func TestMain(m *testing.M) {
	const memory = "/dev/shm"
	if info, err := os.Stat(memory); err == nil && info.IsDir() && os.Getenv("TMPDIR") == "" {
		if err := os.Setenv("TMPDIR", memory); err != nil {
			panic(err)
		}
	}
	// Each draw raises scenarios; more of them on request.
	if err := flag.Set("rapid.checks", "10"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// small is a scenario with one machine outside and one behind a router.
func small() *scenario.Scenario {
	return &scenario.Scenario{
		File: "small.yaml", Name: "small",
		Segments: []scenario.Segment{
			{Name: "public", Kind: scenario.Public, IPv4: netip.MustParsePrefix("203.0.113.0/24")},
			{Name: "home", Kind: scenario.Site, IPv4: netip.MustParsePrefix("192.168.1.0/24")},
		},
		Routers: []scenario.Router{{Name: "gate", Inside: "home", Outside: "public", NAT: scenario.NATEasy}},
		Machines: []scenario.Machine{
			{Name: "one", Image: "debian-13", MemoryBytes: 512 << 20, CPUs: 1, Segments: []string{"public"}},
			{Name: "two", Image: "debian-13", MemoryBytes: 256 << 20, CPUs: 1, Segments: []string{"home"}},
		},
	}
}

// bed is a fake lab machine with one lab and its snapshots on it.
type bed struct {
	*lifecycletest.Fake
	*lifecycle.Lab
	Snapshots *snapshot.Snapshots
	config    snapshot.Config
	store     string
	run       string
	serial    atomic.Int64
	salt      string
	told      narration
}

// newBed makes a bed in dir; several can share it, one after the other.
func newBed(t testing.TB, dir string) *bed {
	t.Helper()
	b := &bed{
		Fake:  &lifecycletest.Fake{Dir: filepath.Join(dir, "world")},
		store: filepath.Join(dir, "store"), run: filepath.Join(dir, "run"), salt: fmt.Sprint(os.Getpid()),
	}
	if err := os.MkdirAll(b.Fake.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ports := b.Ports(lifecycle.Config{
		Store: b.store, Runtime: b.run, Progress: &b.told, Poll: time.Millisecond, Now: b.now,
		Snapshots: snapshot.Store{Dir: b.store},
	})
	b.Lab = lifecycle.New(ports)
	b.config = snapshot.Config{
		Lab: b.Lab, Ports: ports,
		Images: func() ([]images.Image, error) { return b.images(), nil },
		NewRun: func() string { return b.id()[:8] }, NewID: b.id,
		Entropy: func() []byte { return []byte(strings.Repeat("r", 64)) },
	}
	b.Snapshots = snapshot.New(b.config)
	return b
}

func (b *bed) now() time.Time {
	return time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(b.serial.Add(1)) * time.Second)
}

// id is 32 hex digits, unlike any other of any process.
func (b *bed) id() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", b.salt, b.serial.Add(1)))
	return hex.EncodeToString(sum[:16])
}

func (b *bed) images() []images.Image {
	dir := b.store + "/images/debian-13"
	return []images.Image{{
		Name: "debian-13", Digest: strings.Repeat("d", 64), Content: strings.Repeat("c", 64),
		Disk: dir + "/disk.qcow2", Kernel: dir + "/kernel", Initrd: dir + "/initrd",
		Cmdline: "root=/dev/vda console=ttyS0", Repository: dir + "/repository",
	}}
}

// raise raises the small scenario as name.
func (b *bed) raise(t testing.TB, name string) {
	t.Helper()
	s, run := small(), b.id()[:8]
	u, err := underlay.Plan(s, run)
	if err != nil {
		t.Fatal(err)
	}
	p, err := lifecycle.NewPlan(s, *u, lifecycle.Options{
		Name: name, Source: "small.yaml", Run: run, Images: map[string]images.Image{"debian-13": b.images()[0]},
		Packages: "/dist", Directory: b.Directory(name), Layers: b.Layers(), Runtime: b.RuntimeOf(run),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Raise(t.Context(), p, lifecycle.RaiseOptions{Files: fstest.MapFS{}}); err != nil {
		t.Fatal(err)
	}
}

// take takes a snapshot and fails the test if it cannot.
func (b *bed) take(t testing.TB, scenario, name string) snapshot.Manifest {
	t.Helper()
	m, err := b.Snapshots.Take(t.Context(), scenario, name, "")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// restore restores a snapshot and fails the test if it cannot.
func (b *bed) restore(t testing.TB, o snapshot.RestoreOptions) snapshot.Restored {
	t.Helper()
	r, err := b.Snapshots.Restore(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// live changes both machines' memory and disk.
func (b *bed) live(t testing.TB, scenario, value string) {
	t.Helper()
	for _, m := range []string{"one", "two"} {
		must(t, b.Remember(lifecycle.DomainName(scenario, m), "value", value))
	}
}

// wantLives tells whether both machines run with that value in memory and on disk.
func (b *bed) wantLives(t testing.TB, scenario, value string) {
	t.Helper()
	for _, m := range []string{"one", "two"} {
		domain := lifecycle.DomainName(scenario, m)
		if memory, disk := b.Recall(domain, "value"), b.File(domain, "value"); memory != value || disk != value {
			t.Errorf("machine %s of %s has %q in memory and %q on disk, want %q", m, scenario, memory, disk, value)
		}
	}
	if s, err := b.Status(t.Context(), scenario); err != nil || s.Phase != lifecycle.Raised {
		t.Errorf("scenario %s is %q, %v", scenario, s.Phase, err)
	} else {
		for _, m := range s.Machines {
			if m.State != "running" {
				t.Errorf("machine %s of %s is %s", m.Name, scenario, m.State)
			}
		}
	}
}

// wantNoLocks: nobody holds anything, and no lock's file stays.
func (b *bed) wantNoLocks(t testing.TB) {
	t.Helper()
	if left, err := os.ReadDir(filepath.Join(b.run, "locks")); err == nil && len(left) > 0 {
		t.Errorf("locks are left: %v", left)
	}
}

// layerFiles are the ids of the layers that there are.
func (b *bed) layerFiles(t testing.TB) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	entries, err := os.ReadDir(b.Layers())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		all[lifecycle.LayerID(e.Name())] = true
	}
	return all
}

// usedLayers are the ids of those that something stands on, found out by looking
// at what there is and not at what the code under test collects by.
func (b *bed) usedLayers(t testing.TB) map[string]bool {
	t.Helper()
	used := map[string]bool{}
	names, err := b.Names()
	must(t, err)
	for _, name := range names {
		r, err := b.Record(name)
		must(t, err)
		for _, m := range r.Plan.Machines {
			for at := m.Spec.Disk; at != ""; at = below(t, at) {
				used[lifecycle.LayerID(at)] = true
			}
		}
	}
	all, err := b.Snapshots.Store().List("")
	must(t, err)
	for _, s := range all {
		for _, m := range s.Plan.Machines {
			for at := b.Layer(m.Layers[0]); at != ""; at = below(t, at) {
				used[lifecycle.LayerID(at)] = true
			}
		}
	}
	warm, err := images.WarmStore{Dir: b.store}.Layers()
	must(t, err)
	for _, id := range warm {
		used[id] = true
	}
	return used
}

// below is the layer that another one stands on; empty for an image's disk.
func below(t testing.TB, path string) string {
	t.Helper()
	base := lifecycletest.Below(path)
	if filepath.IsAbs(base) {
		t.Errorf("layer %s names an absolute path: %s", path, base)
	}
	if base == "" || strings.Contains(base, "/") {
		return ""
	}
	return filepath.Join(filepath.Dir(path), base)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// exitCode is what the program would end with.
func exitCode(err error) int {
	var c interface{ ExitCode() int }
	if errors.As(err, &c) {
		return c.ExitCode()
	}
	return -1
}

// narration records progress.
type narration struct{ atomic.Pointer[[]string] }

func (n *narration) Step(what string) func(error) {
	n.Note("%s", what)
	return func(error) {}
}

func (n *narration) Note(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	for {
		old := n.Load()
		lines := []string{line}
		if old != nil {
			lines = append(append([]string(nil), *old...), line)
		}
		if n.CompareAndSwap(old, &lines) {
			return
		}
	}
}

func (n *narration) String() string {
	if lines := n.Load(); lines != nil {
		return strings.Join(*lines, "\n")
	}
	return ""
}
