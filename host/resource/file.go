package resource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"mesh/host/declaration"
	"mesh/host/store"
	"mesh/host/system"
)

// Files is what files ask of the machine.
type Files interface {
	Look(path string) (system.Entry, error)
	Replace(writes []system.Write) []error
	Remove(removals []system.Removal) []error
	Settle(path string) error
}

type file struct{}

func (file) target(r declaration.Resource, accounts system.Accounts) (store.State, error) {
	a, err := access(r.File.Owner, r.File.Group, r.File.Mode, "0644", accounts)
	sum := sha256.Sum256([]byte(r.File.Content))
	return store.State{
		Type: string(system.TypeFile), Digest: hex.EncodeToString(sum[:]), UID: a.UID, GID: a.GID, Mode: a.Mode,
	}, err
}

func (file) differs(target, found store.State) string {
	switch {
	case found.Absent():
		return "it is not there"
	case found.Type != target.Type:
		return "a " + found.Type + " is in its place"
	case found.Digest != target.Digest:
		return "its content is another"
	}
	return ownership(target, found)
}

// fate goes by the content: a file whose mode was changed by hand is still the
// one that was written.
func (file) fate(o store.Owned, found store.State) (Fate, string) {
	switch {
	case found.Absent():
		return Gone, ""
	case found.Type != o.Made.Type:
		return Leave, "a " + found.Type + " is in its place"
	case !o.Origin.Absent() && found.Digest == o.Origin.Digest:
		return Leave, "it was there before it was first declared"
	case found.Digest != o.Made.Digest:
		return Leave, "it was changed by hand"
	}
	return Remove, ""
}

// resolve: a file is replaced in one step, so there is no half of it; what is
// neither was written by somebody else.
func (file) resolve(in store.Intent, found store.State) Resolution { return onDisk(in, found) }

func onDisk(in store.Intent, found store.State) Resolution {
	switch found {
	case in.Target:
		return Done
	case in.Before:
		return Undone
	}
	return Foreign
}

func (file) look(_ context.Context, m Machine, places []string) []Found { return entries(m, places) }

// entries looks at paths.
func entries(m Machine, places []string) []Found {
	all := make([]Found, len(places))
	for i, path := range places {
		e, err := m.Look(path)
		all[i] = Found{Err: err, State: store.State{Type: string(e.Type), Digest: e.Digest, UID: e.UID, GID: e.GID, Mode: e.Mode}}
	}
	return all
}

func (file) apply(_ context.Context, m Machine, changes []Change) []error {
	writes := make([]system.Write, len(changes))
	for i, c := range changes {
		writes[i] = system.Write{
			Path: c.Resource.File.Path, Content: []byte(c.Resource.File.Content), Access: accessOf(c.Target),
		}
	}
	return m.Replace(writes)
}

func accessOf(s store.State) system.Access {
	return system.Access{UID: s.UID, GID: s.GID, Mode: s.Mode}
}

func (file) remove(_ context.Context, m Machine, owned []store.Owned, _ func(string)) []error {
	removals := make([]system.Removal, len(owned))
	for i, o := range owned {
		removals[i] = system.Removal{Path: o.Where, Digest: o.Made.Digest}
	}
	return m.Remove(removals)
}
