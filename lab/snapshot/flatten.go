package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"mesh/lab/lifecycle"
)

// manyLayers is how many layers make a disk be flattened before it is restored.
const manyLayers = 12

// flatten makes the disks of a snapshot that consist of many layers consist of
// two: the lowest, which others may share, and a new one with all that is above.
// The layers stay for whoever else stands on them. Where it cannot be done, which
// is told, and where the snapshot is in use, all is as it was; the error is ctx's.
func (s *Snapshots) flatten(ctx context.Context, scenario, name string) error {
	m, err := s.store.Get(scenario, name)
	if err != nil || len(m.deep()) == 0 || !s.cfg.Ports.Computer.Root() {
		return nil // whoever restores it says what is wrong
	}
	done, err := s.store.lock(scenario, name, unix.LOCK_EX)
	if err != nil {
		return nil
	}
	defer done()
	step := s.cfg.Ports.Progress.Step("disks of many layers become one layer")
	if m, err = s.store.Get(scenario, name); err == nil {
		err = s.flattenHeld(ctx, m)
	}
	if err != nil {
		err = errors.Join(err, s.store.unstage(scenario, name))
	}
	err = errors.Join(err, s.cfg.Lab.Collect())
	step(err)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// deep lists the plan's machines whose disks consist of many layers.
func (m Manifest) deep() (at []int) {
	for i, pm := range m.Plan.Machines {
		if len(pm.Layers) > manyLayers {
			at = append(at, i)
		}
	}
	return at
}

// flattenHeld flattens the disks of a snapshot that nobody uses. Cut off at any
// moment, the manifest is the old one or the new one.
func (s *Snapshots) flattenHeld(ctx context.Context, m Manifest) error {
	if err := s.roomToFlatten(m); err != nil {
		return err
	}
	next, made := m, map[string][]string{}
	next.Plan.Machines = slices.Clone(m.Plan.Machines)
	for _, i := range m.deep() {
		was, id := m.Plan.Machines[i].Layers, s.cfg.NewID()
		next.Plan.Machines[i].Layers, made[id] = []string{id, was[len(was)-1]}, was
	}
	next.Layers = nil
	for _, pm := range next.Plan.Machines {
		for _, id := range pm.Layers {
			l := m.layer(id)
			if made[id] != nil {
				l = Layer{ID: id, SHA256: strings.Repeat("0", 64)} // measured once it is there
			}
			if !slices.ContainsFunc(next.Layers, func(other Layer) bool { return other.ID == id }) {
				next.Layers = append(next.Layers, l)
			}
		}
	}
	if err := s.store.Stage(next); err != nil { // from here on nobody removes what is made
		return err
	}
	for i := range next.Layers {
		if l := &next.Layers[i]; made[l.ID] != nil {
			if err := s.flattenDisk(ctx, m, made[l.ID], l); err != nil {
				return err
			}
		}
	}
	return s.store.Write(next)
}

// layer finds a layer by its id; the zero Layer for none.
func (m Manifest) layer(id string) Layer {
	for _, l := range m.Layers {
		if l.ID == id {
			return l
		}
	}
	return Layer{}
}

// flattenDisk makes a layer, and measures it, that holds all of a chain but its
// lowest. What is damaged is not taken into it.
func (s *Snapshots) flattenDisk(ctx context.Context, m Manifest, chain []string, l *Layer) error {
	for _, id := range chain {
		was := m.layer(id)
		if err := verify(ctx, s.cfg.Lab.Layer(id), was.SHA256, was.Bytes); err != nil {
			return fmt.Errorf("disk layer %s: %w", id, err)
		}
	}
	top, base, path := s.cfg.Lab.Layer(chain[0]), s.cfg.Lab.Layer(chain[len(chain)-1]), s.cfg.Lab.Layer(l.ID)
	if err := s.cfg.Ports.Disks.Flatten(ctx, top, base, path); err != nil {
		return err
	}
	var err error
	l.Bytes, l.SHA256, err = Seal(ctx, path)
	return errors.Join(err, lifecycle.SyncDir(s.cfg.Lab.Layers()))
}

// roomToFlatten tells whether there is room for what is made at most.
func (s *Snapshots) roomToFlatten(m Manifest) error {
	var need int64
	for _, i := range m.deep() {
		chain := m.Plan.Machines[i].Layers
		for _, id := range chain[:len(chain)-1] {
			need += m.layer(id).Bytes
		}
	}
	free, err := s.cfg.Ports.Computer.FreeSpace(s.cfg.Ports.Store)
	if err == nil && free < need {
		err = fmt.Errorf("they take %d MiB at most, %d MiB are free", need>>20, free>>20)
	}
	return err
}

// sweepStaged takes back what Stage has announced of a snapshot that was whole
// already, unless somebody is at it.
func (s Store) sweepStaged(scenario, name string) error {
	if _, err := os.Lstat(filepath.Join(s.Path(scenario, name), stagedName)); err != nil {
		return nil
	}
	done, err := s.lock(scenario, name, unix.LOCK_EX)
	if err != nil {
		return nil
	}
	defer done()
	return s.unstage(scenario, name)
}

// unstage takes back what Stage has announced of a snapshot that is held.
func (s Store) unstage(scenario, name string) error {
	err := os.Remove(filepath.Join(s.Path(scenario, name), stagedName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
