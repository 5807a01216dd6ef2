package resource

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"mesh/host/declaration"
	"mesh/host/store"
	"mesh/host/system"
)

// Found is what looking at one place gave.
type Found struct {
	State store.State
	Err   error    // it cannot be looked at; State means nothing
	Lacks string   // why nothing can be made there yet, though it may be once a package has come; empty when it can
	Users []string // image: names of the containers that are made of it
}

// Change is one place that is to be brought to a state.
type Change struct {
	Resource declaration.Resource
	Before   store.State  // what is there
	Target   store.State  // what shall be there
	Restart  bool         // service: start it anew even if it runs
	Reload   bool         // service: make it read its configuration again
	Made     store.State  // what the host made there before; zero when it owns nothing
	Note     func(string) // told what is being done
}

// Fate is what becomes of a place that is no longer declared.
type Fate int

// The fates.
const (
	Remove Fate = iota // it is still what the host made: take it away
	Gone               // it is away already
	Leave              // it is not the host's to take away
)

// Resolution is what looking tells about an intent that a crash left open.
type Resolution int

// The resolutions.
const (
	Done    Resolution = iota // it happened
	Undone                    // it did not happen
	Partly                    // a part of it happened, and what is there is the host's
	Foreign                   // what is there is neither what was nor what shall be
)

// kind is what is known of one kind of place. The first three are pure.
type kind interface {
	differs(target, found store.State) string
	fate(o store.Owned, found store.State) (Fate, string)
	resolve(in store.Intent, found store.State) Resolution

	look(ctx context.Context, m Machine, places []string) []Found
	remove(ctx context.Context, m Machine, owned []store.Owned, note func(string)) []error
}

// maker is a kind that is declared, and so made; target is pure.
type maker interface {
	kind
	target(r declaration.Resource, accounts system.Accounts) (store.State, error)
	apply(ctx context.Context, m Machine, changes []Change) []error
}

var makers = map[declaration.Kind]maker{
	declaration.KindDirectory: directory{},
	declaration.KindFile:      file{},
	declaration.KindPackage:   pkg{},
	declaration.KindService:   service{},
	declaration.KindContainer: container{},
}

// of is the kind that k names; nil when this build does not know it.
func of(k declaration.Kind) kind {
	if k == KindImage {
		return image{}
	}
	if m := makers[k]; m != nil {
		return m
	}
	return nil
}

// Known says whether this build knows places of kind k. The functions below must
// not be called for others, which a newer host may have recorded.
func Known(k declaration.Kind) bool { return of(k) != nil }

// OnDisk says whether resources of kind k are files or directories: acts on
// them are cheap, and many may share one barrier.
func OnDisk(k declaration.Kind) bool {
	return k == declaration.KindDirectory || k == declaration.KindFile
}

// Paths lists what the host writes to make a place what it is: the last is the one
// that makes it so, those before it are directories it may make on the way. None
// where others do the writing.
func Paths(k store.Key) []string {
	switch {
	case OnDisk(k.Kind):
		return []string{k.Where}
	case k.Kind == declaration.KindContainer:
		return containerPaths(k.Where)
	}
	return nil
}

// Runs says whether r is something that shall run: a service or a container.
func Runs(r declaration.Resource) bool {
	return r.Container != nil || r.Service != nil && r.Service.State != "stopped" && r.Service.State != declaration.StateMasked
}

// Causes lists the IDs of what r is started anew for when it changes, or reads its
// configuration again.
func Causes(r declaration.Resource) []string {
	switch {
	case r.Container != nil:
		return r.Container.RestartOn
	case r.Service != nil:
		return slices.Concat(r.Service.RestartOn, r.Service.ReloadOn)
	}
	return nil
}

// KeyOf is the place of r.
func KeyOf(r declaration.Resource) store.Key {
	return store.Key{Kind: r.Kind(), Where: r.Where()}
}

// Target is the state r asks for. It fails when r names a user or group the
// machine does not have.
func Target(r declaration.Resource, accounts system.Accounts) (store.State, error) {
	return makers[r.Kind()].target(r, accounts)
}

// Differs says in a few words how found is not what target asks for; empty when
// it is. What target leaves open does not differ.
func Differs(k declaration.Kind, target, found store.State) string {
	return of(k).differs(target, found)
}

