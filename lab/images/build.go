package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// What a build needs on the store's file system while it runs: the tree, the
// disk made of it, and the packages.
const spaceNeeded = 2 << 30

// Build makes the image of a recipe, or returns the one that stands. Of two
// builds at once the second waits for the first. It appears in the store whole
// or not at all: an interrupted build leaves one directory that the next
// command on the store removes. progress may be nil.
//
// It returns ErrUnknown when there is no such recipe.
func (s Store) Build(ctx context.Context, name string, progress Progress) (Image, error) {
	if progress == nil {
		progress = silent{}
	}
	r, err := s.recipe(name)
	if err != nil {
		return Image{}, err
	}
	if image, err := s.read(r.Digest()); err == nil {
		return image, nil
	}
	if err := s.ready(); err != nil {
		return Image{}, err
	}
	unlock, err := s.lock(ctx, progress)
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	image, err := s.read(r.Digest())
	if err == nil || !errors.Is(err, fs.ErrNotExist) { // built by whoever had the lock, or broken
		return image, err
	}
	if err := s.space(); err != nil {
		return Image{}, err
	}
	work, err := os.MkdirTemp(s.images(), unfinished)
	if err != nil {
		return Image{}, fmt.Errorf("build %s: %v", name, err)
	}
	defer os.RemoveAll(work)
	b := build{recipe: r, work: work, out: filepath.Join(work, "image"), progress: progress}
	if err := b.run(ctx, filepath.Join(s.images(), name+".log")); err != nil {
		return Image{}, err
	}
	final := filepath.Join(s.images(), r.Digest())
	if err := errors.Join(os.Rename(b.out, final), syncDirectory(s.images())); err != nil {
		return Image{}, fmt.Errorf("build %s: put it into the store: %v", name, err)
	}
	return s.read(r.Digest())
}

// ready refuses to begin what cannot end well.
func (s Store) ready() error {
	if os.Geteuid() != 0 {
		return problem{
			what: "build an image", where: "user " + strconv.Itoa(os.Geteuid()), why: "it takes root, to make devices and owners on the disk",
			do: "run it as root", code: exitPrerequisite,
		}
	}
	if err := os.MkdirAll(s.images(), 0o755); err != nil {
		return problem{
			what: "build an image", where: s.images(), why: err.Error(),
			do: "make the directory writable or choose another store", code: exitPrerequisite,
		}
	}
	return nil
}

// space refuses when the file system would be filled.
func (s Store) space() error {
	var st unix.Statfs_t
	if err := unix.Statfs(s.images(), &st); err != nil {
		return fmt.Errorf("look for space: %v", err)
	}
	free := int64(st.Bavail) * st.Bsize
	if free >= spaceNeeded {
		return nil
	}
	return problem{
		what: "build an image", where: s.images(),
		why: fmt.Sprintf("%d MiB are free and %d MiB are needed", free>>20, int64(spaceNeeded)>>20),
		do:  "make room, for example with `lab image remove`, or choose another store", code: exitPrerequisite,
	}
}

// build is one run of a recipe.
type build struct {
	recipe   Recipe
	work     string // directory of this build alone
	out      string // in it: what becomes the image
	progress Progress
	runner   runner
}

// step is one part of a build, told to whoever waits.
type step struct {
	what string
	do   func(context.Context) error
}

func (b *build) run(ctx context.Context, logFile string) error {
	log, err := os.Create(logFile)
	if err != nil {
		return fmt.Errorf("build %s: %v", b.recipe.Name, err)
	}
	defer log.Close()
	b.runner = runner{log: log, tmp: filepath.Join(b.work, "tmp")}
	for _, dir := range []string{b.runner.tmp, b.out} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("build %s: %v", b.recipe.Name, err)
		}
	}
	for _, s := range []step{
		{"install its packages", b.tree},
		{"make its repository of packages", b.repository},
		{"make its disk", b.disk},
		{"keep it", b.keep},
	} {
		done := b.progress.Step(fmt.Sprintf("image %s: %s", b.recipe.Name, s.what))
		err := s.do(ctx)
		done(err)
		var told problem
		if errors.As(err, &told) || errors.Is(err, context.Canceled) {
			return err
		}
		if err != nil {
			return problem{
				what: "build " + b.recipe.Name, where: s.what, why: err.Error(),
				do: "read " + logFile + " for all of it, then run `lab image build " + b.recipe.Name + "` again", code: exitFailed,
			}
		}
	}
	return nil
}

