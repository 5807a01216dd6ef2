package bench

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"runtime"
)

// Image is a container image of one program, as one file: an OCI image layout, to
// be put beside the packages that machines are offered. label is what tells images
// of one program apart. The digest, "sha256:…", is what it is fetched by.
// https://github.com/opencontainers/image-spec/blob/main/image-layout.md
func Image(program []byte, label string) (layout []byte, digest string, err error) {
	layer, err := tarOf(map[string][]byte{"program": program}, 0o755)
	if err != nil {
		return nil, "", err
	}
	blobs := map[string][]byte{}
	add := func(mediaType string, content []byte) map[string]any {
		digest := fmt.Sprintf("%x", sha256.Sum256(content))
		blobs["blobs/sha256/"+digest] = content
		return map[string]any{"mediaType": mediaType, "digest": "sha256:" + digest, "size": len(content)}
	}
	content := add("application/vnd.oci.image.layer.v1.tar", layer)
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/program"}, "Labels": map[string]string{"label": label}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []any{content["digest"]}},
	})
	if err != nil {
		return nil, "", err
	}
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType,
		"config": add("application/vnd.oci.image.config.v1+json", config), "layers": []any{content},
	})
	if err != nil {
		return nil, "", err
	}
	top := add(manifestType, manifest)
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []any{top}})
	if err != nil {
		return nil, "", err
	}
	blobs["index.json"], blobs["oci-layout"] = index, []byte(`{"imageLayoutVersion":"1.0.0"}`)
	layout, err = tarOf(blobs, 0o644)
	return layout, top["digest"].(string), err
}

func tarOf(files map[string][]byte, mode int64) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(content))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}
