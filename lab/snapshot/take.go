package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"mesh/lab/fault"
	"mesh/lab/lifecycle"
	"mesh/lab/machine"
)

// maxLayers bounds how many layers a disk consists of: each costs every read a
// look, and hypervisors have limits of their own.
const (
	maxLayers  = 40
	warnLayers = 8 // that are left when it is said
)

// deviceState is how much more than its memory a machine's image takes at most.
const deviceState = 64 << 20

// Take takes a snapshot of a raised scenario, which runs on. Where no name is
// given it is "s1", "s2", … On an error the scenario runs on and there is no
// snapshot.
func (s *Snapshots) Take(ctx context.Context, scenario, name, about string) (Manifest, error) {
	what := "take a snapshot of " + scenario
	h, err := s.raised(ctx, what, scenario)
	if err != nil {
		return Manifest{}, err
	}
	defer h.Release()
	if name, err = s.free(scenario, name); err != nil {
		return Manifest{}, err
	}
	t := &taking{Snapshots: s, held: h, m: Manifest{ID: s.cfg.NewID(), Scenario: scenario, Name: name, About: about}}
	if err := t.take(ctx); err != nil {
		return Manifest{}, failure(ctx, what, err, "the scenario runs on as it was")
	}
	var clocks sync.WaitGroup
	clocks.Go(func() { h.SetClocks(ctx, t.running()...) }) // meanwhile: it is the guests' work
	err = t.keep(ctx)
	clocks.Wait()
	if err == nil {
		err = h.Update(func(r *lifecycle.Record) { r.Snapshots = append([]string{t.m.ID}, r.Snapshots...) })
	}
	if err != nil {
		return Manifest{}, failure(ctx, what, errors.Join(err, s.store.Discard(scenario, name)), "the scenario runs on as it was")
	}
	for _, m := range h.Record.Plan.Machines {
		if len(m.Layers) >= maxLayers-warnLayers {
			s.cfg.Ports.Progress.Note("the disk of machine %s consists of %d layers, of at most %d: `lab restore %s %s` goes on from here on such of two",
				m.Name, len(m.Layers)+1, maxLayers, scenario, name)
		}
	}
	return t.m, nil
}

// free checks that a snapshot can have a name, or finds one.
func (s *Snapshots) free(scenario, name string) (string, error) {
	taken, err := s.store.names(scenario)
	if err != nil {
		return "", err
	}
	if name == "" {
		for n := 1; name == "" || slices.Contains(taken, name); n++ {
			name = "s" + strconv.Itoa(n)
		}
	}
	if err := lifecycle.CheckName(name); err != nil {
		return "", err
	}
	if slices.Contains(taken, name) {
		return "", &lifecycle.Error{
			What: fmt.Sprintf("scenario %s has a snapshot %s already", scenario, name),
			Next: fmt.Sprintf("choose another name, or remove it: lab snapshot remove %s %s", scenario, name), Code: codeUsage,
		}
	}
	return name, nil
}

// taking is one snapshot in the making.
type taking struct {
	*Snapshots
	held *lifecycle.Held
	m    Manifest
	dir  string
	was  map[string]machine.State // of the machines whose power is on
}

// take makes the cut: memory, disks and state of the world are the snapshot's
// afterwards, and every machine runs on. On an error there is nothing of it.
func (t *taking) take(ctx context.Context) error {
	if err := t.admit(ctx); err != nil {
		return err
	}
	t.dir = t.store.Path(t.m.Scenario, t.m.Name)
	if err := t.store.Discard(t.m.Scenario, t.m.Name); err != nil { // of one that was cut off
		return err
	}
	if err := os.MkdirAll(filepath.Join(t.dir, memoryDir), 0o755); err != nil {
		return err
	}
	err := t.freeze(ctx)
	if err != nil {
		undo, cancel := undoing(ctx)
		defer cancel()
		t.held.SetClocks(undo, t.running()...) // they may have stood until it was known
		err = errors.Join(err, t.store.Discard(t.m.Scenario, t.m.Name))
	}
	return err
}

// admit finds all that would keep the snapshot from being taken, before anything
// is touched.
func (t *taking) admit(ctx context.Context) error {
	r := t.held.Record
	t.was = map[string]machine.State{}
	var need int64
	for _, m := range r.Plan.Machines {
		if len(m.Layers) >= maxLayers {
			return &lifecycle.Error{ // what runs stands on all of them until it ends
				What: fmt.Sprintf("the disk of machine %s consists of %d layers already", m.Name, len(m.Layers)+1),
				Next: fmt.Sprintf("restore one of its snapshots (`lab snapshot list %s`): its disks become such of two layers", r.Plan.Name), Code: codeFailed,
			}
		}
		if r.Machines[m.Name].Off {
			continue
		}
		if name := t.held.Strikes(fault.DiskDetached, m); name != "" {
			return &lifecycle.Error{
				What: "machine " + m.Name + " has no disk that a snapshot could keep", Why: "fault " + name + " has taken it away",
				Next: fmt.Sprintf("`lab fault remove %s %s` first", r.Plan.Name, name), Code: codeFailed,
			}
		}
		state, err := t.cfg.Ports.Hypervisor.State(ctx, m.Spec.Name)
		if err != nil {
			return fmt.Errorf("look at machine %s: %w", m.Name, err)
		}
		if state == machine.Stopped {
			return fmt.Errorf("machine %s has ended; `lab power on` starts it again", m.Name)
		}
		t.was[m.Name] = state
		need += m.Spec.MemoryBytes + deviceState
	}
	free, err := t.cfg.Ports.Computer.FreeSpace(t.cfg.Ports.Store)
	if err != nil {
		return fmt.Errorf("measure disk space: %w", err)
	}
	if free < need {
		return &lifecycle.Error{
			What: "not enough disk space for the memory of the machines", Where: t.cfg.Ports.Store,
			Why:  fmt.Sprintf("it can take %d MiB, %d MiB are free", need>>20, free>>20),
			Next: "remove snapshots (`lab snapshot list`), or free some there", Code: codePrerequisite,
		}
	}
	if t.m.Platform, err = t.cfg.Ports.Memory.Platform(ctx, r.Accelerator); err != nil {
		return fmt.Errorf("ask what machines are made of: %w", err)
	}
	t.m.Images, err = t.imagesOf(r.Plan)
	return err
}

