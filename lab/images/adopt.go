package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Adopt puts an image that another store made into this one: the files in dir
// (disk.qcow2, kernel, initrd, repository/), which are moved. What they are is
// told by i: Name, Digest, Content, Cmdline and Built. Files that do not have that
// content are refused.
//
// An image of the same content that is there already is returned instead. Where
// the store has built another one from the same recipe, whose blocks lie
// elsewhere, the adopted one is kept under its content as digest.
func (s Store) Adopt(ctx context.Context, i Image, dir string) (Image, error) {
	content, err := contentOf(dir)
	if err != nil {
		return Image{}, fmt.Errorf("adopt image %s: %v", i.Name, err)
	}
	if content != i.Content {
		return Image{}, fmt.Errorf("adopt image %s: its content is %s, not %s", i.Name, content, i.Content)
	}
	if err := os.MkdirAll(s.images(), 0o755); err != nil {
		return Image{}, fmt.Errorf("adopt image %s: %v", i.Name, err)
	}
	unlock, err := s.lock(ctx, silent{})
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	if found, err := s.Like(i.Digest, content); !errors.Is(err, ErrNotBuilt) {
		return found, err
	}
	digest := i.Digest
	if _, err := s.read(digest); !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			return Image{}, err
		}
		digest = content
	}
	size, err := sizeOf(dir)
	if err == nil {
		err = writeManifest(dir, manifest{
			Format: manifestFormat, Name: i.Name, Digest: digest, Content: content, Cmdline: i.Cmdline,
			SizeBytes: size, Built: i.Built,
		})
	}
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.Rename(dir, filepath.Join(s.images(), digest)), syncDirectory(s.images()))
	}
	if err != nil {
		return Image{}, fmt.Errorf("adopt image %s: %v", i.Name, err)
	}
	return s.read(digest)
}

// Like finds the image of a content, which it has under its recipe's digest or,
// adopted, under its content. ErrNotBuilt where there is none.
func (s Store) Like(digest, content string) (Image, error) {
	for _, name := range []string{digest, content} {
		image, err := s.read(name)
		if err == nil && image.Content == content {
			return image, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Image{}, err
		}
	}
	return Image{}, ErrNotBuilt
}
