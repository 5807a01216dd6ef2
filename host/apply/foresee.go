package apply

import (
	"maps"
	"path"
	"slices"
	"time"

	"mesh/host/declaration"
	"mesh/host/resource"
	"mesh/host/store"
)

// plan decides what a pass does, by what is known before it begins.
func (k *known) plan() Plan {
	removals := k.removals()
	p := Plan{
		Epoch: k.d.Epoch, Generation: k.d.Generation, Digest: k.d.Digest,
		Steps: make([]Step, 0, len(k.d.Resources)+len(removals)),
	}
	for i, s := range removals {
		for _, unit := range k.owesWhenGone(s) {
			k.late[unit] = true
		}
		if s.Verb == VerbRemove && s.Kind == declaration.KindDirectory {
			removals[i].Why += ", and goes if nothing else is in it"
		}
	}
	var late []Step
	f := foresight{k: k, causes: map[string]string{}, stuck: map[string]bool{}, missing: maps.Clone(k.seen.Missing)}
	for _, r := range k.d.Resources {
		s := f.step(k.apply(r, false))
		p.Steps = append(p.Steps, s)
		if resource.Runs(r) && k.late[s.Where] {
			late = append(late, k.restartLate(r, s))
		}
	}
	verbs := letGo(p.Steps, removals)
	for i, s := range removals {
		if s.Kind == resource.KindImage && s.Verb == VerbWait {
			removals[i] = k.unused(s, verbs)
		}
	}
	p.Steps = append(append(p.Steps, removals...), late...)
	return p
}

// restartLate is the step behind the removals of a service or container that has s
// at its place.
func (k *known) restartLate(r declaration.Resource, s Step) Step {
	late := k.apply(r, true)
	late.late = true
	if s.Verb == VerbBlocked || s.Verb == VerbWait {
		return late.with(s.Verb, s.Why)
	}
	return late.with(VerbRestart, "it owes a restart once what it uses is removed")
}

// foresight follows, while a plan is made, what its steps will lead to. When the
// plan is carried out every step is decided once more by what it did lead to.
type foresight struct {
	k        *known
	causes   map[string]string // unit → ID of a step that changes what it restarts on
	stuck    map[string]bool   // IDs of steps that will not work
	missing  map[string]bool   // directories that are not there yet
	packages bool              // a step installs a package, which may bring users
}

func (f *foresight) step(s Step) Step {
	cause, needs := f.causes[s.Where], f.waitsFor(s)
	switch {
	case needs != "":
		s = s.with(VerbWait, "it waits for "+needs+", which will not work")
	case s.Verb == VerbBlocked && s.lacking && f.packages && s.Kind == declaration.KindContainer:
		s = s.with(VerbMake, "once podman has come with a package")
	case s.Verb == VerbBlocked && s.lacking && f.packages:
		s = s.with(VerbMake, "once the user or group it belongs to has come with a package")
	case s.Verb == VerbMake && resource.OnDisk(s.Kind) && f.missing[path.Dir(s.Where)] && !f.packages:
		s = s.with(VerbBlocked, "the directory it lies in is not there: declare it before this")
	case resource.Runs(s.resource) && cause != "" && !f.k.late[s.Where] && (s.Verb == VerbNone || s.Verb == VerbNote):
		s = s.with(VerbRestart, "it restarts when "+cause+" changes")
	}
	if s.Verb == VerbBlocked || s.Verb == VerbWait {
		f.stuck[s.ID] = true
	}
	if s.Kind == declaration.KindDirectory && s.acts() {
		delete(f.missing, s.Where)
	}
	f.packages = f.packages || s.acts() && s.Kind == declaration.KindPackage
	if s.owes() {
		for _, unit := range f.k.dues[s.ID] {
			f.causes[unit] = s.ID
		}
	}
	return s
}

// waitsFor names the resource that has to work before s is tried.
func (f *foresight) waitsFor(s Step) string {
	return needed(s, func(id string) bool { return f.stuck[id] })
}

// needed names the first resource that s waits for, of those that do not work.
func needed(s Step, fails func(id string) bool) string {
	causes := resource.Causes(s.resource)
	i := slices.IndexFunc(causes, fails)
	if i < 0 {
		return ""
	}
	return causes[i]
}

// recovered takes in how a pass closes what a crash left open.
func (k *known) recovered(intents []store.Intent) {
	untimed := scribe{func() time.Time { return time.Time{} }} // a plan tells no times
	for _, in := range intents {
		found, looked := k.seen.Found[in.Key]
		if !looked {
			continue // of a kind this build does not know
		}
		records, _ := untimed.closing(in, found, k.owned[in.Key])
		k.follow(records)
	}
}

// follow takes in what was recorded, as the store does.
func (k *known) follow(records []store.Record) {
	for _, r := range records {
		switch r := r.(type) {
		case store.Owned:
			k.last++
			if r.Order = k.last; k.owned[r.Key] != nil {
				r.Order = k.owned[r.Key].Order
			}
			k.owned[r.Key] = &r
		case store.Forgotten:
			delete(k.owned, r.Key)
		case store.Owed:
			same := func(o store.Owed) bool { return o.Because == r.Because }
			if !slices.ContainsFunc(k.debts[r.Unit], same) {
				k.debts[r.Unit] = append(k.debts[r.Unit], r)
			}
		case store.Settled:
			delete(k.debts, r.Unit)
		}
	}
}
