package resource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strings"

	"mesh/host/declaration"
	"mesh/host/store"
	"mesh/host/system"
)

// Containers is what containers ask of podman. Errors match
// system.ErrNoContainers where there is none that will do, and system.ErrInUse for
// an image that something is made of.
type Containers interface {
	Containers(ctx context.Context, names []string) (map[string]system.Container, error)
	PullImage(ctx context.Context, image string, note func(string)) error
	RemoveContainer(ctx context.Context, name string) error
	Images(ctx context.Context, names []string) (map[string][]string, error)
	RemoveImage(ctx context.Context, image string) error
}

const (
	typeContainer = "container"
	typeForeign   = "container of somebody else's"
	generated     = "generated" // UnitFileState of a unit that a generator made
)

// container is a unit file that podman's generator makes a service of, that
// service, and the container that it runs. All three are looked at: the file by
// its content, the service by its state, the container by what it was made of.
//
// A container that stops is started by systemd, as a service is; what systemd
// gave up, or somebody stopped, the next pass starts. Volumes that podman made stay
// when a container goes: they hold what cannot be had again. Its image is a place
// of its own, see image.
type container struct{}

func (container) target(r declaration.Resource, _ system.Accounts) (store.State, error) {
	text, made := quadlet(r.Container)
	sum := sha256.Sum256([]byte(text))
	_, image, _ := strings.Cut(r.Container.Image, "@")
	return store.State{
		Type: typeContainer, Digest: hex.EncodeToString(sum[:]), Version: made, Image: image, Status: active,
	}, nil
}

func (container) differs(target, found store.State) string {
	switch {
	case found.Absent():
		return "it is not there"
	case found.Type != target.Type:
		return "a " + found.Type + " is in its place"
	case found.Digest == "":
		return "its unit file is not there"
	case found.Image != "" && found.Image != target.Image:
		return fmt.Sprintf("it runs the image %s instead of %s", found.Image, target.Image)
	case found.Digest != target.Digest:
		return "its unit file is another"
	case !Running(found):
		return "it is " + found.Status
	case found.Image == "":
		return "its service is " + found.Status + " and the container is not there"
	case found.Version != target.Version:
		return "what runs was made of another unit file"
	}
	return ""
}

// fate goes by the unit file, as a file's does by its content.
func (container) fate(o store.Owned, found store.State) (Fate, string) {
	switch {
	case found.Absent():
		return Gone, ""
	case found.Type != typeContainer:
		return Leave, "a " + found.Type + " is in its place"
	case !o.Origin.Absent() && found.Digest == o.Origin.Digest:
		return Leave, "it was there before it was first declared"
	case found.Digest != "" && found.Digest != o.Made.Digest:
		return Leave, "its unit file was changed by hand"
	}
	return Remove, ""
}

// resolve: the file, the service and the container change one after the other,
// and whatever is there by now, the host has had its hand in it. Whether it was
// started anew, by the host or by a reboot, is for the debts to say.
func (k container) resolve(in store.Intent, found store.State) Resolution {
	found.Boot = in.Before.Boot
	switch {
	case in.Act == store.ActRemove:
		if fate, _ := k.fate(store.Owned{Origin: in.Origin, Made: in.Before}, found); fate != Remove {
			return Done
		}
		return Partly
	case found == in.Before:
		return Undone
	case k.differs(in.Target, found) == "":
		return Done
	}
	return Partly
}

func (k container) look(ctx context.Context, m Machine, places []string) []Found {
	units, names, paths := make([]string, len(places)), make([]string, len(places)), make([]string, len(places))
	for i, name := range places {
		units[i], names[i], paths[i] = declaration.ContainerUnit(name), declaration.ContainerPrefix+name, declaration.ContainerFile(name)
	}
	services, err := m.Units(ctx, units)
	if err != nil {
		return everyone(len(places), err)
	}
	files, lacks := m.LookAll(paths), ""
	known, err := m.Containers(ctx, names)
	switch {
	case errors.Is(err, system.ErrNoContainers):
		lacks = err.Error()
	case err != nil:
		return everyone(len(places), err)
	}
	all := make([]Found, len(places))
	for i := range places {
		file := files[i]
		all[i] = Found{Err: file.Err, Lacks: lacks, State: seen(file.Entry, services[units[i]], known[names[i]], units[i])}
	}
	return all
}

// seen puts together what there is of a container. A container of that name which
// is not of that unit is not touched, whatever else is there.
func seen(file system.Entry, service system.Unit, c system.Container, unit string) store.State {
	// What the generator made stays until systemd reads its unit files again.
	loaded := service.Load != "not-found" && (service.Active != inactive || service.Enabled == generated)
	switch {
	case c.Unit != unit && c != (system.Container{}):
		return store.State{Type: typeForeign}
	case file.Type != "" && file.Type != system.TypeFile:
		return store.State{Type: string(file.Type)}
	case file.Type == "" && !loaded && c == (system.Container{}):
		return store.State{}
	}
	return store.State{
		Type: typeContainer, Digest: file.Digest, Version: c.Made, Image: c.Image,
		Status: or(service.Active, inactive), Invocation: service.Invocation, Boot: service.Boot,
	}
}

