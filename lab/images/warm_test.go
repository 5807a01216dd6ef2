package images_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/images"
	"mesh/lab/machine"
)

func warmOf() images.WarmOf {
	return images.WarmOf{
		Image: "one", Content: strings.Repeat("c", 64), Cmdline: "root=/dev/vda",
		Platform:    machine.Platform{Emulator: "qemu 7.2.22", MachineType: "pc-q35-7.2", CPU: "Nehalem", Accelerator: machine.TCG},
		MemoryBytes: 512 << 20, CPUs: 1, ReadyPoint: 1,
	}
}

// begun makes a warm image up to where it is to be finished.
func begun(t *testing.T, s images.WarmStore, of images.WarmOf, layer string) (images.Making, string) {
	t.Helper()
	m, err := s.Begin(of.Digest(), layer)
	if err != nil {
		t.Fatal(err)
	}
	write(t, m.Memory, "memory")
	write(t, filepath.Join(filepath.Dir(m.Memory), "console"), "booting")
	disk := filepath.Join(s.Dir, "layers", layer+".qcow2")
	write(t, disk, "disk")
	return m, disk
}

// A warm image is found by all that decides what it is, and by nothing less.
func TestWarmDigestCoversEverything(t *testing.T) {
	seen := map[string]string{warmOf().Digest(): "as it was"}
	var walk func(v reflect.Value, of *images.WarmOf, name string)
	walk = func(v reflect.Value, of *images.WarmOf, name string) {
		for i := range v.NumField() {
			field, name := v.Field(i), name+"."+v.Type().Field(i).Name
			old := reflect.ValueOf(field.Interface())
			switch field.Kind() {
			case reflect.Struct:
				walk(field, of, name)
				continue
			case reflect.String:
				field.SetString(field.String() + "x")
			default:
				field.SetInt(field.Int() + 1)
			}
			digest := of.Digest()
			if other, taken := seen[digest]; taken {
				t.Errorf("%s changed: the digest is that of %s", name, other)
			}
			seen[digest] = name
			field.Set(old)
		}
	}
	of := warmOf()
	walk(reflect.ValueOf(&of).Elem(), &of, "WarmOf")
	if len(seen) != 11 {
		t.Errorf("%d digests", len(seen))
	}
}

func TestWarmStore(t *testing.T) {
	s := images.WarmStore{Dir: t.TempDir()}
	of := warmOf()
	if _, err := s.Get(of.Digest()); !errors.Is(err, images.ErrNotBuilt) {
		t.Errorf("nothing made: %v", err)
	}
	m, disk := begun(t, s, of, "aa")
	if _, err := s.Get(of.Digest()); !errors.Is(err, images.ErrNotBuilt) {
		t.Errorf("half made: %v", err)
	}
	if left, err := s.Unfinished(); err != nil || len(left) != 1 || left[0] != of.Digest() {
		t.Errorf("Unfinished() = %v, %v", left, err)
	}
	if layers, err := s.Layers(); err != nil || !cmp.Equal(layers, []string{"aa"}) {
		t.Errorf("half made: Layers() = %v, %v", layers, err)
	}
	if _, err := s.Begin(of.Digest(), "bb"); err == nil {
		t.Error("begun twice")
	}
	w, err := m.Finish(of, disk, 31.5, noon)
	if err != nil {
		t.Fatal(err)
	}
	want := images.Warm{
		Digest: of.Digest(), Of: of, Layer: "aa", Memory: filepath.Join(s.Dir, "warm", of.Digest(), "memory"),
		SizeBytes: 10, BootSeconds: 31.5, Made: noon,
	}
	if diff := cmp.Diff(want, w); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	all, err := s.List()
	if diff := cmp.Diff([]images.Warm{want}, all); diff != "" || err != nil {
		t.Errorf("List(): %v\n%s", err, diff)
	}
	if layers, err := s.Layers(); err != nil || !cmp.Equal(layers, []string{"aa"}) {
		t.Errorf("Layers() = %v, %v", layers, err)
	}
	for _, file := range []string{w.Memory, disk} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o644 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(w.Memory), "console")); err == nil {
		t.Error("it keeps more than it is made of")
	}
	for range 2 {
		if err := s.Remove(of.Digest()); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(s.Dir, "warm")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := os.Stat(disk); err != nil {
		t.Errorf("the layer is gone, whoever stands on it: %v", err)
	}
}

// What was left half made is no hindrance once it is discarded, and is never
// found, whatever was there.
func TestWarmImagesAreWholeOrAbsent(t *testing.T) {
	s := images.WarmStore{Dir: t.TempDir()}
	of := warmOf()
	m, disk := begun(t, s, of, "aa")
	if err := os.Remove(m.Memory); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Finish(of, disk, 1, noon); err == nil {
		t.Error("finished without memory")
	}
	if all, err := s.List(); err != nil || len(all) != 0 {
		t.Errorf("List() = %v, %v", all, err)
	}
	for range 2 {
		if err := s.Discard(of.Digest()); err != nil {
			t.Error(err)
		}
	}
	m, disk = begun(t, s, of, "bb")
	if w, err := m.Finish(of, disk, 1, noon); err != nil || w.Layer != "bb" {
		t.Errorf("made after that: %+v, %v", w, err)
	}
}

func TestUnreadableWarmManifest(t *testing.T) {
	s := images.WarmStore{Dir: t.TempDir()}
	digest := warmOf().Digest()
	for name, content := range map[string]string{
		"empty": "", "a later format": `{"format":2}`, "a key nobody knows": `{"format":1,"speed":1}`, "another's": `{"format":1}`,
	} {
		write(t, filepath.Join(s.Dir, "warm", digest, "manifest.json"), content)
		_, err := s.Get(digest)
		if code(err) != 1 || errors.Is(err, images.ErrNotBuilt) || !strings.Contains(err.Error(), "remove that directory; the next raise makes it again") {
			t.Errorf("%s: got %v, want exit code 1 and what to do", name, err)
		}
		if _, err := s.Layers(); err == nil {
			t.Errorf("%s: nobody knows its layer, and that is no error", name)
		}
	}
}

func FuzzWarmManifest(f *testing.F) {
	f.Add([]byte(`{"format":1,"of":{"image":"one","platform":{"accelerator":"tcg"}},"layer":"aa","size_bytes":1,"boot_seconds":1.5,"made":"2026-01-02T12:00:00Z"}`))
	f.Add([]byte(`{"format":2}`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, content []byte) { _ = images.CheckWarmManifest(content) })
}
