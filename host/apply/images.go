package apply

import (
	"fmt"
	"slices"
	"strings"

	"mesh/host/declaration"
	"mesh/host/resource"
	"mesh/host/store"
)

// fetch is the intent to fetch the image of the container that s makes or changes;
// false where there is nothing to fetch. It is announced with that of the container
// itself: once the image is there, it is the host's to remove.
func (p *pass) fetch(s Step) (store.Intent, bool) {
	key, isContainer := resource.ImageOf(s.resource)
	found := p.seen.Found[key]
	if !isContainer || !s.acts() || found.Err != nil || !found.State.Absent() && !resource.Fetching(found.State) {
		return store.Intent{}, false
	}
	return store.Intent{
		Key: key, ID: s.ID, Epoch: p.d.Epoch, Generation: p.d.Generation, Act: store.ActApply,
		Before: found.State, Target: resource.Fetched(), Time: p.now().UTC(),
	}, true
}

// fetched makes the records of what came of the fetch for s, if one was announced.
func (p *pass) fetched(s Step, intents map[store.Key]store.Intent, seen map[store.Key]resource.Found) []store.Record {
	key, _ := resource.ImageOf(s.resource)
	in, announced := intents[key]
	if !announced {
		return nil
	}
	records, _ := p.close(in, seen[key], p.owned[key])
	return records
}

// letGo is what a plan does with each container: by the time an image's turn has
// come, it is done.
func letGo(steps, removals []Step) map[store.Key]Verb {
	verbs := map[store.Key]Verb{}
	for _, s := range slices.Concat(steps, removals) {
		if s.Kind == declaration.KindContainer && (s.acts() || s.Verb == VerbForget || s.Verb == VerbLeave) {
			verbs[s.key()] = s.Verb
		}
	}
	return verbs
}

// unused decides about an image that no declared container is of. One that a
// container of the host's is still of waits; one that somebody else's is of is given
// up, as what somebody else put into a directory is. verbs are what is about to be
// done with containers.
func (k *known) unused(s Step, verbs map[store.Key]Verb) Step {
	found := k.seen.Found[s.key()]
	if resource.Fetching(found.State) {
		return s.with(VerbWait, "its fetch goes on, and it is removed once it is there")
	}
	_, digest, _ := strings.Cut(s.Where, "@")
	another := map[store.Key]bool{} // containers that are of the same under another name, which podman knows how to tell
	for _, r := range k.d.Resources {
		if r.Container != nil && strings.HasSuffix(r.Container.Image, "@"+digest) {
			another[resource.KeyOf(r)] = true
		}
	}
	var users []store.Key
	for key, o := range k.owned {
		if key.Kind == declaration.KindContainer && o.Made.Image == digest && verbs[key] == "" && !another[key] {
			users = append(users, key)
		}
	}
	for _, name := range found.Users {
		key := store.Key{Kind: declaration.KindContainer, Where: strings.TrimPrefix(name, declaration.ContainerPrefix)}
		_, ours := k.owned[key]
		switch verb := verbs[key]; {
		case !strings.HasPrefix(name, declaration.ContainerPrefix), !ours, verb == VerbLeave:
			return s.with(VerbLeave, fmt.Sprintf("container %s, which is not the host's, is made of it", name))
		case verb == "" && !another[key]:
			users = append(users, key)
		}
	}
	if len(users) > 0 {
		first := slices.MinFunc(users, func(a, b store.Key) int { return strings.Compare(a.Where, b.Where) })
		return s.with(VerbWait, fmt.Sprintf("%s is still made of it", first))
	}
	return s.with(VerbRemove, "no container is made of it any more")
}

// place is where the removal s stands in the order of ownership. An image stands
// right before the first container that goes, and so is removed behind them all,
// and before podman.
func (s Step) place(first uint64) uint64 {
	if s.Kind == resource.KindImage {
		return min(s.owned.Order, first-1)
	}
	return s.owned.Order
}
