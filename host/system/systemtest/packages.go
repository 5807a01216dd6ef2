package systemtest

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"mesh/host/system"
)

// Offer is a package that can be installed, and what it brings.
type Offer struct {
	Versions []string // the last one is installed when none is asked for
	Files    map[string]string
	Units    []Unit
	Users    map[string]uint32
}

// Packages is a package system. Unpacking and configuring are two calls, so
// that a machine can be cut between them; both are durable at once, as dpkg
// makes them.
type Packages struct {
	m         *Machine
	offers    map[string]Offer
	installed map[string]system.Package
}

func newPackages() *Packages {
	return &Packages{offers: map[string]Offer{}, installed: map[string]system.Package{}}
}

// OfferPackage makes a package available.
func (p *Packages) OfferPackage(name string, o Offer) { p.offers[name] = o }

func (p *Packages) clone() *Packages {
	return &Packages{offers: maps.Clone(p.offers), installed: maps.Clone(p.installed)}
}

// String is a line for each installed package, in order.
func (p *Packages) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p.installed)) {
		fmt.Fprintf(&b, "package %s %s %s\n", name, p.installed[name].Version, p.installed[name].Status)
	}
	return b.String()
}

// Installed implements resource.Packages.
func (p *Packages) Installed(_ context.Context, names []string) (map[string]system.Package, error) {
	if err := p.m.call("read packages", strings.Join(names, " "), false); err != nil {
		return nil, err
	}
	found := map[string]system.Package{}
	for _, name := range names {
		if known, ok := p.installed[name]; ok {
			found[name] = known
		}
	}
	return found, nil
}

// Install implements resource.Packages.
func (p *Packages) Install(_ context.Context, name, version string, note func(string)) error {
	offer, known := p.offers[name]
	if !known {
		return fmt.Errorf("install package %s: no source offers it", name)
	}
	if version == "" {
		version = offer.Versions[len(offer.Versions)-1]
	}
	if !slices.Contains(offer.Versions, version) {
		return fmt.Errorf("install package %s: no source offers version %s", name, version)
	}
	note("installing")
	if err := p.m.call("unpack", name, true); err != nil {
		return err
	}
	p.installed[name] = system.Package{Version: version, Status: "half-configured"}
	for file, content := range offer.Files {
		if _, there := p.m.Disk.Content(file); !there {
			p.m.Disk.Put(file, Thing{Type: system.TypeFile, Mode: 0o644, Content: content})
		}
	}
	if err := p.m.call("configure", name, true); err != nil {
		return err
	}
	p.installed[name] = system.Package{Version: version, Status: "installed"}
	if name == "podman" {
		p.m.LacksPodman("")
	}
	for _, unit := range offer.Units {
		if p.m.Services.units[unit.Name] == nil {
			p.m.AddUnit(unit)
		}
	}
	return nil
}

// InstallFile implements resource.Packages: the file holds the version.
func (p *Packages) InstallFile(ctx context.Context, name, file string, note func(string)) error {
	version, there := p.m.Disk.Content(file)
	if !there {
		return fmt.Errorf("install package %s: %s is not there", name, file)
	}
	return p.Install(ctx, name, version, note)
}

// InstallFrom implements resource.Packages: every source offers everything.
func (p *Packages) InstallFrom(ctx context.Context, name, _ string, note func(string)) error {
	return p.Install(ctx, name, "", note)
}

// Newest implements resource.Packages.
func (p *Packages) Newest(_ context.Context, name, _ string) (string, error) {
	if err := p.m.call("read package sources", name, false); err != nil {
		return "", err
	}
	offer, known := p.offers[name]
	if !known {
		return "", nil
	}
	return offer.Versions[len(offer.Versions)-1], nil
}

// Uninstall implements resource.Packages.
func (p *Packages) Uninstall(_ context.Context, name string, note func(string)) error {
	note("removing")
	if err := p.m.call("uninstall", name, true); err != nil {
		return err
	}
	delete(p.installed, name)
	for file := range p.offers[name].Files {
		if !strings.HasPrefix(path.Dir(file), "/etc") { // configuration stays
			p.m.Disk.Put(file, Thing{})
		}
	}
	if name == "podman" {
		p.m.LacksPodman("podman is not installed")
	}
	for _, unit := range p.offers[name].Units {
		delete(p.m.Services.units, unit.Name)
	}
	return nil
}
