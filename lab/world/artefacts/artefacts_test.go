package artefacts_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"mesh/lab/world/artefacts"
)

// tree is a repository, with a secret beside it and ways that try to lead there.
func tree(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	repository := filepath.Join(dir, "repository")
	for path, text := range map[string]string{
		"secret":                         "secret",
		"repository/Packages":            "Package: a\n",
		"repository/pool/a_1.0+b~1.deb":  "0123456789",
		"repository/index.html":          "index",
		"repository/pool/deep/index.txt": "deep",
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"out": "../secret", "absolute": filepath.Join(dir, "secret"), "in": "Packages"} {
		if err := os.Symlink(to, filepath.Join(repository, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(repository, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"debian-13": repository, "gone": filepath.Join(dir, "gone")}
}

func TestHandler(t *testing.T) {
	h := artefacts.Handler(tree(t), slog.New(slog.DiscardHandler))
	for _, c := range []struct {
		method, path string
		code         int
		body         string // where the code is 200 or 206
	}{
		{"GET", "/debian-13/Packages", 200, "Package: a\n"},
		{"GET", "/debian-13/./Packages", 200, "Package: a\n"}, // as apt asks for `deb URL ./`
		{"HEAD", "/debian-13/Packages", 200, ""},
		{"GET", "/debian-13/pool/a_1.0%2bb~1.deb", 200, "0123456789"},
		{"GET", "/debian-13/index.html", 200, "index"}, // no redirect to a directory
		{"GET", "/debian-13/in", 200, "Package: a\n"},
		{"GET", "/debian-13/out", 404, ""},
		{"GET", "/debian-13/absolute", 404, ""},
		{"GET", "/debian-13/fifo", 404, ""},
		{"GET", "/debian-13/../secret", 404, ""},
		{"GET", "/debian-13/%2e%2e/secret", 404, ""},
		{"GET", "/debian-13/pool/..%2f..%2fsecret", 404, ""},
		{"GET", "/debian-13/pool/", 404, ""},
		{"GET", "/debian-13/pool", 404, ""},
		{"GET", "/debian-13/", 404, ""},
		{"GET", "/debian-13", 404, ""},
		{"GET", "/", 404, ""},
		{"GET", "/debian-13/absent", 404, ""},
		{"GET", "/debian-13/Packages/x", 404, ""},
		{"GET", "/debian-12/Packages", 404, ""},
		{"GET", "/gone/Packages", 404, ""},
		{"PUT", "/debian-13/Packages", 405, ""},
		{"DELETE", "/debian-13/Packages", 405, ""},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			r := httptest.NewRequest(c.method, "http://any.name.at.all"+c.path, strings.NewReader(""))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != c.code {
				t.Fatalf("code %d, want %d", w.Code, c.code)
			}
			if got := w.Body.String(); c.code == 200 && got != c.body {
				t.Errorf("body %q, want %q", got, c.body)
			}
			if strings.Contains(w.Body.String(), "secret") && c.code != 200 {
				t.Errorf("body shows too much: %q", w.Body)
			}
		})
	}
}

func TestRange(t *testing.T) {
	h := artefacts.Handler(tree(t), slog.New(slog.DiscardHandler))
	r := httptest.NewRequest(http.MethodGet, "/debian-13/pool/a_1.0+b~1.deb", nil)
	r.Header.Set("Range", "bytes=3-5")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusPartialContent || w.Body.String() != "345" {
		t.Errorf("%d %q, want 206 and bytes 3 to 5", w.Code, w.Body)
	}
	if w.Header().Get("Last-Modified") == "" {
		t.Error("no Last-Modified: apt would fetch again what it has")
	}
}

func TestCheck(t *testing.T) {
	repositories := tree(t)
	if err := artefacts.Check(repositories); err == nil || !strings.Contains(err.Error(), "repository gone") {
		t.Errorf("got %v, want the missing one named", err)
	}
	delete(repositories, "gone")
	if err := artefacts.Check(repositories); err != nil {
		t.Error(err)
	}
}
