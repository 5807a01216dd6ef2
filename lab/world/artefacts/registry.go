package artefacts

import (
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"os"
	"regexp"
)

// asked is what somebody asks for who fetches an image by its digest: a
// repository, a name below it that is for people only, and what is named by the
// digest in it.
// https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pull
var asked = regexp.MustCompile(`^/v2/([a-z0-9][a-z0-9._-]*)/[a-z0-9][a-z0-9._/-]*/(manifests|blobs)/sha256:([0-9a-f]{64})$`)

// maxManifest is how much of a manifest is looked at, in bytes.
const maxManifest = 4 << 20

// image answers for a path below /v2/: each repository is a registry, too, of what
// it holds in files called "sha256-" and a digest. There are no tags, and nothing
// is taken.
func image(w http.ResponseWriter, r *http.Request, p string, repositories map[string]string) error {
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	if p == "/v2" {
		return nil
	}
	part := asked.FindStringSubmatch(p)
	if part == nil || repositories[part[1]] == "" {
		return fs.ErrNotExist
	}
	dir, file := repositories[part[1]], "sha256-"+part[3]
	w.Header().Set("Content-Type", "application/octet-stream")
	if part[2] == "manifests" {
		w.Header().Set("Content-Type", mediaType(dir, file))
	}
	w.Header().Set("Docker-Content-Digest", "sha256:"+part[3])
	return serve(w, r, dir, file)
}

// mediaType is what a manifest calls itself; that of an image when it does not.
func mediaType(dir, file string) string {
	said := struct {
		MediaType string `json:"mediaType"`
	}{}
	if root, err := os.OpenRoot(dir); err == nil {
		defer root.Close()
		if f, err := root.Open(file); err == nil {
			defer f.Close()
			_ = json.NewDecoder(io.LimitReader(f, maxManifest)).Decode(&said)
		}
	}
	if said.MediaType == "" {
		return "application/vnd.oci.image.manifest.v1+json"
	}
	return said.MediaType
}
