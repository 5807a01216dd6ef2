package resource

import (
	"context"

	"mesh/host/declaration"
	"mesh/host/store"
	"mesh/host/system"
)

// Directories is what directories ask of the machine.
type Directories interface {
	MakeDirectory(path string, a system.Access) error
	SetDirectory(path string, a system.Access) error
	RemoveDirectory(path string) error
}

type directory struct{}

func (directory) target(r declaration.Resource, accounts system.Accounts) (store.State, error) {
	a, err := access(r.Directory.Owner, r.Directory.Group, r.Directory.Mode, "0755", accounts)
	return store.State{Type: string(system.TypeDirectory), UID: a.UID, GID: a.GID, Mode: a.Mode}, err
}

func (directory) differs(target, found store.State) string {
	switch {
	case found.Absent():
		return "it is not there"
	case found.Type != target.Type:
		return "a " + found.Type + " is in its place"
	}
	return ownership(target, found)
}

// fate: whether it is empty is seen when it is removed.
func (directory) fate(o store.Owned, found store.State) (Fate, string) {
	switch {
	case found.Absent():
		return Gone, ""
	case found.Type != o.Made.Type:
		return Leave, "a " + found.Type + " is in its place"
	case !o.Origin.Absent():
		return Leave, "it was there before it was first declared"
	}
	return Remove, ""
}

// resolve: a directory gets its name with owner and mode set, so what is
// neither was changed by somebody else; but owner and mode of one that is there
// are set one after the other, so of that one a part may have happened.
func (directory) resolve(in store.Intent, found store.State) Resolution {
	r := onDisk(in, found)
	if r == Foreign && found.Type == in.Target.Type && in.Before.Type == in.Target.Type {
		return Partly
	}
	return r
}

func (directory) look(_ context.Context, m Machine, places []string) []Found {
	return entries(m, places)
}

func (directory) apply(_ context.Context, m Machine, changes []Change) []error {
	errs := make([]error, len(changes))
	for i, c := range changes {
		if c.Before.Absent() {
			errs[i] = m.MakeDirectory(c.Resource.Directory.Path, accessOf(c.Target))
		} else {
			errs[i] = m.SetDirectory(c.Resource.Directory.Path, accessOf(c.Target))
		}
	}
	return errs
}

func (directory) remove(_ context.Context, m Machine, owned []store.Owned, _ func(string)) []error {
	errs := make([]error, len(owned))
	for i, o := range owned {
		errs[i] = m.RemoveDirectory(o.Where)
	}
	return errs
}
