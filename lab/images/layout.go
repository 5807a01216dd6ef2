package images

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// LayoutSuffix ends the name of a container image in a directory of packages: an
// image layout as one file, as `skopeo copy docker://… oci-archive:NAME.oci.tar`
// and `podman save --format oci-archive` write it.
const LayoutSuffix = ".oci.tar"

// blobForm is how a layout names what it holds by digest.
// https://github.com/opencontainers/image-spec/blob/main/image-layout.md
var blobForm = regexp.MustCompile(`^(?:\./)?blobs/sha256/([0-9a-f]{64})$`)

// unpack puts all that an image consists of into dir, each as a file called
// "sha256-" and its digest; by that name lab/world serves it. What is not what it
// is called is refused.
func unpack(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	found := false
	for layout := tar.NewReader(f); ; {
		h, err := layout.Next()
		if errors.Is(err, io.EOF) && found {
			return nil
		}
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: it holds nothing by its digest: is it an OCI image layout?", archive)
		}
		if err != nil {
			return fmt.Errorf("%s: read it as a tar file: %v", archive, err)
		}
		blob := blobForm.FindStringSubmatch(h.Name)
		if blob == nil || h.Typeflag != tar.TypeReg {
			continue
		}
		found = true
		sum := sha256.New()
		err = writeSynced(filepath.Join(dir, "sha256-"+blob[1]), io.TeeReader(layout, sum))
		if errors.Is(err, fs.ErrExist) {
			continue // another image has it, too
		}
		if err != nil {
			return fmt.Errorf("%s: %v", archive, err)
		}
		if is := hex.EncodeToString(sum.Sum(nil)); is != blob[1] {
			return fmt.Errorf("%s: %s is damaged: its digest is %s", archive, h.Name, is)
		}
	}
}
