package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"mesh/lab/lifecycle"
	"mesh/lab/snapshot"
)

// layer puts a layer into the store, having seen that it stands on what it may.
// One that is here already is the same: ids are never used twice.
func (i *importing) layer(ctx context.Context, m *snapshot.Manifest, was map[string]string, l *snapshot.Layer) error {
	name, image := below(*m, l.ID)
	path := i.cfg.Lab.Layer(l.ID)
	if _, err := os.Lstat(path); err == nil {
		l.Bytes, l.SHA256, err = snapshot.Seal(ctx, path)
		return err
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	here := name
	if image != "" {
		name, here = onImage(was[image]), onImage(m.Images[image])
	}
	// A layer that is changed has to be a file of its own: others may be equal.
	from, bring := filepath.Join(i.dir, incoming, "layer-"+l.ID), link
	if here != name {
		bring = duplicate
	}
	if err := bring(i.content(l.SHA256), from); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	found, err := i.cfg.Disks.Backing(from)
	if err != nil || found != name {
		return refused(fmt.Sprintf("disk layer %s stands on %q, and ought to stand on %q (%v)", l.ID, found, name, err), "it was not made by `lab export`")
	}
	if here != name {
		if err := i.cfg.Disks.Rebase(ctx, from, here); err != nil {
			return fmt.Errorf("put disk layer %s on the image that is here: %w", l.ID, err)
		}
		if l.Bytes, l.SHA256, err = snapshot.Seal(ctx, from); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(i.cfg.Lab.Layers(), 0o755); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	if err := errors.Join(os.Chmod(from, 0o644), os.Rename(from, path), lifecycle.SyncDir(i.cfg.Lab.Layers())); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	return nil
}

// below is the name of what a layer stands on, another layer, or else the recipe
// of the image that it stands on.
func below(m snapshot.Manifest, id string) (name, image string) {
	for _, machine := range m.Plan.Machines {
		n := slices.Index(machine.Layers, id)
		switch {
		case n < 0:
		case n+1 < len(machine.Layers):
			return machine.Layers[n+1] + ".qcow2", ""
		default:
			return "", machine.Image
		}
	}
	return "", ""
}

// onImage is the name of an image's disk, as layers have it.
func onImage(digest string) string { return "../images/" + digest + "/" + imageFiles[0] }

// link gives a file one more name, in a directory that is made.
func link(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.Link(from, to)
}

// duplicate copies a file.
func duplicate(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, source)
	return errors.Join(err, f.Close())
}
