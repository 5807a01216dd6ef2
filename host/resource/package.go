package resource

import (
	"context"
	"fmt"

	"mesh/host/declaration"
	"mesh/host/store"
	"mesh/host/system"
)

// Packages is what packages ask of the machine. note is told what is being
// done, waiting for the package lock included.
type Packages interface {
	Installed(ctx context.Context, names []string) (map[string]system.Package, error)
	Install(ctx context.Context, name, version string, note func(string)) error
	InstallFile(ctx context.Context, name, file string, note func(string)) error
	InstallFrom(ctx context.Context, name, release string, note func(string)) error
	Newest(ctx context.Context, name, release string) (version string, err error)
	Uninstall(ctx context.Context, name string, note func(string)) error
}

// Broken is a version of a package that does not work on this machine.
type Broken struct {
	Version string
	Why     string               // and since when, in one line
	Instead *declaration.Package // what is installed in its place; nil: whatever is there stays
}

// Trials is what a machine may know beside: which versions of a package were
// tried and do not work.
type Trials interface {
	Broken(name string) ([]Broken, error)
}

// BrokenVersions lists what m knows not to work of the package that r is.
func BrokenVersions(m Machine, r declaration.Resource) ([]Broken, error) {
	trials, knows := m.(Trials)
	if r.Package == nil || !knows {
		return nil, nil
	}
	return trials.Broken(r.Package.Name)
}

const (
	typePackage = "package"
	installed   = "installed"
)

type pkg struct{}

func (pkg) target(r declaration.Resource, _ system.Accounts) (store.State, error) {
	return store.State{Type: typePackage, Version: r.Package.Version, Status: installed}, nil
}

func (pkg) differs(target, found store.State) string {
	switch {
	case found.Absent():
		return "it is not installed"
	case found.Status != installed:
		return "it is " + found.Status
	case target.Version != "" && found.Version != target.Version:
		return fmt.Sprintf("version %s is installed instead of %s", found.Version, target.Version)
	}
	return ""
}

// fate: a package goes in whichever version it is by now, if it was not there
// before.
func (pkg) fate(o store.Owned, found store.State) (Fate, string) {
	switch {
	case found.Absent():
		return Gone, ""
	case !o.Origin.Absent():
		return Leave, "it was installed before it was first declared"
	}
	return Remove, ""
}

// resolve: dpkg may have been stopped anywhere on the way.
func (k pkg) resolve(in store.Intent, found store.State) Resolution {
	switch {
	case in.Act == store.ActRemove && found.Absent():
		return Done
	case in.Act != store.ActRemove && k.differs(in.Target, found) == "":
		return Done
	case found == in.Before:
		return Undone
	}
	return Partly
}

func (pkg) look(ctx context.Context, m Machine, places []string) []Found {
	known, err := m.Installed(ctx, places)
	if err != nil {
		return everyone(len(places), err)
	}
	all := make([]Found, len(places))
	for i, name := range places {
		if p, ok := known[name]; ok {
			all[i].State = store.State{Type: typePackage, Version: p.Version, Status: p.Status}
		}
	}
	return all
}

func (pkg) apply(ctx context.Context, m Machine, changes []Change) []error {
	errs := make([]error, len(changes))
	for i, c := range changes {
		errs[i] = install(ctx, m, c.Resource.Package, c.Note)
	}
	return errs
}

func install(ctx context.Context, m Machine, p *declaration.Package, note func(string)) error {
	switch {
	case p.Blob != nil:
		file, err := m.PackageFile(p.Blob.Digest)
		if err != nil {
			return err
		}
		return m.InstallFile(ctx, p.Name, file, note)
	case p.Release != "":
		return m.InstallFrom(ctx, p.Name, p.Release, note)
	}
	return m.Install(ctx, p.Name, p.Version, note)
}

func (pkg) remove(ctx context.Context, m Machine, owned []store.Owned, note func(string)) []error {
	errs := make([]error, len(owned))
	for i, o := range owned {
		errs[i] = m.Uninstall(ctx, o.Where, note)
	}
	return errs
}
