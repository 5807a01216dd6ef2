package images_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/images"
)

// layoutOf is a tar file of these files.
func layoutOf(t *testing.T, name string, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name+images.LayoutSuffix)
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func blobOf(content string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(content))) }

// TestRepositoryOfImages: what images consist of lies beside the packages, by its
// digest, once even if two have it.
func TestRepositoryOfImages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mesh")
	first := layoutOf(t, "first", map[string]string{"blobs/sha256/" + blobOf("layer"): "layer", "./blobs/sha256/" + blobOf("one"): "one", "index.json": "{}", "blobs/sha256/../../up": "x"})
	second := layoutOf(t, "second", map[string]string{"blobs/sha256/" + blobOf("layer"): "layer", "oci-layout": "{}"})
	if err := images.Repository(context.Background(), []string{deb(t, "a", "1"), first, second}, dir); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, e := range entries {
		got[e.Name()] = true
	}
	want := map[string]bool{"Packages": true, "Packages.gz": true, "Release": true, "a_1_all.deb": true, "sha256-" + blobOf("layer"): true, "sha256-" + blobOf("one"): true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if content, err := os.ReadFile(filepath.Join(dir, "sha256-"+blobOf("one"))); err != nil || string(content) != "one" {
		t.Errorf("%q %v", content, err)
	}
	if got := offers(t, dir); !strings.Contains(got, "a |          1 |") {
		t.Errorf("apt finds %q", got)
	}
}

// TestBadInputLayouts: the file is named with what is wrong, and there is no repository.
func TestBadInputLayouts(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		cut   bool
		want  string
	}{
		"another digest": {map[string]string{"blobs/sha256/" + blobOf("layer"): "lay"}, false, "is damaged: its digest is " + blobOf("lay")},
		"no layout":      {map[string]string{"index.json": "{}"}, false, "it holds nothing by its digest: is it an OCI image layout?"},
		"cut short":      {map[string]string{"blobs/sha256/" + blobOf("layer"): "layer"}, true, "read it as a tar file"},
	} {
		t.Run(name, func(t *testing.T) {
			path := layoutOf(t, "bad", tt.files)
			if tt.cut {
				if err := os.Truncate(path, 300); err != nil {
					t.Fatal(err)
				}
			}
			dir := filepath.Join(t.TempDir(), "mesh")
			err := images.Repository(context.Background(), []string{path}, dir)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("\n got: %v\nwant: …%s…", err, tt.want)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Error("there is a repository")
			}
		})
	}
}
