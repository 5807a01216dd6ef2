package artefacts_test

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mesh/lab/world/artefacts"
)

// TestRegistry: what a client asks who fetches an image by its digest.
func TestRegistry(t *testing.T) {
	dir := t.TempDir()
	repository := filepath.Join(dir, "mesh")
	hex := func(digit string) string { return strings.Repeat(digit, 64) }
	for name, content := range map[string]string{
		"mesh/sha256-" + hex("1"): `{"mediaType":"application/vnd.oci.image.index.v1+json"}`,
		"mesh/sha256-" + hex("2"): `{"schemaVersion":2}`,
		"mesh/sha256-" + hex("3"): "not JSON",
		"mesh/Packages":           "Package: a\n",
		"sha256-" + hex("9"):      "secret",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../sha256-"+hex("9"), filepath.Join(repository, "sha256-"+hex("8"))); err != nil {
		t.Fatal(err)
	}
	h := artefacts.Handler(map[string]string{"mesh": repository}, slog.New(slog.DiscardHandler))
	const oneImage = "application/vnd.oci.image.manifest.v1+json"
	for _, c := range []struct {
		method, path, kind, body string // no kind: there is nothing, and no body
		code                     int
	}{
		{"GET", "/v2/", "-", "", 200},
		{"GET", "/v2", "-", "", 200},
		{"GET", "/v2/mesh/shop/manifests/sha256:" + hex("1"), "application/vnd.oci.image.index.v1+json", `{"mediaType":"application/vnd.oci.image.index.v1+json"}`, 200},
		{"HEAD", "/v2/mesh/shop/manifests/sha256:" + hex("1"), "application/vnd.oci.image.index.v1+json", "", 200},
		{"GET", "/v2/mesh/a/b/manifests/sha256:" + hex("2"), oneImage, `{"schemaVersion":2}`, 200},
		{"GET", "/v2/mesh/shop/manifests/sha256:" + hex("3"), oneImage, "not JSON", 200},
		{"GET", "/v2/mesh/shop/blobs/sha256:" + hex("3"), "application/octet-stream", "not JSON", 200},
		{"GET", "/v2/mesh/shop/blobs/sha256:" + hex("4"), "", "", 404},
		{"GET", "/v2/mesh/shop/blobs/sha256:" + hex("8"), "", "", 404},
		{"GET", "/v2/mesh/shop/manifests/latest", "", "", 404},
		{"GET", "/v2/mesh/manifests/sha256:" + hex("1"), "", "", 404},
		{"GET", "/v2/debian-13/shop/blobs/sha256:" + hex("3"), "", "", 404},
		{"GET", "/v2/mesh/shop/blobs/..%2f..%2fsha256-" + hex("9"), "", "", 404},
		{"GET", "/v2/_catalog", "", "", 404},
		{"POST", "/v2/mesh/shop/blobs/uploads/", "", "", 405},
		{"PUT", "/v2/mesh/shop/manifests/x", "", "", 405},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
			if w.Code != c.code {
				t.Fatalf("code %d, want %d", w.Code, c.code)
			}
			if c.kind == "" {
				return
			}
			if got := w.Header().Get("Content-Type"); c.kind != "-" && got != c.kind || w.Body.String() != c.body {
				t.Errorf("%s %q, want %s %q", got, w.Body, c.kind, c.body)
			}
			if got := w.Header().Get("Docker-Content-Digest"); c.kind != "-" && !strings.HasSuffix(c.path, got) {
				t.Errorf("digest %q", got)
			}
			if got := w.Header().Get("Content-Length"); c.kind != "-" && c.method == "GET" && got != fmt.Sprint(len(c.body)) {
				t.Errorf("length %q", got)
			}
		})
	}
}
