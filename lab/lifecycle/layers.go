package lifecycle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// layerSuffix ends the name of every layer's file.
const layerSuffix = ".qcow2"

// Layers is the directory of the disks of all scenarios. Each file is one layer.
// A machine writes to the layer that its spec names, its top. A layer under
// another one, or under a snapshot, is frozen: nobody writes it again, anybody
// may stand on it, and it goes when nobody does (Collect). What a layer stands
// on is named relative to this directory, so that a store can be moved.
func (l *Lab) Layers() string { return LayersIn(l.cfg.Store) }

// LayersIn is the directory of layers in a store.
func LayersIn(store string) string { return filepath.Join(store, "layers") }

// Layer is the file of a layer. Ids hold neither "/" nor ".".
func (l *Lab) Layer(id string) string { return layerPath(l.Layers(), id) }

func layerPath(dir, id string) string { return filepath.Join(dir, id+layerSuffix) }

// LayerID is the id of the layer in a file.
func LayerID(path string) string {
	id, _, _ := strings.Cut(filepath.Base(path), ".") // of one in the making, too
	return id
}

// Snapshots are what stands on layers beside what is raised.
type Snapshots interface {
	// Layers lists the ids of the layers that snapshots need.
	Layers() ([]string, error)
}

// Collect removes the layers that no record, snapshot or warm image names. Where
// one of those cannot be read nothing is removed, as nobody knows what it names.
// Whoever makes a layer, or means to stand on one, writes that down before.
func (l *Lab) Collect() error {
	files, err := os.ReadDir(l.Layers()) // before the records: what is made meanwhile is not in it
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list layers: %w", err)
	}
	used, err := l.usedLayers()
	if err != nil {
		return fmt.Errorf("find out which layers are used: %w", err)
	}
	var problems []error
	for _, f := range files {
		if used[LayerID(f.Name())] {
			continue
		}
		if err := os.Remove(filepath.Join(l.Layers(), f.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, fmt.Errorf("remove a layer that nobody uses: %w", err))
		}
	}
	return errors.Join(problems...)
}

func (l *Lab) usedLayers() (map[string]bool, error) {
	used := map[string]bool{}
	names, err := l.Names()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		r, err := readRecord(l.Directory(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // destroyed meanwhile
		}
		if err != nil {
			return nil, err
		}
		for _, id := range r.layers() {
			used[id] = true
		}
	}
	others := []Snapshots{l.warmStore()}
	if l.cfg.Snapshots != nil {
		others = append(others, l.cfg.Snapshots)
	}
	for _, o := range others {
		ids, err := o.Layers()
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			used[id] = true
		}
	}
	return used, nil
}

// layers are the ids of all layers that a record's machines need, or may have
// begun to.
func (r Record) layers() (ids []string) {
	for _, m := range r.Plan.Machines {
		ids = append(ids, LayerID(m.Spec.Disk))
		ids = append(ids, m.Layers...)
	}
	if r.Work != nil {
		for _, disk := range r.Work.Disks {
			ids = append(ids, LayerID(disk))
		}
	}
	return ids
}

// tidy collects, and says where it could not; what is left is met again by the
// next command that collects.
func (l *Lab) tidy() {
	if err := l.Collect(); err != nil {
		l.cfg.Progress.Note("layers that nobody uses were left in %s: %v", l.Layers(), err)
	}
	for _, name := range []string{queueAdmission, queueWaiting, queueBoot} {
		l.queue(name).sweep()
	}
}
