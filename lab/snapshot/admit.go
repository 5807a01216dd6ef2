package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"mesh/lab/images"
	"mesh/lab/lifecycle"
	"mesh/lab/machine"
	"mesh/lab/underlay"
	"mesh/lab/world"
)

// room is how much disk space there must be for each machine that is restored in
// the place of another.
const room = 64 << 20

// admit plans the restore and finds all that would keep it from working, before
// anything is touched.
func (r *restoring) admit(ctx context.Context) error {
	old := r.held.Record
	switch {
	case r.o.As != "" && old != nil:
		return &lifecycle.Error{
			What: "scenario " + r.o.As + " is raised already",
			Next: "choose another name, or `lab destroy " + r.o.As + "` first", Code: codeUsage,
		}
	case r.o.Machine != "" && (old == nil || !r.same(*old)):
		return &lifecycle.Error{
			What: "one machine can be restored only into the scenario that it was taken of",
			Why:  "scenario " + r.name() + " is not raised, or not from the same declaration",
			Next: "restore all of it: leave out --machine", Code: codeUsage,
		}
	case r.o.Machine != "" && !r.cfg.Ports.Computer.Alive(old.World):
		return &lifecycle.Error{
			What: "one machine cannot be restored where the world's process is gone", Why: "the others stand in what is left of it",
			Next: "restore all of it: leave out --machine", Code: codeFailed,
		}
	}
	if old != nil && old.Phase == lifecycle.Snapshotting {
		if err := r.held.Settle(ctx); err != nil {
			return err
		}
	}
	known, err := r.images()
	if err != nil {
		return err
	}
	r.settleOn(known)
	return errors.Join(r.whole(), r.space(ctx), r.Fits(ctx, r.m))
}

// same tells whether a raised scenario has the world and the machines that the
// snapshot has, so that its world can stay.
func (r *restoring) same(old lifecycle.Record) bool {
	if old.Phase != lifecycle.Raised && old.Phase != lifecycle.Restoring && old.Phase != lifecycle.Snapshotting {
		return false
	}
	is, ought := old.Plan.Portable(), r.m.Plan
	for _, p := range []*lifecycle.Plan{&is, &ought} {
		p.Steps, p.Source, p.Document = nil, "", ""
		p.World.Underlay = atHome(p.World.Underlay)
		machines := make([]lifecycle.Machine, len(p.Machines))
		for i, m := range p.Machines {
			m.Layers = nil
			machines[i] = m
		}
		p.Machines = machines
	}
	return equal(is, ought)
}

// disksLost tells whether the process that served a scenario's disks was killed.
func (r *restoring) disksLost(old lifecycle.Record) bool {
	served := old.Disks.Process
	return served != (world.Process{}) && !r.cfg.Ports.Computer.Alive(served)
}

// atHome is u with everybody who roams where it began.
func atHome(u underlay.Underlay) underlay.Underlay {
	for _, one := range u.Roamers() {
		if back, err := u.Roam(one.Name, one.Segments[0]); err == nil {
			u = back
		}
	}
	return u
}

// images finds the images that the machines stand on, by digest.
func (r *restoring) images() (map[string]images.Image, error) {
	built, err := r.cfg.Images()
	if err != nil {
		return nil, err
	}
	known := map[string]images.Image{}
	var missing []error
	for name, digest := range r.m.Images {
		for _, image := range built {
			if image.Digest == digest && r.m.standsOn(name, image) {
				known[name] = image
			}
		}
		if _, found := known[name]; !found {
			missing = append(missing, &lifecycle.Error{
				What: fmt.Sprintf("image %s of digest %s, which its disks stand on, is not in the store", name, digest),
				Why:  "its content must be the very same: another build of the recipe is another disk",
				Next: "bring it from where the snapshot was taken, or raise the scenario anew", Code: codePrerequisite,
			})
		}
	}
	return known, errors.Join(missing...)
}

// standsOn tells whether machines stand on exactly that image, by its content.
func (m Manifest) standsOn(name string, image images.Image) bool {
	return !slices.ContainsFunc(m.Plan.Machines, func(one lifecycle.Machine) bool {
		return one.Image == name && one.Content != image.Content
	})
}