// FateOf says what is to become of o when it is no longer declared, and for
// Leave why.
func FateOf(o store.Owned, found store.State) (Fate, string) {
	return of(o.Kind).fate(o, found)
}

// Resolve says what became of in.
func Resolve(in store.Intent, found store.State) Resolution {
	return of(in.Kind).resolve(in, found)
}

// Offered is the newest version that the source of a package's release has, as
// far as is known; empty when r follows no release, or nothing is known.
func Offered(ctx context.Context, m Machine, r declaration.Resource) (string, error) {
	if r.Package == nil || r.Package.Release == "" {
		return "", nil
	}
	return m.Newest(ctx, r.Package.Name, r.Package.Release)
}

// Look says what is at each place.
func Look(ctx context.Context, m Machine, keys []store.Key) map[store.Key]Found {
	seen := make(map[store.Key]Found, len(keys))
	look(ctx, m, keys, func(key store.Key, found Found) bool {
		seen[key] = found
		return true
	})
	return seen
}

// Same says whether there is at each place what was found there before. What cannot
// be looked at is not the same. It looks no further than it needs to.
func Same(ctx context.Context, m Machine, keys []store.Key, before map[store.Key]Found) bool {
	same := true
	look(ctx, m, keys, func(key store.Key, found Found) bool {
		was, known := before[key]
		same = known && was.Err == nil && found.Err == nil && was.State == found.State
		return same
	})
	return same
}

// look says what is at each place, to whoever wants to know more.
func look(ctx context.Context, m Machine, keys []store.Key, saw func(store.Key, Found) (more bool)) {
	byKind := map[declaration.Kind][]string{}
	for _, key := range keys {
		byKind[key.Kind] = append(byKind[key.Kind], key.Where)
	}
	for k, places := range byKind {
		atOnce := len(places) // a package or a service costs a command, however many there are
		if OnDisk(k) {
			atOnce = lookedAtOnce
		}
		for some := range slices.Chunk(places, atOnce) {
			for i, found := range of(k).look(ctx, m, some) {
				if !saw(store.Key{Kind: k, Where: some[i]}, found) {
					return
				}
			}
		}
	}
}

// lookedAtOnce bounds what is known twice of files, while it is sorted in.
const lookedAtOnce = 1024

// Apply brings places of one kind to their targets. Error i says what became of
// change i; after an error the place may have been changed in part.
func Apply(ctx context.Context, m Machine, k declaration.Kind, changes []Change) []error {
	return makers[k].apply(ctx, m, changes)
}

// TakeAway undoes at places of one kind what made the host their owner. It
// looks once more before it removes. Errors match system.ErrChanged, ErrNotEmpty,
// ErrMount or ErrInUse when the place is not to be removed after all.
func TakeAway(ctx context.Context, m Machine, k declaration.Kind, owned []store.Owned, note func(string)) []error {
	return of(k).remove(ctx, m, owned, note)
}

// everyone is for what can only be looked at, or fails, all at once.
func everyone(n int, err error) []Found {
	all := make([]Found, n)
	for i := range all {
		all[i].Err = err
	}
	return all
}

// access resolves the owner of a file or directory.
func access(owner, group, mode, otherwise string, accounts system.Accounts) (system.Access, error) {
	a := system.Access{}
	var known bool
	if a.UID, known = accounts.Users[or(owner, "root")]; !known {
		return a, fmt.Errorf("user %q does not exist on this machine: is the package that brings it declared before this?", owner)
	}
	if a.GID, known = accounts.Groups[or(group, "root")]; !known {
		return a, fmt.Errorf("group %q does not exist on this machine: is the package that brings it declared before this?", group)
	}
	bits, err := strconv.ParseUint(or(mode, otherwise), 8, 32)
	if err != nil {
		return a, fmt.Errorf("mode %q is not octal digits", mode)
	}
	a.Mode = uint32(bits)
	return a, nil
}

func or(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// ownership says how the access of found is not target's.
func ownership(target, found store.State) string {
	switch {
	case found.UID != target.UID || found.GID != target.GID:
		return fmt.Sprintf("its owner is %d:%d instead of %d:%d", found.UID, found.GID, target.UID, target.GID)
	case found.Mode != target.Mode:
		return fmt.Sprintf("its mode is %04o instead of %04o", found.Mode, target.Mode)
	}
	return ""
}