// imagesOf are the digests of the images that a raised plan's machines stand on.
func (s *Snapshots) imagesOf(p lifecycle.Plan) (map[string]string, error) {
	built, err := s.cfg.Images()
	if err != nil {
		return nil, err
	}
	digests := map[string]string{}
	for _, m := range p.Machines {
		for _, image := range built {
			if image.Disk == m.Base {
				digests[m.Image] = image.Digest
			}
		}
		if digests[m.Image] == "" {
			return nil, fmt.Errorf("the store does not have the image that machine %s stands on, %s", m.Name, m.Base)
		}
	}
	return digests, nil
}

// freeze moves every machine on to a layer of its own and keeps what it was at
// the cut. Whatever comes of it, the machines run on.
func (t *taking) freeze(ctx context.Context) (err error) {
	work := lifecycle.Work{Snapshot: t.m.Name, Disks: map[string]string{}}
	for _, m := range t.held.Record.Plan.Machines {
		work.Disks[m.Name] = t.cfg.Lab.Layer(t.cfg.NewID())
		if t.was[m.Name] == machine.Paused {
			work.Paused = append(work.Paused, m.Name)
		}
	}
	if err := t.held.Begin(lifecycle.Snapshotting, work, nil); err != nil {
		return err
	}
	frozen := t.held.Record.Plan.Machines
	defer func() {
		undo, cancel := undoing(ctx)
		defer cancel()
		if settled := t.held.Settle(undo); settled != nil {
			err = errors.Join(err, settled)
			return
		}
		if err == nil {
			err = t.moved(frozen)
		}
	}()
	for _, m := range frozen {
		if err := t.cfg.Ports.Disks.Overlay(ctx, m.Spec.Disk, work.Disks[m.Name]); err != nil {
			return err
		}
	}
	if err := link(t.held.Record.Plan.Directory, t.dir); err != nil {
		return err
	}
	return t.cut(ctx, work)
}

// running are the machines that were paused for the cut alone.
func (t *taking) running() []lifecycle.Machine {
	return slices.DeleteFunc(slices.Clone(t.held.Record.Plan.Machines), func(m lifecycle.Machine) bool {
		return t.was[m.Name] != machine.Running
	})
}

// moved makes sure that every machine has left the disk that is the snapshot's.
func (t *taking) moved(frozen []lifecycle.Machine) error {
	for i, m := range t.held.Record.Plan.Machines {
		if m.Spec.Disk == frozen[i].Spec.Disk {
			return fmt.Errorf("machine %s still writes to %s", m.Name, m.Spec.Disk)
		}
	}
	return nil
}

// memoryDir is where machines' memory is below a snapshot's directory.
const memoryDir = "memory"

// kept are directories of a scenario that are a snapshot's too: the packages that
// it is offered, and the keys that its machines know.
var kept = []string{"repository", "ssh"}

// link gives the files of the kept directories another name below to. They never
// change, so that they need not be copied.
func link(from, to string) error {
	for _, dir := range kept {
		err := filepath.WalkDir(filepath.Join(from, dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(from, path)
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			if e.IsDir() {
				return os.MkdirAll(filepath.Join(to, rel), info.Mode().Perm())
			}
			return os.Link(path, filepath.Join(to, rel))
		})
		if err != nil && !isAbsent(err) {
			return fmt.Errorf("keep %s: %w", dir, err)
		}
	}
	return nil
}

// keep makes a snapshot of what was taken: durable, with a manifest.
func (t *taking) keep(ctx context.Context) error {
	t.describe()
	var err error
	if t.m.Layers, err = t.layers(ctx); err != nil {
		return err
	}
	if t.m.Files, err = t.files(ctx); err != nil {
		return err
	}
	return t.store.Write(t.m)
}

// describe takes the record, as it is after the cut, into the manifest.
func (t *taking) describe() {
	r := t.held.Record
	t.m.Ancestors = slices.Clone(r.Snapshots)
	t.m.Plan = r.Plan.Portable()
	t.m.Steps = slices.Clone(r.Steps)
	t.m.Faults = slices.Clone(r.Faults)
	t.m.Machines = nil
	for _, m := range r.Plan.Machines {
		one := Machine{Name: m.Name, Paused: t.was[m.Name] == machine.Paused}
		if t.was[m.Name] != "" {
			one.Memory = memoryFile(m.Name)
		}
		t.m.Machines = append(t.m.Machines, one)
	}
}

func memoryFile(machine string) string { return memoryDir + "/" + machine }

// now is the lab machine's clock as manifests have it.
func (s *Snapshots) now() time.Time { return s.cfg.Ports.Now().UTC() }
