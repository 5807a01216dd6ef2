package snapshot

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
	"slices"

	"golang.org/x/sync/errgroup"
)

// layers describes all layers of the machines. What an earlier snapshot of the
// scenario knows of one is still so: frozen layers do not change.
func (t *taking) layers(ctx context.Context) ([]Layer, error) {
	known := map[string]Layer{}
	earlier, err := t.store.List("")
	if err != nil {
		t.cfg.Ports.Progress.Note("%v", err)
	}
	for _, m := range earlier {
		for _, l := range m.Layers {
			known[l.ID] = l
		}
	}
	var all []Layer
	for _, m := range t.m.Plan.Machines {
		for _, id := range m.Layers {
			if !slices.ContainsFunc(all, func(l Layer) bool { return l.ID == id }) {
				l := known[id]
				l.ID = id
				all = append(all, l)
			}
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for i := range all {
		if l := &all[i]; l.SHA256 == "" {
			group.Go(func() (err error) {
				l.Bytes, l.SHA256, err = Seal(ctx, t.cfg.Lab.Layer(l.ID))
				return err
			})
		}
	}
	return all, group.Wait()
}

// files describes the files of the snapshot's own, in order of their paths.
func (t *taking) files(ctx context.Context) ([]File, error) {
	all, err := filesBelow(t.dir)
	if err != nil {
		return nil, err
	}
	group, ctx := errgroup.WithContext(ctx)
	for i := range all {
		f := &all[i]
		group.Go(func() (err error) {
			f.Bytes, f.SHA256, err = Seal(ctx, filepath.Join(t.dir, f.Path))
			return err
		})
	}
	return all, group.Wait()
}

// filesBelow lists a snapshot's own files, but for the manifest.
func filesBelow(dir string) (all []File, err error) {
	err = fs.WalkDir(os.DirFS(dir), ".", func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && path != manifestName {
			all = append(all, File{Path: path})
		}
		return err
	})
	return all, err
}

// Seal makes a file durable and measures it, until ctx ends: its length, and its
// SHA-256 as manifests have it.
func Seal(ctx context.Context, path string) (bytes int64, digest string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if bytes, digest, err = measure(ctx, f); err != nil {
		return 0, "", fmt.Errorf("read %s: %w", path, err)
	}
	return bytes, digest, f.Sync()
}

// measure reads a file to its end, or to the end of ctx.
func measure(ctx context.Context, f io.Reader) (int64, string, error) {
	sum, buffer, total := sha256.New(), make([]byte, 256<<10), int64(0)
	for {
		if ctx.Err() != nil {
			return 0, "", context.Cause(ctx)
		}
		n, err := f.Read(buffer)
		sum.Write(buffer[:n])
		total += int64(n)
		if err == io.EOF {
			return total, hex.EncodeToString(sum.Sum(nil)), nil
		}
		if err != nil {
			return 0, "", err
		}
	}
}
