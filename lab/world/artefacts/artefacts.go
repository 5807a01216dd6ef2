// Package artefacts serves directories of the lab machine to a scenario's
// machines over HTTP, read only: flat apt repositories, one below each name, and
// the container images in them, by their digests, as a registry does.
//
// A file is found by its exact path. Nothing is listed, nothing outside a
// repository's directory is reached, by dots or by links; whatever host name a
// request is for, the answer is the same.
//
// Only lab/world imports it.
package artefacts

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
)

// Handler serves repositories: name in the path → directory. The directories are
// opened anew for each request, so that they may be replaced.
func Handler(repositories map[string]string, log *slog.Logger) http.Handler {
	repositories = maps.Clone(repositories)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
			return
		}
		if err := answer(w, r, path.Clean("/"+r.URL.Path), repositories); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				log.Warn("artefact is not served", "path", r.URL.Path, "err", err)
			}
			http.NotFound(w, r)
		}
	})
}

// answer answers for a path; fs.ErrNotExist if there is nothing.
func answer(w http.ResponseWriter, r *http.Request, p string, repositories map[string]string) error {
	name, file, _ := strings.Cut(p[1:], "/")
	if name == "v2" {
		return image(w, r, p, repositories)
	}
	dir, known := repositories[name]
	if !known || file == "" {
		return fs.ErrNotExist
	}
	return serve(w, r, dir, file)
}

// serve answers with a regular file; fs.ErrNotExist if there is none, a
// directory among them.
func serve(w http.ResponseWriter, r *http.Request, dir, file string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	// Looked at before it is opened: opening a FIFO would wait for a writer.
	info, err := root.Stat(file)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fs.ErrNotExist
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", file)
	}
	f, err := root.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if path.Ext(file) == ".deb" {
		w.Header().Set("Content-Type", "application/vnd.debian.binary-package")
	}
	http.ServeContent(w, r, path.Base(file), info.ModTime(), f)
	return nil
}

// Check tells which repository is not a directory.
func Check(repositories map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(repositories)) {
		if info, err := os.Stat(repositories[name]); err != nil || !info.IsDir() {
			return fmt.Errorf("serve repository %s: %s is not a directory; build the image or the packages that it holds",
				name, repositories[name])
		}
	}
	return nil
}
