package resource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"mesh/host/declaration"
	"mesh/host/store"
	"mesh/host/system"
)

// Files is what files ask of the machine.
type Files interface {
	Look(path string) (system.Entry, error)
	LookAll(paths []string) []system.Looked
	Replace(writes []system.Write) []error
	Remove(removals []system.Removal) []error
	Settle(path string) error
	Read(path string) ([]byte, error)
}

type file struct{}

func (file) target(r declaration.Resource, accounts system.Accounts) (store.State, error) {
	a, err := access(r.File.Owner, r.File.Group, r.File.Mode, "0644", accounts)
	return store.State{
		Type: string(system.TypeFile), Digest: contentOf(r.File), UID: a.UID, GID: a.GID, Mode: a.Mode,
	}, err
}

// contentOf is the digest of what a file shall hold.
func contentOf(f *declaration.File) string {
	if f.Blob != nil {
		return f.Blob.Digest
	}
	h, part := sha256.New(), make([]byte, 1<<10) // not a copy of all of it
	for rest := f.Content; rest != ""; {
		n := copy(part, rest)
		h.Write(part[:n])
		rest = rest[n:]
	}
	return hex.EncodeToString(h.Sum(nil))
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
	for i, e := range m.LookAll(places) {
		all[i] = Found{Err: e.Err, State: store.State{Type: string(e.Type), Digest: e.Digest, UID: e.UID, GID: e.GID, Mode: e.Mode}}
	}
	return all
}

// fetchedAtOnce bounds how much content that is not in the declaration is in
// memory at once, but for one file, in bytes.
const fetchedAtOnce = 8 << 20

// apply writes files together.
func (file) apply(ctx context.Context, m Machine, changes []Change) []error {
	errs := make([]error, len(changes))
	var writes []system.Write
	var which []int
	fetched := 0
	write := func() {
		for n, err := range m.Replace(writes) {
			errs[which[n]] = err
		}
		writes, which, fetched = nil, nil, 0
	}
	for i, c := range changes {
		content := []byte(c.Resource.File.Content)
		if blob := c.Resource.File.Blob; blob != nil {
			if content, errs[i] = m.ReadContent(blob.Digest); errs[i] != nil {
				continue
			}
			fetched += len(content)
		}
		writes, which = append(writes, writeOf(ctx, m, c, content)), append(which, i)
		if fetched >= fetchedAtOnce {
			write()
		}
	}
	write()
	return errs
}

func writeOf(ctx context.Context, m Machine, c Change, content []byte) system.Write {
	w := system.Write{Path: c.Resource.File.Path, Content: content, Access: accessOf(c.Target)}
	if argv := c.Resource.File.Validate; argv != nil {
		w.Check = func(candidate string) error {
			argv := slices.Clone(argv)
			argv[slices.Index(argv, declaration.Candidate)] = candidate
			if err := m.Try(ctx, argv); err != nil {
				return fmt.Errorf("the new file is refused and the old one stands: %w", err)
			}
			return nil
		}
	}
	return w
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
