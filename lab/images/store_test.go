package images_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"mesh/lab/images"
)

// code is the exit code that an error asks for, 0 for none.
func code(err error) int {
	var coder interface{ ExitCode() int }
	if errors.As(err, &coder) {
		return coder.ExitCode()
	}
	return 0
}

// newStore has the one recipe of base.
func newStore(t *testing.T) images.Store {
	t.Helper()
	return images.Store{Dir: t.TempDir(), Recipes: files(base)}
}

// put places an image's manifest where a build would.
func put(t *testing.T, s images.Store, name, digest string, built time.Time) {
	t.Helper()
	content, err := json.Marshal(map[string]any{
		"format": 1, "name": name, "digest": digest, "cmdline": "root=/dev/vda", "size_bytes": 7, "built": built,
	})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(s.Dir, "images", digest, "manifest.json"), string(content))
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func digestOf(t *testing.T, s images.Store) string {
	t.Helper()
	known, err := s.Known()
	if err != nil {
		t.Fatal(err)
	}
	return known[0].Digest()
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func TestGet(t *testing.T) {
	s := newStore(t)
	if _, err := s.Get("two"); !errors.Is(err, images.ErrUnknown) || code(err) != 2 {
		t.Errorf("unknown recipe: got %v", err)
	}
	_, err := s.Get("one")
	if !errors.Is(err, images.ErrNotBuilt) || code(err) != 4 || !strings.Contains(err.Error(), "lab image build one") {
		t.Errorf("nothing built: got %v, want ErrNotBuilt, exit code 4 and the command", err)
	}
	put(t, s, "one", strings.Repeat("a", 64), noon)
	if _, err := s.Get("one"); !errors.Is(err, images.ErrNotBuilt) {
		t.Errorf("an image of an earlier recipe: got %v, want ErrNotBuilt", err)
	}
	put(t, s, "one", digestOf(t, s), noon)
	got, err := s.Get("one")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(s.Dir, "images", digestOf(t, s))
	want := images.Image{
		Name: "one", Digest: digestOf(t, s), Cmdline: "root=/dev/vda", SizeBytes: 7, Built: noon,
		Disk: dir + "/disk.qcow2", Kernel: dir + "/kernel", Initrd: dir + "/initrd", Repository: dir + "/repository",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUnreadableManifest(t *testing.T) {
	s := newStore(t)
	digest := digestOf(t, s)
	for name, content := range map[string]string{
		"empty": "", "cut": `{"format":1`, "zeros": "\x00\x00", "a later format": `{"format":3,"digest":"` + digest + `"}`,
		"a key nobody knows": `{"format":1,"digest":"` + digest + `","kernal":""}`,
		"another's":          `{"format":1,"digest":"` + strings.Repeat("a", 64) + `"}`,
		"a key twice":        `{"format":1,"format":1,"digest":"` + digest + `"}`,
	} {
		write(t, filepath.Join(s.Dir, "images", digest, "manifest.json"), content)
		_, err := s.Get("one")
		if code(err) != 1 || errors.Is(err, images.ErrNotBuilt) || !strings.Contains(err.Error(), "remove that directory") {
			t.Errorf("%s: got %v, want exit code 1 and what to do", name, err)
		}
	}
}

func TestList(t *testing.T) {
	s := newStore(t)
	if all, err := s.List(); len(all) != 0 || err != nil {
		t.Errorf("no store: got %v, %v", all, err)
	}
	put(t, s, "two", strings.Repeat("c", 64), noon)
	put(t, s, "one", strings.Repeat("a", 64), noon)
	put(t, s, "one", strings.Repeat("b", 64), noon.Add(time.Hour))
	write(t, filepath.Join(s.Dir, "images", ".build-1", "image", "disk.qcow2"), "half")
	write(t, filepath.Join(s.Dir, "images", "one.log"), "+ mmdebstrap\n")
	all, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, i := range all {
		got = append(got, i.Name+" "+i.Digest[:1])
	}
	if diff := cmp.Diff([]string{"one b", "one a", "two c"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRemove(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	nobody := func(images.Image) ([]string, error) { return nil, nil }
	if gone, err := s.Remove(ctx, "one", nobody); len(gone) != 0 || err != nil {
		t.Errorf("no store: got %v, %v", gone, err)
	}
	if _, err := os.Stat(filepath.Join(s.Dir, "images")); err == nil {
		t.Error("removing from no store made one")
	}
	old, now, other := strings.Repeat("a", 64), strings.Repeat("b", 64), strings.Repeat("c", 64)
	put(t, s, "one", old, noon)
	put(t, s, "one", now, noon.Add(time.Hour))
	put(t, s, "two", other, noon)
	write(t, filepath.Join(s.Dir, "images", ".build-1", "image", "disk.qcow2"), "half")

	_, err := s.Remove(ctx, "one", func(i images.Image) ([]string, error) {
		if i.Digest == old {
			return []string{"pair"}, nil
		}
		return nil, nil
	})
	if !errors.Is(err, images.ErrInUse) || code(err) != 1 || !strings.Contains(err.Error(), "pair") {
		t.Errorf("in use: got %v, want ErrInUse, exit code 1 and who", err)
	}
	if diff := cmp.Diff([]string{old, now, other, "lock"}, entries(t, s)); diff != "" {
		t.Errorf("refused, or after a build that died (-want +got):\n%s", diff)
	}
	if _, err := s.Remove(ctx, "one", func(images.Image) ([]string, error) { return nil, errors.New("no idea") }); err == nil {
		t.Error("removed though nobody could tell who uses it")
	}
	gone, err := s.Remove(ctx, "one", nobody)
	if err != nil || len(gone) != 2 {
		t.Errorf("got %v, %v, want both", gone, err)
	}
	if diff := cmp.Diff([]string{other, "lock"}, entries(t, s)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// entries lists what is in the store.
func entries(t *testing.T, s images.Store) []string {
	t.Helper()
	all, err := os.ReadDir(filepath.Join(s.Dir, "images"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// TestWaitCanBeCancelled: a command waits for another one's lock, and no longer
// than its caller does.
func TestWaitCanBeCancelled(t *testing.T) {
	s := newStore(t)
	write(t, filepath.Join(s.Dir, "images", "lock"), "")
	held, err := os.Open(filepath.Join(s.Dir, "images", "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Remove(ctx, "one", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"format":1,"name":"one","digest":"ab","cmdline":"","size_bytes":1,"built":"2026-01-02T12:00:00Z"}`))
	f.Add([]byte(`{"format":1,"format":1}`))
	f.Add([]byte("\x00"))
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := images.CheckManifest(content); err == nil && !json.Valid(content) {
			t.Errorf("accepted %q", content)
		}
	})
}
