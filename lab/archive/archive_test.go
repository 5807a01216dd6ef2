package archive_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"mesh/lab/archive"
	"mesh/lab/images"
	"mesh/lab/lifecycle"
	"mesh/lab/lifecycle/lifecycletest"
	"mesh/lab/machine"
	"mesh/lab/scenario"
	"mesh/lab/snapshot"
	"mesh/lab/underlay"
)

// recipe is the digest of the recipe of the one image of every bed.
var recipe = strings.Repeat("d", 64)

// bed is a fake lab machine with a store of its own and one built image.
type bed struct {
	*lifecycletest.Fake
	lab       *lifecycle.Lab
	snapshots *snapshot.Snapshots
	archive   *archive.Archive
	store     string
	serial    atomic.Int64
}

// newBed makes a lab machine whose image has that disk; empty: it has no image.
func newBed(t *testing.T, disk string) *bed {
	t.Helper()
	return newBedIn(t, t.TempDir(), disk)
}

// newBedIn is newBed in a directory, where there may be one already.
func newBedIn(t *testing.T, dir, disk string) *bed {
	t.Helper()
	b := &bed{Fake: &lifecycletest.Fake{Dir: filepath.Join(dir, "world")}, store: filepath.Join(dir, "store")}
	must(t, os.MkdirAll(b.Fake.Dir, 0o755))
	store := images.Store{Dir: b.store}
	if disk != "" {
		from := filepath.Join(dir, "image")
		write(t, filepath.Join(from, "disk.qcow2"), disk)
		write(t, filepath.Join(from, "kernel"), "kernel")
		write(t, filepath.Join(from, "initrd"), "initrd")
		write(t, filepath.Join(from, "repository", "Packages"), "packages")
		_, err := store.Adopt(t.Context(), images.Image{
			Name: "debian-13", Digest: recipe, Content: contentOf(disk, "kernel", "initrd"), Cmdline: "root=/dev/vda", Built: start,
		}, from)
		must(t, err)
	}
	cfg := b.Ports(lifecycle.Config{
		Store: b.store, Runtime: filepath.Join(dir, "run"), Progress: silent{}, Poll: time.Millisecond, Now: b.now,
		Snapshots: snapshot.Store{Dir: b.store},
	})
	b.lab = lifecycle.New(cfg)
	b.snapshots = snapshot.New(snapshot.Config{
		Lab: b.lab, Ports: cfg, Images: store.List, NewRun: func() string { return b.id(t)[:8] }, NewID: func() string { return b.id(t) },
		Entropy: func() []byte { return bytes.Repeat([]byte("r"), 64) },
	})
	b.archive = archive.New(archive.Config{
		Lab: b.lab, Ports: cfg, Snapshots: b.snapshots, Images: store, Disks: disks{}, NewID: func() string { return b.id(t) },
	})
	return b
}

var start = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func (b *bed) now() time.Time { return start.Add(time.Duration(b.serial.Add(1)) * time.Second) }

func (b *bed) id(t *testing.T) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", t.Name(), b.store, b.serial.Add(1)))
	return hex.EncodeToString(sum[:16])
}

// disks changes what the fake's disks stand on.
type disks struct{}

func (disks) Backing(path string) (string, error) {
	if _, err := os.Stat(path); err != nil {
		return "", err
	}
	return lifecycletest.Below(path), nil
}

