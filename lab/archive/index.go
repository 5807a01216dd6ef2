package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	strict "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"mesh/lab/lifecycle"
	"mesh/lab/snapshot"
)

// format is the version of the index. History:
//
//	1  first
const format = 1

// Names in the tar archive.
const (
	indexName     = "archive.json"
	contentPrefix = "files/"
)

// maxIndex bounds the index, in bytes.
const maxIndex = 16 << 20

// Index says what an archive holds and what it takes to restore it.
type Index struct {
	Format   int               `json:"format"`
	Made     time.Time         `json:"made"`
	Snapshot snapshot.Manifest `json:"snapshot"`
	Images   []Image           `json:"images"` // all that the machines stand on, by name
}

// Image is a machine image, or the name of one that has to be there.
type Image struct {
	Name    string    `json:"name"`
	Digest  string    `json:"digest"`  // of the recipe; as in the snapshot's manifest
	Content string    `json:"content"` // of disk, kernel and initrd
	Cmdline string    `json:"cmdline"`
	Built   time.Time `json:"built"`
	// Files are the image's, below its directory. Empty: the archive was made
	// without images.
	Files []snapshot.File `json:"files,omitempty"`
}

// content is one entry of an archive.
type content struct {
	SHA256 string
	Bytes  int64
}

// contents lists what the archive has to hold, each once, in order of digests.
func (x Index) contents() []content {
	all := map[string]int64{}
	for _, f := range x.Snapshot.Files {
		all[f.SHA256] = f.Bytes
	}
	for _, l := range x.Snapshot.Layers {
		all[l.SHA256] = l.Bytes
	}
	for _, i := range x.Images {
		for _, f := range i.Files {
			all[f.SHA256] = f.Bytes
		}
	}
	var list []content
	for _, digest := range slices.Sorted(maps.Keys(all)) {
		list = append(list, content{digest, all[digest]})
	}
	return list
}

// Bytes is how much all contents are, uncompressed.
func (x Index) Bytes() (sum int64) {
	for _, c := range x.contents() {
		sum += c.Bytes
	}
	return sum
}

// Parse reads an index. Unknown and repeated members, other formats, and what
// contradicts itself or names a path outside are refused.
func Parse(data []byte) (Index, error) {
	if err := snapshot.CheckFormat("index", data, format, format); err != nil {
		return Index{}, err
	}
	var raw struct {
		Format   int            `json:"format"`
		Made     time.Time      `json:"made"`
		Snapshot jsontext.Value `json:"snapshot"`
		Images   []Image        `json:"images"`
	}
	if err := strict.Unmarshal(data, &raw, strict.RejectUnknownMembers(true)); err != nil {
		return Index{}, fmt.Errorf("read index: %v", err)
	}
	m, err := snapshot.Parse(raw.Snapshot) // strict by its own format
	if err != nil {
		return Index{}, err
	}
	x := Index{Format: raw.Format, Made: raw.Made, Snapshot: m, Images: raw.Images}
	return x, x.check()
}

// Marshal writes an index; equal ones give equal bytes.
func (x Index) Marshal() ([]byte, error) {
	x.Format = format
	if err := x.check(); err != nil {
		return nil, err
	}
	data, err := strict.Marshal(x, jsontext.WithIndent("  "), strict.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("write index: %v", err)
	}
	return append(data, '\n'), nil
}

var (
	digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)
	imageForm  = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`) // of a recipe's name
)

// check finds what contradicts itself, all at once. The snapshot has been checked.
func (x Index) check() error {
	var problems []error
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if x.Made.IsZero() {
		wrong("made: it has no date")
	}
	digests := map[string]string{}
	for _, i := range x.Images {
		if !imageForm.MatchString(i.Name) || digests[i.Name] != "" {
			wrong("images: %q is no name, or stands twice", i.Name)
		}
		digests[i.Name] = i.Digest
		if !digestForm.MatchString(i.Digest) || !digestForm.MatchString(i.Content) {
			wrong("images: %s: digest %q, content %q", i.Name, i.Digest, i.Content)
		}
		i.check(wrong)
	}
	if !maps.Equal(digests, x.Snapshot.Images) {
		wrong("images: they are not those of the snapshot")
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("the index of the archive is wrong: %w", err)
	}
	return nil
}

// check finds files that an image cannot have, and those that it lacks.
func (i Image) check(wrong func(string, ...any)) {
	known := map[string]bool{}
	for _, f := range i.Files {
		dir, name, below := strings.Cut(f.Path, "/")
		switch {
		case !fs.ValidPath(f.Path), below && (dir != repositoryDir || strings.Contains(name, "/")), !below && !slices.Contains(imageFiles, f.Path):
			wrong("images: %s: %q is no file of an image", i.Name, f.Path)
		case known[f.Path]:
			wrong("images: %s: %s stands twice", i.Name, f.Path)
		case f.Bytes < 0 || !digestForm.MatchString(f.SHA256):
			wrong("images: %s: %s: %d bytes, digest %q", i.Name, f.Path, f.Bytes, f.SHA256)
		}
		known[f.Path] = true
	}
	for _, must := range imageFiles {
		if len(i.Files) > 0 && !known[must] {
			wrong("images: %s: it has no %s", i.Name, must)
		}
	}
}

// Files of an image in its directory: lab/images.
var imageFiles = []string{"disk.qcow2", "kernel", "initrd"}

const repositoryDir = "repository"

// Exit codes that errors of this package carry; they are those of every program.
const (
	codeFailed       = 1
	codeUsage        = 2
	codePrerequisite = 4
	codeInterrupted  = 130
)

// refused is an error about an archive that is not taken.
func refused(why string, next string) error {
	return &lifecycle.Error{What: "the archive is not imported", Why: why, Next: next, Code: codeUsage}
}
