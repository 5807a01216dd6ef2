package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	recipes "mesh/images"
)

// Store keeps images in Dir/images, one directory for each, named by digest.
// Safe for concurrent use, by processes too.
type Store struct {
	Dir     string // the lab's store, absolute; need not exist yet
	Recipes fs.FS  // nil means those that are built in
}

// unfinished begins the names of directories of builds that have not ended.
const unfinished = ".build-"

func (s Store) images() string { return filepath.Join(s.Dir, "images") }

func (s Store) files() fs.FS {
	if s.Recipes != nil {
		return s.Recipes
	}
	return recipes.Files
}

func (s Store) recipe(name string) (Recipe, error) { return ParseRecipe(s.files(), name) }

// Names lists the names of recipes, in their order.
func (s Store) Names() []string { return recipeNames(s.files()) }

// Known lists the recipes that can be built, by name.
func (s Store) Known() ([]Recipe, error) { return Recipes(s.files()) }

// Get finds the image of a recipe as the recipe is now. It returns ErrUnknown
// when there is no such recipe and ErrNotBuilt when there is no image of it.
func (s Store) Get(name string) (Image, error) {
	r, err := s.recipe(name)
	if err != nil {
		return Image{}, err
	}
	image, err := s.read(r.Digest())
	if errors.Is(err, fs.ErrNotExist) {
		return Image{}, problem{
			what: fmt.Sprintf("find image %q", name), where: s.images(), why: ErrNotBuilt.Error() + " from its recipe as it is now",
			do: "run `lab image build " + name + "`", code: exitPrerequisite, state: ErrNotBuilt,
		}
	}
	return image, err
}

// List returns every image of the store, of recipes as they are and as they
// were, by name and then from new to old.
func (s Store) List() ([]Image, error) {
	entries, err := os.ReadDir(s.images())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list images: %v", err)
	}
	var all []Image
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		image, err := s.read(e.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, image)
	}
	slices.SortFunc(all, func(a, b Image) int {
		if order := strings.Compare(a.Name, b.Name); order != 0 {
			return order
		}
		return b.Built.Compare(a.Built)
	})
	return all, nil
}

// Remove removes the images of a name, those of earlier recipes too, and
// returns them; none is success. users says who still reads an image; where it
// names anybody nothing is removed and the error is ErrInUse.
func (s Store) Remove(ctx context.Context, name string, users func(Image) ([]string, error)) ([]Image, error) {
	if _, err := os.Stat(s.images()); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	unlock, err := s.lock(ctx, silent{})
	if err != nil {
		return nil, err
	}
	defer unlock()
	all, err := s.List()
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(i Image) bool { return i.Name != name })
	for _, image := range all {
		who, err := users(image)
		if err != nil {
			return nil, fmt.Errorf("remove image %s: %v", name, err)
		}
		if len(who) > 0 {
			return nil, problem{
				what: fmt.Sprintf("remove image %q", name), where: image.Disk, why: "it is under the disks of " + strings.Join(who, ", "),
				do: "destroy those scenarios first with `lab destroy`", code: exitFailed, state: ErrInUse,
			}
		}
	}
	for i, image := range all {
		dir := filepath.Join(s.images(), image.Digest)
		gone := filepath.Join(s.images(), unfinished+"removed-"+image.Digest)
		if err := errors.Join(os.Rename(dir, gone), os.RemoveAll(gone)); err != nil {
			return all[:i], fmt.Errorf("remove image %s: %v", name, err)
		}
	}
	return all, nil
}

// lock takes the store for one writer and removes what a writer that died has left.
func (s Store) lock(ctx context.Context, progress Progress) (unlock func(), err error) {
	done := func(error) {}
	unlock, err = lock(ctx, filepath.Join(s.images(), "lock"), func() {
		done = progress.Step("wait for another command that writes to " + s.images())
	})
	done(err)
	if err != nil {
		return nil, err
	}
	left, err := filepath.Glob(filepath.Join(s.images(), unfinished+"*"))
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		unlock()
		return nil, fmt.Errorf("remove an unfinished build: %v", err)
	}
	return unlock, nil
}

// manifest is what the store knows of an image. Files are found beside it, so
// that a store can be moved.
type manifest struct {
	Format    int       `json:"format"`
	Name      string    `json:"name"`
	Digest    string    `json:"digest"`
	Content   string    `json:"content,omitempty"` // since format 2
	Cmdline   string    `json:"cmdline"`
	SizeBytes int64     `json:"size_bytes"`
	Built     time.Time `json:"built"`
}

const (
	manifestName = "manifest.json"
	// manifestFormat's history: 1 first; 2 adds content.
	manifestFormat = 2
)

// Files of an image.
const (
	diskName   = "disk.qcow2"
	kernelName = "kernel"
	initrdName = "initrd"
)

func writeManifest(dir string, m manifest) error {
	content, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("write manifest: %v", err)
	}
	return errors.Join(writeSynced(filepath.Join(dir, manifestName), bytes.NewReader(append(content, '\n'))), syncDirectory(dir))
}

// read returns the image of a digest. Its error is fs.ErrNotExist where there
// is none.
func (s Store) read(digest string) (Image, error) {
	dir := filepath.Join(s.images(), digest)
	content, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err != nil && errors.Is(err, fs.ErrNotExist) {
		return Image{}, fs.ErrNotExist
	}
	var m manifest
	if err == nil {
		m, err = parseManifest(content)
	}
	if err == nil && m.Digest != digest {
		err = fmt.Errorf("it is the manifest of %s", m.Digest)
	}
	if err != nil {
		return Image{}, problem{
			what: "read image", where: dir, why: err.Error(),
			do: "remove that directory and build the image again", code: exitFailed,
		}
	}
	return Image{
		Name: m.Name, Digest: m.Digest, Content: m.Content, Cmdline: m.Cmdline, SizeBytes: m.SizeBytes, Built: m.Built,
		Disk:       filepath.Join(dir, diskName),
		Kernel:     filepath.Join(dir, kernelName),
		Initrd:     filepath.Join(dir, initrdName),
		Repository: filepath.Join(dir, "repository"),
	}, nil
}

// parseManifest is strict: a member it does not know is of another version.
func parseManifest(content []byte) (manifest, error) {
	var m manifest
	if err := json.Unmarshal(content, &m, json.RejectUnknownMembers(true)); err != nil {
		return manifest{}, fmt.Errorf("%s: %v", manifestName, err)
	}
	if m.Format < 1 || m.Format > manifestFormat {
		return manifest{}, fmt.Errorf("%s: format %d is none of 1 to %d", manifestName, m.Format, manifestFormat)
	}
	return m, nil
}
