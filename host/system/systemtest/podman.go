package systemtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"mesh/host/declaration"
	"mesh/host/system"
)

// Podman is what a podman with its generator is to a machine: it makes units of
// the files for them, which the service manager starts and stops.
type Podman struct {
	m          *Machine
	lacks      string              // why there is none; empty when there is
	offered    map[string]bool     // images that a registry has
	images     map[string]bool     // images that were fetched
	asked      map[string]bool     // names of containers, as they are declared, that somebody asked for
	containers map[string]*running // by name
}

type running struct {
	Container system.Container
	Image     string // as it was asked for
}

func newPodman() *Podman {
	return &Podman{offered: map[string]bool{}, images: map[string]bool{}, asked: map[string]bool{}, containers: map[string]*running{}}
}

// clone is podman after a reboot: no container runs.
func (p *Podman) clone() *Podman {
	again := newPodman()
	again.lacks, again.offered, again.images, again.asked = p.lacks, maps.Clone(p.offered), maps.Clone(p.images), maps.Clone(p.asked)
	return again
}

// OfferImage makes an image available, by a name with its digest.
func (p *Podman) OfferImage(image string) { p.offered[image] = true }

// AddImage fetches an image by hand.
func (p *Podman) AddImage(image string) { p.images[image] = true }

// WithdrawImage makes an image one that can be fetched no more, and forgets it.
func (p *Podman) WithdrawImage(image string) {
	delete(p.offered, image)
	delete(p.images, image)
}

// LacksPodman takes podman away, for a reason, or gives it back for none. The
// package podman does so, too, when it comes and goes.
func (p *Podman) LacksPodman(why string) { p.lacks = why }

// AddContainer runs a container by hand, whatever was of that name before.
func (p *Podman) AddContainer(name string, c system.Container) {
	p.containers[name] = &running{Container: c}
}

// LoseContainer ends a container by hand, and with it the service that ran it.
func (p *Podman) LoseContainer(name string) {
	if unit := p.m.units[name+".service"]; unit != nil {
		p.m.end(unit, "failed")
	}
	delete(p.containers, name)
}

// String is a line for each image and each container, in order.
func (p *Podman) String() string {
	var b strings.Builder
	for _, image := range slices.Sorted(maps.Keys(p.images)) {
		fmt.Fprintf(&b, "image %s\n", image)
	}
	for _, name := range slices.Sorted(maps.Keys(p.containers)) {
		c := p.containers[name].Container
		fmt.Fprintf(&b, "container %s of %s: image %s, made of %.12s\n", name, c.Unit, c.Image, c.Made)
	}
	return b.String()
}

func (p *Podman) call(name, where string, changes bool) error {
	if err := p.m.call(name, where, changes); err != nil {
		return err
	}
	if p.lacks != "" {
		return fmt.Errorf("%w: %s", system.ErrNoContainers, p.lacks)
	}
	return nil
}

// Containers implements resource.Containers.
func (p *Podman) Containers(_ context.Context, names []string) (map[string]system.Container, error) {
	for _, name := range names {
		p.asked[strings.TrimPrefix(name, declaration.ContainerPrefix)] = true
	}
	if err := p.call("read containers", strings.Join(names, " "), false); err != nil {
		return nil, err
	}
	found := map[string]system.Container{}
	for _, name := range names {
		if c := p.containers[name]; c != nil {
			found[name] = c.Container
		}
	}
	return found, nil
}

// PullImage implements resource.Containers.
func (p *Podman) PullImage(_ context.Context, image string, note func(string)) error {
	if p.images[image] {
		return p.call("read images", image, false)
	}
	note("fetching " + image)
	if err := p.call("fetch image", image, true); err != nil {
		return err
	}
	return p.fetch(image)
}

func (p *Podman) fetch(image string) error {
	if !p.offered[image] && !p.images[image] {
		return fmt.Errorf("fetch image %s: manifest unknown", image)
	}
	p.images[image] = true
	return nil
}

// Images implements resource.Containers.
func (p *Podman) Images(_ context.Context, names []string) (map[string][]string, error) {
	if err := p.call("read images", strings.Join(names, " "), false); err != nil {
		return nil, err
	}
	found := map[string][]string{}
	for _, image := range names {
		if p.images[image] {
			found[image] = p.madeOf(image)
		}
	}
	return found, nil
}

// madeOf names the containers that are made of an image.
func (p *Podman) madeOf(image string) (names []string) {
	_, digest, _ := strings.Cut(image, "@")
	for _, name := range slices.Sorted(maps.Keys(p.containers)) {
		if p.containers[name].Container.Image == digest {
			names = append(names, name)
		}
	}
	return names
}

// RemoveImage implements resource.Containers.
func (p *Podman) RemoveImage(_ context.Context, image string) error {
	if err := p.call("remove image", image, true); err != nil {
		return err
	}
	if names := p.madeOf(image); len(names) > 0 && p.images[image] {
		return fmt.Errorf("remove image %s: %w: it is used by %s", image, system.ErrInUse, strings.Join(names, ", "))
	}
	delete(p.images, image)
	return nil
}

// RemoveContainer implements resource.Containers.
func (p *Podman) RemoveContainer(_ context.Context, name string) error {
	if err := p.call("remove container", name, true); err != nil {
		return err
	}
	if c := p.containers[name]; c != nil {
		if unit := p.m.units[c.Container.Unit]; unit != nil && unit.Active == "active" {
			return fmt.Errorf("remove container %s: it is running", name)
		}
	}
	delete(p.containers, name)
	return nil
}

// generate makes the units of the files there are, as podman's generator does when
// systemd reads its unit files. A unit whose file is gone stays for as long as it runs.
func (p *Podman) generate() {
	for _, name := range slices.Sorted(maps.Keys(p.asked)) {
		unit := declaration.ContainerUnit(name)
		text, there := p.m.Disk.Content(declaration.ContainerFile(name))
		switch u := p.m.units[unit]; {
		case there && p.lacks == "" && u == nil:
			p.m.AddUnit(Unit{Name: unit, Enabled: "generated", File: text})
		case there && p.lacks == "":
			u.File = text
		case u != nil && u.Enabled == "generated" && u.Active == "inactive":
			delete(p.m.units, unit)
		case u != nil && u.Enabled == "generated":
			u.File = ""
		}
	}
}

// began makes the container of a unit that starts, in place of any of its name.
func (p *Podman) began(unit *Unit) error {
	key := func(name string) string {
		for line := range strings.Lines(unit.File) {
			if value, ok := strings.CutPrefix(line, name+"="); ok {
				return strings.TrimSpace(value)
			}
		}
		return ""
	}
	image := key("Image")
	if err := p.fetch(image); err != nil {
		return err
	}
	unit.Reads = nil
	for line := range strings.Lines(unit.File) {
		if value, ok := strings.CutPrefix(line, "Volume=/"); ok {
			source, _, _ := strings.Cut("/"+value, ":")
			unit.Reads = append(unit.Reads, source)
		}
	}
	_, digest, _ := strings.Cut(image, "@")
	p.containers[key("ContainerName")] = &running{Image: image, Container: system.Container{
		Unit: unit.Name, Made: strings.TrimPrefix(key("Label"), system.LabelMade+"="), Image: digest,
	}}
	return nil
}

// ended takes away the container of a unit that stops.
func (p *Podman) ended(unit *Unit) {
	maps.DeleteFunc(p.containers, func(_ string, r *running) bool { return r.Container.Unit == unit.Name })
}