func (disks) Rebase(_ context.Context, path, name string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var layer map[string][]byte
	if err := json.Unmarshal(data, &layer); err != nil {
		return err
	}
	layer[""] = []byte(name)
	if data, err = json.Marshal(layer); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

type silent struct{}

func (silent) Step(string) func(error) { return func(error) {} }
func (silent) Note(string, ...any)     {}

// raised raises a scenario of two machines and takes a snapshot of it.
func (b *bed) raised(t *testing.T, name, taken string) snapshot.Manifest {
	t.Helper()
	s := &scenario.Scenario{
		File: "small.yaml", Name: "small",
		Segments: []scenario.Segment{{Name: "public", Kind: scenario.Public, IPv4: netip.MustParsePrefix("203.0.113.0/24")}},
		Machines: []scenario.Machine{
			{Name: "one", Image: "debian-13", MemoryBytes: 512 << 20, CPUs: 1, Segments: []string{"public"}},
			{Name: "two", Image: "debian-13", MemoryBytes: 512 << 20, CPUs: 1, Segments: []string{"public"}},
		},
	}
	run := b.id(t)[:8]
	u, err := underlay.Plan(s, run)
	must(t, err)
	image, err := images.Store{Dir: b.store}.List()
	must(t, err)
	p, err := lifecycle.NewPlan(s, *u, lifecycle.Options{
		Name: name, Source: "small.yaml", Run: run, Images: map[string]images.Image{"debian-13": image[0]},
		Directory: b.lab.Directory(name), Layers: b.lab.Layers(), Runtime: b.lab.RuntimeOf(run),
	})
	must(t, err)
	_, err = b.lab.Raise(t.Context(), p, lifecycle.RaiseOptions{Files: fstest.MapFS{}})
	must(t, err)
	m, err := b.snapshots.Take(t.Context(), name, taken, "")
	must(t, err)
	return m
}

// export writes a snapshot into memory.
func (b *bed) export(t *testing.T, o archive.ExportOptions) []byte {
	t.Helper()
	var file bytes.Buffer
	_, err := b.archive.Export(t.Context(), o, &file)
	must(t, err)
	return file.Bytes()
}

// tree lists every file of the store with its content, but for locks.
func (b *bed) tree(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(b.store, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == b.store {
			return nil
		}
		if err != nil || d.IsDir() || d.Name() == "lock" {
			return err
		}
		data, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, b.store)] = string(data)
		return err
	}))
	return all
}

// Under another name, in the store of another lab machine that never had the
// image, with the source gone, the scenario runs on from the instant; nothing
// names a path of where it came from.
func TestCaseL8ExportImportRestore(t *testing.T) {
	from, to := newBed(t, "a disk"), newBed(t, "")
	m := from.raised(t, "a", "s1")
	file := from.export(t, archive.ExportOptions{Scenario: "a", Snapshot: "s1"})
	if _, err := from.lab.Destroy(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	must(t, os.RemoveAll(from.store))

	x, err := to.archive.Import(t.Context(), bytes.NewReader(file), archive.ImportOptions{As: "b"})
	must(t, err)
	if x.Snapshot.Scenario != "b" || x.Snapshot.ID != m.ID {
		t.Errorf("imported as %s, id %s", x.Snapshot.Scenario, x.Snapshot.ID)
	}
	must(t, to.snapshots.Verify(t.Context(), "b", "s1"))
	for path, content := range to.tree(t) {
		// A memory image says what its machine was made of; restoring replaces it.
		if strings.Contains(content, from.store) && filepath.Base(filepath.Dir(path)) != "memory" {
			t.Errorf("%s names a path of where it came from", path)
		}
	}
	r, err := to.snapshots.Restore(t.Context(), snapshot.RestoreOptions{Scenario: "b", Snapshot: "s1"})
	must(t, err)
	if diff := cmp.Diff([]string{"one", "two"}, r.Machines); diff != "" {
		t.Error(diff)
	}
}

// A store that built the same recipe by itself has another disk: the layers go on
// standing on the one that they were made on.
func TestImportKeepsImagesApart(t *testing.T) {
	from, to := newBed(t, "a disk"), newBed(t, "another disk")
	from.raised(t, "a", "s1")
	file := from.export(t, archive.ExportOptions{Scenario: "a", Snapshot: "s1"})
	x, err := to.archive.Import(t.Context(), bytes.NewReader(file), archive.ImportOptions{})
	must(t, err)
	content := contentOf("a disk", "kernel", "initrd")
	if got := x.Snapshot.Images["debian-13"]; got != recipe { // the index is as it was exported
		t.Errorf("the index says %s", got)
	}
	m, err := to.snapshots.Store().Get("a", "s1")
	must(t, err)
	if got := m.Images["debian-13"]; got != content {
		t.Fatalf("the snapshot stands on image %s, not on %s", got, content)
	}
	must(t, to.snapshots.Verify(t.Context(), "a", "s1"))
	for _, pm := range m.Plan.Machines {
		last := to.lab.Layer(pm.Layers[len(pm.Layers)-1])
		if got := lifecycletest.Below(last); got != "../images/"+content+"/disk.qcow2" {
			t.Errorf("the lowest layer of %s stands on %s", pm.Name, got)
		}
	}
	// Once more, beside it: it is another snapshot then, of the same layers.
	_, err = to.archive.Import(t.Context(), bytes.NewReader(file), archive.ImportOptions{As: "again"})
	must(t, err)
	again, err := to.snapshots.Store().Get("again", "s1")
	must(t, err)
	if again.ID == m.ID {
		t.Error("two snapshots have one id")
	}
	must(t, to.snapshots.Verify(t.Context(), "again", "s1"))
}

func TestWithoutImages(t *testing.T) {
	from, same, other := newBed(t, "a disk"), newBed(t, "a disk"), newBed(t, "another disk")
	from.raised(t, "a", "s1")
	file := from.export(t, archive.ExportOptions{Scenario: "a", Snapshot: "s1", WithoutImages: true})
	_, err := same.archive.Import(t.Context(), bytes.NewReader(file), archive.ImportOptions{})
	must(t, err)
	must(t, same.snapshots.Verify(t.Context(), "a", "s1"))
	before := other.tree(t)
	_, err = other.archive.Import(t.Context(), bytes.NewReader(file), archive.ImportOptions{})
	wantRefused(t, err, 4, "made without images")
	if diff := cmp.Diff(before, other.tree(t)); diff != "" {
		t.Error(diff)
	}
}

// entry is one entry of an archive that is forged.
type entry struct {
	header tar.Header
	data   []byte
}

// unpack takes an archive apart.
func unpack(t *testing.T, file []byte) (all []entry) {
	t.Helper()
	z, err := zstd.NewReader(bytes.NewReader(file))
	must(t, err)
	defer z.Close()
	r := tar.NewReader(z)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		must(t, err)
		data, err := io.ReadAll(r)
		must(t, err)
		all = append(all, entry{*h, data})
	}
}

