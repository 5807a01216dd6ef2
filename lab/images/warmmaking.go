package images

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Making is a warm image that is being made.
type Making struct {
	store  WarmStore
	digest string
	layer  string
	Memory string // where its memory is to be saved; other files beside it are removed
}

// Begin writes down which layer a new warm image is to have, and makes its
// directory. There must be none of an earlier try: Discard.
func (s WarmStore) Begin(digest, layer string) (Making, error) {
	dir := s.dir(digest) + making
	err := os.MkdirAll(filepath.Dir(dir), 0o755)
	if err == nil {
		err = os.Mkdir(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, layerName), []byte(layer), 0o644)
	}
	if err != nil {
		return Making{}, fmt.Errorf("begin a warm image: %w", err)
	}
	return Making{store: s, digest: digest, layer: layer, Memory: filepath.Join(dir, memoryName)}, nil
}

// Finish puts the image into the store, where it appears whole. disk is the
// file of its layer.
func (m Making) Finish(of WarmOf, disk string, bootSeconds float64, now time.Time) (Warm, error) {
	dir := filepath.Dir(m.Memory)
	size, err := m.freeze(disk)
	if err == nil {
		err = writeWarmManifest(dir, warmManifest{
			Format: warmFormat, Of: of, Layer: m.layer, SizeBytes: size, BootSeconds: bootSeconds,
			Made: now.UTC().Truncate(time.Second),
		})
	}
	if err == nil {
		err = keepOnly(dir, memoryName, layerName, manifestName)
	}
	if err == nil {
		final := m.store.dir(m.digest)
		err = errors.Join(os.Rename(dir, final), syncDirectory(filepath.Dir(final)))
	}
	if err != nil {
		return Warm{}, fmt.Errorf("keep a warm image: %w", err)
	}
	return m.store.Get(m.digest)
}

// freeze makes both files durable, and nobody's but root's: a machine's user may
// have got them. It gives their size.
func (m Making) freeze(disk string) (size int64, err error) {
	for _, file := range []string{disk, m.Memory} {
		if err := os.Lchown(file, os.Geteuid(), os.Getegid()); err != nil {
			return 0, err
		}
		if err := makeDurable(file); err != nil {
			return 0, err
		}
		info, err := os.Stat(file)
		if err != nil {
			return 0, err
		}
		size += info.Size()
	}
	return size, nil
}

// keepOnly removes all else from a directory.
func keepOnly(dir string, names ...string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if !slices.Contains(names, e.Name()) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}