func (k container) apply(ctx context.Context, m Machine, changes []Change) []error {
	errs := make([]error, len(changes))
	for i, c := range changes {
		errs[i] = k.change(ctx, m, c)
	}
	return errs
}

// change fetches the image before it touches what runs. A container that runs as
// declared is left running while only its file is put back.
func (k container) change(ctx context.Context, m Machine, c Change) error {
	d := c.Resource.Container
	written := c.Before
	written.Digest = c.Target.Digest
	runs := !c.Restart && k.differs(c.Target, written) == ""
	if runs && c.Before == written {
		return nil
	}
	if err := given(m, d); err != nil {
		return err
	}
	if !runs {
		if err := m.PullImage(ctx, d.Image, c.Note); err != nil {
			return err
		}
	}
	if c.Before != written {
		if err := k.write(m, d); err != nil {
			return err
		}
	}
	if err := m.Reread(ctx); err != nil {
		return err
	}
	switch unit := declaration.ContainerUnit(d.Name); {
	case runs:
		return nil
	case Running(c.Before) && (c.Restart || c.Before != written || !comes(c.Before)):
		c.Note("restarting")
		return m.Restart(ctx, unit)
	default:
		c.Note("starting")
		return m.Start(ctx, unit)
	}
}

// comes says whether a container is about to be there: systemd starts it, as it does
// when the machine starts, and to start it once more is to wait for that.
func comes(s store.State) bool { return s.Status == "activating" && s.Image == "" }

// given checks that what a container is given of the machine is there, and is
// what it is by itself, not by a link that may lead elsewhere tomorrow.
func given(m Machine, d *declaration.Container) error {
	for _, s := range d.Secrets {
		e := m.LookAll([]string{s.Path})[0]
		switch {
		case e.Err != nil:
			return fmt.Errorf("secret %s: %w", s.Name, e.Err)
		case e.Type == "":
			return fmt.Errorf("secret %s: %s is not there: declare it before this, or put it there", s.Name, s.Path)
		case e.Type != system.TypeFile:
			return fmt.Errorf("secret %s: %s is a %s, and a file is wanted", s.Name, s.Path, e.Type)
		}
	}
	for _, v := range d.Volumes {
		if !strings.HasPrefix(v.Source, "/") {
			continue
		}
		e := m.LookAll([]string{v.Source})[0]
		switch {
		case e.Err != nil:
			return fmt.Errorf("volume for %s: %w", v.Target, e.Err)
		case e.Type == "":
			return fmt.Errorf("volume for %s: %s is not there: declare it before this, or make it", v.Target, v.Source)
		case e.Type != system.TypeFile && e.Type != system.TypeDirectory:
			return fmt.Errorf("volume for %s: %s is a %s, and a directory or file is wanted", v.Target, v.Source, e.Type)
		}
	}
	return nil
}

// containerPaths are the unit file and the directories it lies in, which podman's
// package brings, or whoever comes first; they stay, as they are not the host's alone.
func containerPaths(name string) []string {
	file := declaration.ContainerFile(name)
	return []string{path.Dir(path.Dir(file)), path.Dir(file), file}
}

// write puts the unit file in place durably. A directory that was made by a write
// before, which did not come to its end, was made durable when that was found out.
func (container) write(m Machine, d *declaration.Container) error {
	paths := containerPaths(d.Name)
	for _, dir := range paths[:2] {
		e := m.LookAll([]string{dir})[0]
		if e.Err == nil && e.Type == "" {
			e.Err = m.MakeDirectory(dir, system.Access{Mode: 0o755})
		}
		if e.Err != nil {
			return e.Err
		}
	}
	text, _ := quadlet(d)
	return m.Replace([]system.Write{{Path: paths[2], Content: []byte(text), Access: system.Access{Mode: 0o644}}})[0]
}

func (k container) remove(ctx context.Context, m Machine, owned []store.Owned, note func(string)) []error {
	errs := make([]error, len(owned))
	for i, o := range owned {
		errs[i] = k.takeAway(ctx, m, o, note)
	}
	return errs
}

// takeAway looks once more: only a unit file that is the host's goes, and only
// what it made.
func (k container) takeAway(ctx context.Context, m Machine, o store.Owned, note func(string)) error {
	found := k.look(ctx, m, []string{o.Where})[0]
	if found.Err != nil {
		return found.Err
	}
	switch fate, why := k.fate(o, found.State); fate {
	case Gone:
		return nil
	case Leave:
		return fmt.Errorf("remove container %s: %w: %s", o.Where, system.ErrChanged, why)
	}
	file := system.Removal{Path: declaration.ContainerFile(o.Where), Digest: o.Made.Digest}
	if found.State.Status != inactive {
		note("stopping")
		if err := m.Stop(ctx, declaration.ContainerUnit(o.Where)); err != nil {
			return err
		}
	}
	if found.State.Digest != "" {
		if err := m.Remove([]system.Removal{file})[0]; err != nil {
			return err
		}
	}
	if err := m.Reread(ctx); err != nil {
		return err
	}
	if err := m.RemoveContainer(ctx, declaration.ContainerPrefix+o.Where); !errors.Is(err, system.ErrNoContainers) {
		return err
	}
	return nil
}