// pack puts one together.
func pack(t *testing.T, all []entry) []byte {
	t.Helper()
	var file []byte
	for _, e := range all {
		file = append(file, tarOf(t, e)...)
	}
	return squeeze(t, append(file, make([]byte, 1024)...)) // what ends an archive
}

// tarOf is one entry as it stands in an archive.
func tarOf(t *testing.T, e entry) []byte {
	t.Helper()
	var file bytes.Buffer
	w := tar.NewWriter(&file)
	e.header.Size = int64(len(e.data))
	must(t, w.WriteHeader(&e.header))
	if e.header.Typeflag == tar.TypeReg {
		_, err := w.Write(e.data)
		must(t, err)
	}
	must(t, w.Flush())
	return file.Bytes()
}

// squeeze compresses.
func squeeze(t *testing.T, data []byte) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	must(t, err)
	defer z.Close()
	return z.EncodeAll(data, nil)
}

// Whatever is wrong with an archive is one error, and the store is as it was.
func TestBadArchivesChangeNothing(t *testing.T) {
	from := newBed(t, "a disk")
	m := from.raised(t, "a", "s1")
	whole := from.export(t, archive.ExportOptions{Scenario: "a", Snapshot: "s1"})
	forge := func(change func(all []entry) []entry) []byte { return pack(t, change(unpack(t, whole))) }
	index := func(old, new string) []byte {
		return forge(func(all []entry) []entry {
			if !bytes.Contains(all[0].data, []byte(old)) {
				t.Fatalf("the index has no %q", old)
			}
			all[0].data = bytes.Replace(all[0].data, []byte(old), []byte(new), 1)
			return all
		})
	}
	layer := func(change func(string) string) []byte {
		return forge(func(all []entry) []entry {
			l := m.Layers[0]
			for n, e := range all {
				if e.header.Name != "files/"+l.SHA256 {
					continue
				}
				e.data = []byte(change(string(e.data)))
				sum := sha256.Sum256(e.data)
				e.header.Name = "files/" + hex.EncodeToString(sum[:])
				all[n] = e
				is := regexp.MustCompile(fmt.Sprintf(`"bytes": %d,(\s+)"sha256": "%s"`, l.Bytes, l.SHA256))
				all[0].data = is.ReplaceAll(all[0].data, fmt.Appendf(nil, `"bytes": %d,$1"sha256": "%x"`, len(e.data), sum))
			}
			return all
		})
	}
	// rooted gives the image a disk that stands on a file of the lab machine.
	rooted := forge(func(all []entry) []entry {
		disk, err := json.Marshal(map[string][]byte{"": []byte("/etc/shadow")})
		must(t, err)
		old := fmt.Sprintf("%x", sha256.Sum256([]byte("a disk")))
		now := fmt.Sprintf("%x", sha256.Sum256(disk))
		for n, e := range all {
			if e.header.Name == "files/"+old {
				all[n].header.Name, all[n].data = "files/"+now, disk
			}
		}
		is := regexp.MustCompile(`"bytes": 6,(\s+)"sha256": "` + old + `"`)
		text := is.ReplaceAll(all[0].data, fmt.Appendf(nil, `"bytes": %d,$1"sha256": "%s"`, len(disk), now))
		all[0].data = bytes.ReplaceAll(text, []byte(contentOf("a disk", "kernel", "initrd")), []byte(contentOf(string(disk), "kernel", "initrd")))
		return all
	})
	stretched, err := zstd.NewReader(bytes.NewReader(whole))
	must(t, err)
	defer stretched.Close()
	cut, err := io.ReadAll(stretched)
	must(t, err)
	cut = cut[:len(cut)-2000] // with what ends an archive, 1024 bytes
	for _, c := range []struct {
		name, says string
		code       int
		file       []byte
	}{
		{"empty", "cannot be read", 2, nil},
		{"no archive", "cannot be read", 2, []byte("hello")},
		{"cut in its index", "cannot be read", 2, whole[:100]},
		{"cut in its compression", "cannot be read", 2, whole[:len(whole)-40]},
		{"cut in a content", "cut short", 2, squeeze(t, cut)},
		{"another file", `begins with "etc/passwd"`, 2, pack(t, []entry{{header: tar.Header{Name: "etc/passwd", Typeflag: tar.TypeReg}}})},
		{"newer", "written by a newer lab", 2, index(`"format": 1`, `"format": 2`)},
		{"of an unknown member", "unknown", 2, index(`"made"`, `"mad": 1, "made"`)},
		{"of a snapshot that is newer", "written by a newer lab", 2, index("\"snapshot\": {\n    \"format\": 2", "\"snapshot\": {\n    \"format\": 7")},
		{"names a path", "no file of an image", 2, index(`"path": "kernel"`, `"path": "../../../etc/passwd"`)},
		{"names a path of the snapshot", "no path below", 2, index(`"path": "`+m.Files[0].Path+`"`, `"path": "/etc/passwd"`)},
		{"of another platform", "another platform", 4, index(`"machine_type": "`+m.Platform.MachineType+`"`, `"machine_type": "pc-q35-99.0"`)},
		{"of another CPU", "another platform", 4, index(`"cpu": "`+m.Platform.CPU+`"`, `"cpu": "Pentium"`)},
		{"a content is missing", "missing", 2, forge(func(all []entry) []entry { return all[:len(all)-1] })},
		{"a content too many", "does not have", 2, forge(func(all []entry) []entry {
			return append(all, entry{tar.Header{Name: "files/../../x", Typeflag: tar.TypeReg}, []byte("x")})
		})},
		{"a link", "does not have", 2, forge(func(all []entry) []entry {
			all[1].header.Typeflag, all[1].header.Linkname, all[1].data = tar.TypeSymlink, "/etc/passwd", nil
			return all
		})},
		{"a content was changed", "damaged", 2, forge(func(all []entry) []entry {
			all[1].data = slices.Clone(all[1].data)
			all[1].data[0] ^= 1
			return all
		})},
		{"an image stands on a file of the lab machine", "stands on nothing", 2, rooted},
		{"a disk stands on a file of the lab machine", "ought to stand on", 2, layer(func(string) string {
			data, err := json.Marshal(map[string][]byte{"": []byte("/etc/shadow")})
			must(t, err)
			return string(data)
		})},
	} {
		t.Run(c.name, func(t *testing.T) {
			to := newBed(t, "")
			_, err := to.archive.Import(t.Context(), bytes.NewReader(c.file), archive.ImportOptions{})
			wantRefused(t, err, c.code, c.says)
			// An image is whole by its own, and stays.
			for path := range to.tree(t) {
				if !strings.HasPrefix(path, "/images/") {
					t.Errorf("%s was left", path)
				}
			}
		})
	}
}