// settleOn decides what the scenario will be.
func (r *restoring) settleOn(known map[string]images.Image) {
	lab, old := r.cfg.Lab, r.held.Record
	r.fresh = old == nil || !r.same(*old) || r.o.Machine == "" && r.disksLost(*old)
	run := ""
	if r.fresh {
		run = r.cfg.NewRun()
	} else {
		run = old.Plan.Run
	}
	tops := map[string]string{}
	for _, m := range r.m.Plan.Machines {
		tops[m.Name] = r.cfg.NewID()
	}
	r.plan = r.m.Plan.On(lifecycle.Ground{
		Name: r.name(), Run: run, Directory: lab.Directory(r.name()), Runtime: lab.RuntimeOf(run), Layers: lab.Layers(),
		Images: known, Disks: tops,
	})
	r.machines = r.plan.Machines
	if r.o.Machine != "" {
		i := slices.IndexFunc(r.plan.Machines, func(m lifecycle.Machine) bool { return m.Name == r.o.Machine })
		r.machines = r.plan.Machines[i : i+1]
		r.plan = old.Plan // the others and the world are as they are
		r.plan.Machines = slices.Clone(old.Plan.Machines)
		r.plan.Machines[i] = r.machines[0]
	}
	r.newWorld = r.fresh || !r.cfg.Ports.Computer.Alive(old.World)
}

// whole tells whether every file of the snapshot is there, whole by its size.
func (r *restoring) whole() error {
	dir := r.store.Path(r.m.Scenario, r.m.Name)
	var problems []string
	check := func(what, path, digest string, bytes int64) {
		info, err := os.Stat(path)
		switch {
		case isAbsent(err):
			problems = append(problems, fmt.Sprintf("%s is gone (sha256 %s)", what, digest))
		case err != nil:
			problems = append(problems, err.Error())
		case info.Size() != bytes:
			problems = append(problems, fmt.Sprintf("%s has %d bytes, not %d", what, info.Size(), bytes))
		}
	}
	for _, f := range r.m.Files {
		check(f.Path, filepath.Join(dir, f.Path), f.SHA256, f.Bytes)
	}
	for _, l := range r.m.Layers {
		check("disk layer "+l.ID, r.cfg.Lab.Layer(l.ID), l.SHA256, l.Bytes)
	}
	if problems == nil {
		return nil
	}
	return &lifecycle.Error{
		What: "the snapshot is damaged", Where: dir, Why: strings.Join(problems, "\n"),
		Next: fmt.Sprintf("restore another one; `lab snapshot remove %s %s` removes this one", r.m.Scenario, r.m.Name), Code: codeFailed,
	}
}

// space tells whether the lab machine has room for what is not there yet: a
// whole scenario, or what machines in the place of others will write.
func (r *restoring) space(ctx context.Context) error {
	if r.fresh {
		return r.cfg.Lab.Room(ctx, r.plan)
	}
	free, err := r.cfg.Ports.Computer.FreeSpace(r.cfg.Ports.Store)
	if err != nil {
		return fmt.Errorf("measure disk space: %w", err)
	}
	need := int64(len(r.machines)) * room
	for _, f := range r.m.Files { // each machine runs on from a copy of its own
		if slices.ContainsFunc(r.machines, func(m lifecycle.Machine) bool { return r.state(m.Name).Memory == f.Path }) {
			need += f.Bytes
		}
	}
	if free < need {
		return &lifecycle.Error{
			What: "not enough disk space to restore", Where: r.cfg.Ports.Store,
			Why:  fmt.Sprintf("it needs %d MiB, %d MiB are free", need>>20, free>>20),
			Next: "remove snapshots (`lab snapshot list`), or free some there", Code: codePrerequisite,
		}
	}
	return nil
}

// Fits tells whether memory images of a snapshot can be restored on this lab
// machine; if not, its error (exit code 4, machine.ErrForeign) says why.
func (s *Snapshots) Fits(ctx context.Context, m Manifest) error {
	if err := s.cfg.Ports.Daemon.Ensure(ctx); err != nil {
		return fmt.Errorf("hypervisor: %w", err)
	}
	want := m.Platform
	if want.Accelerator == machine.KVM {
		if found, why, err := s.cfg.Ports.Daemon.Accelerator(ctx); err != nil || found != machine.KVM {
			return errors.Join(err, foreign(m, "machines run by "+string(found)+": "+why))
		}
	}
	here, err := s.cfg.Ports.Memory.Platform(ctx, want.Accelerator)
	if err != nil {
		return fmt.Errorf("ask what machines are made of: %w", err)
	}
	if here != want {
		return foreign(m, describe(here))
	}
	return nil
}

func foreign(m Manifest, here string) error {
	return &lifecycle.Error{
		What: "the snapshot was taken on another platform",
		Why:  "it was taken on " + describe(m.Platform) + "; here is " + here,
		Next: "restore it where it was taken, or raise the scenario anew", Code: codePrerequisite, Cause: machine.ErrForeign,
	}
}

func describe(p machine.Platform) string {
	return fmt.Sprintf("%s, machine type %s, CPU %s, accelerator %s", p.Emulator, p.MachineType, p.CPU, p.Accelerator)
}
