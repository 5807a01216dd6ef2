package apply

import (
	"fmt"
	"slices"

	"mesh/host/declaration"
	"mesh/host/resource"
	"mesh/host/store"
)

// byPolicy decides about a file that is not simply put right, and about what
// cannot be made because its content has not come yet.
func (k *known) byPolicy(r declaration.Resource, differs string, found store.State, owned bool) (Verb, string, bool) {
	if f := r.File; f != nil {
		switch {
		case f.Policy == declaration.PolicyReport && differs == "":
			return VerbNone, "", true
		case f.Policy == declaration.PolicyReport:
			return VerbReport, differs + ", which is reported and left so", true
		case f.Policy == declaration.PolicyOnce && owned:
			return VerbNone, "", true
		case f.Policy == declaration.PolicyOnce && !found.Absent():
			return VerbNote, "it is there already, and is its users'", true
		}
	}
	if b := r.Blob(); b != nil && differs != "" && !k.seen.Contents[b.Digest] {
		return VerbWait, fmt.Sprintf("it waits for its content, %d bytes of digest %.12s, which has not come yet", b.Bytes, b.Digest), true
	}
	return "", "", false
}

// onlyReloads says whether every debt of a service can be paid by a reload.
func onlyReloads(s *declaration.Service, debts []store.Owed) bool {
	return s != nil && !slices.ContainsFunc(debts, func(o store.Owed) bool { return !slices.Contains(s.ReloadOn, o.ID) })
}

// standIn decides about a version that is known not to work: it is not tried
// again. Where another is to be in its place, the step is about that one.
func (k *known) standIn(r declaration.Resource, b *basis) (Verb, string, bool) {
	if r.Package == nil {
		return "", "", false
	}
	known := k.seen.Broken[r.Package.Name]
	i := slices.IndexFunc(known, func(v resource.Broken) bool { return v.Version == b.target.Version })
	if i < 0 {
		return "", "", false
	}
	broken := known[i]
	if broken.Instead == nil || broken.Instead.Version == b.before.Version {
		return VerbBlocked, broken.Why + "; it is not tried again until another version is declared", true
	}
	b.instead, b.target.Version = broken.Instead, broken.Instead.Version
	return VerbChange, fmt.Sprintf("%s; version %s is installed in its place", broken.Why, broken.Instead.Version), true
}