func (b *build) root() string { return filepath.Join(b.work, "root") }

// tree makes the directory that becomes the disk.
func (b *build) tree(ctx context.Context) error {
	a, err := readArchive(ctx)
	if err != nil {
		return err
	}
	args, err := bootstrap(b.recipe, a, b.work, b.root())
	if err != nil {
		return err
	}
	return b.runner.run(ctx, args...)
}

// repository moves the offered packages out of the tree, and leaves the list of
// them there, as apt itself would have fetched it: what an image offers never
// changes, so no machine has to ask.
func (b *build) repository(ctx context.Context) error {
	debs, err := filepath.Glob(filepath.Join(b.root(), offered, "*.deb"))
	if err != nil {
		return err
	}
	repository := filepath.Join(b.out, "repository")
	if err := Repository(ctx, debs, repository); err != nil {
		return err
	}
	for _, index := range Indexes {
		list := filepath.Join(b.root(), ListFile(repositoryHost, b.recipe.Name, index))
		if err := os.MkdirAll(filepath.Dir(list), 0o755); err != nil {
			return err
		}
		if err := place(filepath.Join(repository, index), list); err != nil {
			return fmt.Errorf("leave the list of packages: %v", err)
		}
	}
	return os.RemoveAll(filepath.Join(b.root(), offered))
}

// disk takes kernel and initrd out of the tree and makes a disk of it. Tables
// are written now: a machine would do it in the background after every boot.
func (b *build) disk(ctx context.Context) error {
	for pattern, name := range map[string]string{"vmlinuz-*": kernelName, "initrd.img-*": initrdName} {
		found, err := filepath.Glob(filepath.Join(b.root(), "boot", pattern))
		if err != nil {
			return err
		}
		if len(found) != 1 {
			return fmt.Errorf("the packages put %d files boot/%s on the disk and one is needed", len(found), pattern)
		}
		if err := place(found[0], filepath.Join(b.out, name)); err != nil {
			return fmt.Errorf("take out the %s: %v", name, err)
		}
	}
	raw := filepath.Join(b.work, "disk.raw")
	if err := os.WriteFile(raw, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(raw, b.recipe.DiskBytes); err != nil {
		return err
	}
	if err := b.runner.run(ctx, "mke2fs", "-q", "-t", "ext4", "-L", b.recipe.Name,
		"-E", "lazy_itable_init=0,lazy_journal_init=0", "-d", b.root(), raw); err != nil {
		return err
	}
	qcow2 := filepath.Join(b.out, diskName)
	if err := b.runner.run(ctx, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, qcow2); err != nil {
		return err
	}
	return makeDurable(qcow2)
}

// keep writes the manifest, last: an image without one is none.
func (b *build) keep(context.Context) error {
	size, err := sizeOf(b.out)
	if err != nil {
		return err
	}
	content, err := contentOf(b.out)
	if err != nil {
		return err
	}
	if err := os.Chmod(b.out, 0o755); err != nil {
		return err
	}
	return writeManifest(b.out, manifest{
		Format: manifestFormat, Name: b.recipe.Name, Digest: b.recipe.Digest(), Content: content, Cmdline: b.recipe.Cmdline,
		SizeBytes: size, Built: time.Now().UTC().Truncate(time.Second),
	})
}

// makeDurable opens a finished file to every reader and syncs it.
func makeDurable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o644), f.Sync(), f.Close())
}

// contentOf is a digest of what a machine boots from.
func contentOf(dir string) (string, error) {
	all := sha256.New()
	for _, name := range []string{diskName, kernelName, initrdName} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		one := sha256.New()
		_, err = io.Copy(one, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return "", err
		}
		all.Write(one.Sum(nil))
	}
	return hex.EncodeToString(all.Sum(nil)), nil
}

// sizeOf adds up the bytes of the files below dir.
func sizeOf(dir string) (int64, error) {
	var total int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	return total, err
}
