package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"mesh/lab/images"
	"mesh/lab/lifecycle"
	"mesh/lab/snapshot"
)

// ImportOptions say how an archive is taken in.
type ImportOptions struct {
	As     string // the scenario's name; zero: the one it was exported with
	DryRun bool   // only tell whether it would be
}

// incoming is the directory of contents that have come, within the snapshot's.
const incoming = "incoming"

// Import takes in the snapshot of an archive, after which it is one like any
// other. What the index tells is checked before anything is stored: that machines
// can be restored here, that the name is free, that there is room. Every content
// is compared with its digest, and every disk with what it may stand on. On an
// error nothing of it is left.
func (a *Archive) Import(ctx context.Context, r io.Reader, o ImportOptions) (Index, error) {
	s, err := open(r)
	if err != nil {
		return Index{}, err
	}
	defer s.close()
	i := &importing{Archive: a, x: s.index, name: o.As}
	if i.name == "" {
		i.name = s.index.Snapshot.Scenario
	}
	if !a.cfg.Ports.Computer.Root() {
		return Index{}, &lifecycle.Error{
			What: "import a snapshot", Why: "what it brings belongs to root", Next: "run it as root (sudo)", Code: codePrerequisite,
		}
	}
	held, err := a.cfg.Lab.Hold(i.name)
	if err != nil {
		return Index{}, err
	}
	defer held.Release()
	err = i.admit(ctx)
	if err == nil && !o.DryRun {
		err = i.run(ctx, s)
	}
	release := a.cfg.Ports.Daemon.Release(context.WithoutCancel(ctx)) // it may have been begun to be asked
	if err = errors.Join(err, release); err != nil {
		return Index{}, err
	}
	i.x.Snapshot.Scenario = i.name
	return i.x, nil
}

// importing is one import.
type importing struct {
	*Archive
	x    Index
	name string                  // of the scenario
	have map[string]images.Image // those that are here already, by name
	dir  string                  // the snapshot's
}

// admit finds all that would keep the archive from being of use here.
func (i *importing) admit(ctx context.Context) error {
	m := i.x.Snapshot
	if _, err := i.snapshots().Get(i.name, m.Name); !errors.Is(err, snapshot.ErrAbsent) {
		if err != nil {
			return err
		}
		return refused(fmt.Sprintf("scenario %s has a snapshot %s already", i.name, m.Name),
			"import it under another name with --as, or remove the other: lab snapshot remove "+i.name+" "+m.Name)
	}
	if err := i.cfg.Snapshots.Fits(ctx, m); err != nil {
		return err
	}
	i.have = map[string]images.Image{}
	for _, image := range i.x.Images {
		found, err := i.cfg.Images.Like(image.Digest, image.Content)
		switch {
		case err == nil:
			i.have[image.Name] = found
		case !errors.Is(err, images.ErrNotBuilt):
			return err
		case len(image.Files) == 0:
			return &lifecycle.Error{
				What: "the archive is not imported", Why: fmt.Sprintf("it was made without images, and image %s of content %s is not here", image.Name, image.Content),
				Next: "export it with its images, or import an archive that has them first", Code: codePrerequisite,
			}
		}
	}
	free, err := i.cfg.Ports.Computer.FreeSpace(i.cfg.Ports.Store)
	if err != nil {
		return fmt.Errorf("measure disk space: %w", err)
	}
	if need := i.x.Bytes(); free < need {
		return &lifecycle.Error{
			What: "not enough disk space for the archive", Where: i.cfg.Ports.Store,
			Why:  fmt.Sprintf("it holds %d MiB, %d MiB are free", need>>20, free>>20),
			Next: "free some there, or use another store with --store", Code: codePrerequisite,
		}
	}
	return nil
}

// run stores everything and, last, the manifest.
func (i *importing) run(ctx context.Context, s *source) (err error) {
	m := i.x.Snapshot
	i.dir = i.snapshots().Path(i.name, m.Name)
	if err := i.snapshots().Discard(i.name, m.Name); err != nil { // what was cut off
		return err
	}
	if err := os.MkdirAll(filepath.Join(i.dir, incoming), 0o755); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, i.snapshots().Discard(i.name, m.Name))
		}
		err = errors.Join(err, i.cfg.Lab.Collect())
	}()
	if err := s.receive(ctx, filepath.Join(i.dir, incoming)); err != nil {
		return err
	}
	for _, image := range i.x.Images {
		if err := i.image(ctx, image); err != nil {
			return err
		}
	}
	if err := i.place(ctx, &m); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(i.dir, incoming)); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	return i.snapshots().Write(m)
}

// content is where a content has come to.
func (i *importing) content(digest string) string { return filepath.Join(i.dir, incoming, digest) }

// image makes sure that an image is here.
func (i *importing) image(ctx context.Context, image Image) error {
	if _, here := i.have[image.Name]; here {
		return nil
	}
	dir := filepath.Join(i.dir, incoming, "image-"+image.Name)
	for _, f := range image.Files {
		if err := link(i.content(f.SHA256), filepath.Join(dir, filepath.FromSlash(f.Path))); err != nil {
			return fmt.Errorf("import image %s: %w", image.Name, err)
		}
		if err := os.Chmod(i.content(f.SHA256), 0o644); err != nil { // QEMU and the world read them
			return fmt.Errorf("import image %s: %w", image.Name, err)
		}
	}
	if under, err := i.cfg.Disks.Backing(filepath.Join(dir, imageFiles[0])); err != nil || under != "" {
		return refused(fmt.Sprintf("the disk of image %s stands on %q, and an image's stands on nothing (%v)", image.Name, under, err), "it was not made by `lab export`")
	}
	adopted, err := i.cfg.Images.Adopt(ctx, images.Image{
		Name: image.Name, Digest: image.Digest, Content: image.Content, Cmdline: image.Cmdline, Built: image.Built,
	}, dir)
	if err != nil {
		return err
	}
	i.have[image.Name] = adopted
	return nil
}

// place puts files and layers where they belong, and makes the manifest that of
// a snapshot of this store.
func (i *importing) place(ctx context.Context, m *snapshot.Manifest) error {
	for _, f := range m.Files {
		if err := link(i.content(f.SHA256), filepath.Join(i.dir, filepath.FromSlash(f.Path))); err != nil {
			return fmt.Errorf("import: %w", err)
		}
	}
	was := m.Images
	m.Scenario, m.Images = i.name, map[string]string{}
	for name, image := range i.have {
		m.Images[name] = image.Digest
	}
	all, err := i.snapshots().List("")
	if err != nil {
		i.cfg.Ports.Progress.Note("%v", err)
	}
	for _, other := range all {
		if other.ID == m.ID { // imported twice, or where it was exported
			m.ID = i.cfg.NewID()
		}
	}
	if err := i.snapshots().Stage(*m); err != nil { // from here on nobody removes its layers
		return err
	}
	for n := range m.Layers {
		if err := i.layer(ctx, m, was, &m.Layers[n]); err != nil {
			return err
		}
	}
	return nil
}
