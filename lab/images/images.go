// Package images builds and keeps machine images: a recipe in, and out of it a
// disk, a kernel, an initrd and a repository of packages, addressed by the
// recipe's digest in the lab's own store.
//
// An image is never changed once it is in the store. Building takes root and
// the archive that this machine's own apt is configured with; it names no other
// place. Only lab/lifecycle, lab/snapshot, lab/archive, lab/verify and cmd/lab
// import it.
package images

import (
	"errors"
	"time"
)

// ErrNotBuilt means that the store has no image for the recipe as it is now.
var ErrNotBuilt = errors.New("image is not built")

// ErrUnknown means that no recipe has that name.
var ErrUnknown = errors.New("no such image recipe")

// ErrInUse means that something still reads the image.
var ErrInUse = errors.New("image is in use")

// Default is the recipe that is meant where none is named.
const Default = "debian-13"

// Image is one built image. Paths are absolute and read-only for users.
type Image struct {
	Name       string    `json:"name"`    // recipe: "debian-13"
	Digest     string    `json:"digest"`  // of recipe and build format, 64 hex digits
	Content    string    `json:"content"` // digest of disk, kernel and initrd; empty for images of an earlier lab
	Disk       string    `json:"disk"`    // qcow2, never written again
	Kernel     string    `json:"kernel"`
	Initrd     string    `json:"initrd"`
	Cmdline    string    `json:"cmdline"`    // root= and console= of this image; others are added
	Repository string    `json:"repository"` // directory: flat apt repository of the recipe's `offer` packages
	SizeBytes  int64     `json:"size_bytes"`
	Built      time.Time `json:"built"`
}

// Progress narrates long work. Step announces what begins; the returned
// function ends it, nil meaning done.
type Progress interface {
	Step(what string) (done func(err error))
}

// silent is the Progress of a caller that gave none.
type silent struct{}

func (silent) Step(string) func(error) { return func(error) {} }