// A name that is taken, and a disk that is too small, are found before anything
// is stored.
func TestImportIsAdmittedFirst(t *testing.T) {
	b := newBed(t, "a disk")
	b.raised(t, "a", "s1")
	file := b.export(t, archive.ExportOptions{Scenario: "a", Snapshot: "s1"})
	before := b.tree(t)
	_, err := b.archive.Import(t.Context(), bytes.NewReader(file), archive.ImportOptions{})
	wantRefused(t, err, 2, "has a snapshot s1 already")
	b.SpaceBytes = 1
	_, err = b.archive.Import(t.Context(), bytes.NewReader(file), archive.ImportOptions{As: "c"})
	wantRefused(t, err, 4, "not enough disk space")
	b.SpaceBytes = 0
	_, err = b.archive.Import(t.Context(), bytes.NewReader(file), archive.ImportOptions{As: "c", DryRun: true})
	must(t, err)
	if diff := cmp.Diff(before, b.tree(t)); diff != "" {
		t.Error(diff)
	}
}

func TestExportOfADamagedSnapshot(t *testing.T) {
	b := newBed(t, "a disk")
	m := b.raised(t, "a", "s1")
	layer := b.lab.Layer(m.Layers[0].ID)
	data, err := os.ReadFile(layer)
	must(t, err)
	data[len(data)/2] ^= 1
	must(t, os.WriteFile(layer, data, 0o644))
	_, err = b.archive.Export(t.Context(), archive.ExportOptions{Scenario: "a", Snapshot: "s1"}, io.Discard)
	wantRefused(t, err, 1, "damaged")
	_, err = b.archive.Export(t.Context(), archive.ExportOptions{Scenario: "a", Snapshot: "none"}, io.Discard)
	if !errors.Is(err, snapshot.ErrAbsent) {
		t.Errorf("of none: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"format":1}`))
	f.Add([]byte(`{"format":2}`))
	f.Add([]byte(`{"format":1,"made":"2026-05-01T12:00:00Z","snapshot":{"format":1},"images":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := archive.Parse(data)
		if err != nil {
			return
		}
		again, err := x.Marshal()
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if y, err := archive.Parse(again); err != nil || !cmp.Equal(x, y) {
			t.Fatalf("round trip: %v\n%s", err, cmp.Diff(x, y))
		}
	})
}

func wantRefused(t *testing.T, err error, code int, says string) {
	t.Helper()
	var told interface{ ExitCode() int }
	if err == nil || !errors.As(err, &told) || told.ExitCode() != code || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want exit code %d and %q", err, code, says)
	}
	if err != nil && strings.Contains(says, "platform") && !errors.Is(err, machine.ErrForeign) {
		t.Errorf("%v is not ErrForeign", err)
	}
}

func contentOf(files ...string) string {
	all := sha256.New()
	for _, f := range files {
		sum := sha256.Sum256([]byte(f))
		all.Write(sum[:])
	}
	return hex.EncodeToString(all.Sum(nil))
}

func write(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o644))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// full takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// What keeps an export from being written is said once.
func TestExportOntoWhatIsFull(t *testing.T) {
	b := newBed(t, strings.Repeat("a disk", 1<<20))
	b.raised(t, "a", "s1")
	_, err := b.archive.Export(t.Context(), archive.ExportOptions{Scenario: "a", Snapshot: "s1"}, full{})
	if !errors.Is(err, syscall.ENOSPC) || strings.Count(err.Error(), syscall.ENOSPC.Error()) != 1 {
		t.Errorf("got %v", err)
	}
}
