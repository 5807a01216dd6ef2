package images

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"mesh/lab/machine"
)

// WarmOf is everything that decides what a warm image holds and where it can be
// restored.
type WarmOf struct {
	Image       string           `json:"image"`   // recipe
	Content     string           `json:"content"` // of the image: Image.Content
	Cmdline     string           `json:"cmdline"`
	Platform    machine.Platform `json:"platform"`
	MemoryBytes int64            `json:"memory_bytes"`
	CPUs        int              `json:"cpus"`
	ReadyPoint  int              `json:"ready_point"` // version of what was waited for before it was saved
}

// Digest is what a warm image is found by: 64 hex digits.
func (o WarmOf) Digest() string {
	canonical, err := json.Marshal(o)
	if err != nil { // text and numbers only
		panic(err)
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}

// String names it for people.
func (o WarmOf) String() string {
	return fmt.Sprintf("warm image of %s, %d MiB, %d CPU", o.Image, o.MemoryBytes>>20, o.CPUs)
}

// Warm is one warm image: the memory of a machine that had booted and was ready,
// and the layer that it had written to until then, which stands on the image's
// disk. Neither is written again.
type Warm struct {
	Digest      string    `json:"digest"`
	Of          WarmOf    `json:"of"`
	Layer       string    `json:"layer"`  // id; the lab keeps it with all layers
	Memory      string    `json:"memory"` // absolute path
	SizeBytes   int64     `json:"size_bytes"`
	BootSeconds float64   `json:"boot_seconds"` // from the start of the machine to its ready point
	Made        time.Time `json:"made"`
}

// WarmStore keeps the memory of warm images in Dir/warm, one directory for each,
// named by digest, and knows their layers. It moves files only: who makes an
// image runs the machine, and sees to it that nobody else makes the same one.
type WarmStore struct {
	Dir string // the lab's store, absolute
}

// Files of a warm image, and what ends the name of the directory of one that is
// being made, where there is a file that names its layer.
const (
	memoryName = "memory"
	layerName  = "layer"
	making     = ".making"
)

func (s WarmStore) dir(digest string) string { return filepath.Join(s.Dir, "warm", digest) }

// Get finds a warm image. ErrNotBuilt where there is none.
func (s WarmStore) Get(digest string) (Warm, error) {
	dir := s.dir(digest)
	content, err := os.ReadFile(filepath.Join(dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return Warm{}, ErrNotBuilt
	}
	var m warmManifest
	if err == nil {
		m, err = parseWarmManifest(content)
	}
	if err == nil && m.Of.Digest() != digest {
		err = fmt.Errorf("it is the manifest of %s", m.Of.Digest())
	}
	if err != nil {
		return Warm{}, problem{
			what: "read warm image", where: dir, why: err.Error(),
			do: "remove that directory; the next raise makes it again", code: exitFailed,
		}
	}
	return Warm{
		Digest: digest, Of: m.Of, SizeBytes: m.SizeBytes, BootSeconds: m.BootSeconds, Made: m.Made,
		Layer: m.Layer, Memory: filepath.Join(dir, memoryName),
	}, nil
}

// List returns all warm images that are whole, by image and then from new to old.
func (s WarmStore) List() ([]Warm, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	var all []Warm
	for _, name := range names {
		if strings.HasSuffix(name, making) {
			continue
		}
		w, err := s.Get(name)
		if errors.Is(err, ErrNotBuilt) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	slices.SortStableFunc(all, func(a, b Warm) int {
		if order := strings.Compare(a.Of.Image, b.Of.Image); order != 0 {
			return order
		}
		return b.Made.Compare(a.Made)
	})
	return all, nil
}

// Unfinished lists the digests of images that are being made, or were when
// their maker ended.
func (s WarmStore) Unfinished() ([]string, error) {
	names, err := s.names()
	var all []string
	for _, name := range names {
		if digest, is := strings.CutSuffix(name, making); is {
			all = append(all, digest)
		}
	}
	return all, err
}

func (s WarmStore) names() ([]string, error) {
	entries, err := os.ReadDir(s.dir(""))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list warm images: %v", err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// Layers lists the ids of all layers that warm images stand on, or will.
func (s WarmStore) Layers() ([]string, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	var all []string
	for _, name := range names {
		digest, unfinished := strings.CutSuffix(name, making)
		if unfinished {
			layer, err := os.ReadFile(filepath.Join(s.dir(name), layerName))
			if err == nil {
				all = append(all, string(layer))
			}
			if err == nil || !errors.Is(err, fs.ErrNotExist) {
				continue
			}
		}
		// Also when it was finished between the two looks.
		w, err := s.Get(digest)
		if errors.Is(err, ErrNotBuilt) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, w.Layer)
	}
	return all, nil
}

// Discard removes what there is of an image that was not finished. Idempotent.
func (s WarmStore) Discard(digest string) error {
	if err := os.RemoveAll(s.dir(digest) + making); err != nil {
		return fmt.Errorf("remove an unfinished warm image: %w", err)
	}
	return nil
}

// Remove removes a warm image. Its layer is left to whoever stands on it.
// Idempotent.
func (s WarmStore) Remove(digest string) error {
	dir := s.dir(digest)
	err := os.Rename(dir, dir+making) // half of one must not be found
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove a warm image: %w", err)
	}
	return s.Discard(digest)
}

// warmFormat is the version of a warm image's manifest. History: 1 first.
const warmFormat = 1

type warmManifest struct {
	Format      int       `json:"format"`
	Of          WarmOf    `json:"of"`
	Layer       string    `json:"layer"`
	SizeBytes   int64     `json:"size_bytes"`
	BootSeconds float64   `json:"boot_seconds"`
	Made        time.Time `json:"made"`
}

func writeWarmManifest(dir string, m warmManifest) error {
	content, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return errors.Join(writeSynced(filepath.Join(dir, manifestName), bytes.NewReader(append(content, '\n'))), syncDirectory(dir))
}

func parseWarmManifest(content []byte) (warmManifest, error) {
	var m warmManifest
	if err := json.Unmarshal(content, &m, json.RejectUnknownMembers(true)); err != nil {
		return m, fmt.Errorf("%s: %v", manifestName, err)
	}
	if m.Format != warmFormat {
		return m, fmt.Errorf("%s: format %d is not %d", manifestName, m.Format, warmFormat)
	}
	return m, nil
}
