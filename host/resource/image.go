package resource

import (
	"context"
	"errors"

	"mesh/host/declaration"
	"mesh/host/store"
	"mesh/host/system"
)

// KindImage is the kind of an image of containers, which is a place by its name
// with its digest. Nobody declares one: a container brings its own.
const KindImage declaration.Kind = "image"

const (
	typeImage = "image"
	fetching  = "fetching" // Status of an image that is not there yet
	unseen    = "unseen"   // Status where there is no podman to ask
)

// image is what the host fetched for a container. It goes when no container is of
// it any more; one that was there before is never the host's. A fetch that goes on
// when the host does not wait for it any longer is the host's, too.
type image struct{}

// ImageOf is the place of the image that r is made of; false when r is no container.
func ImageOf(r declaration.Resource) (store.Key, bool) {
	if r.Container == nil {
		return store.Key{}, false
	}
	return store.Key{Kind: KindImage, Where: r.Container.Image}, true
}

// Fetched is the state of an image that was fetched.
func Fetched() store.State { return store.State{Type: typeImage} }

// Fetching says whether an image is about to be there.
func Fetching(s store.State) bool { return s.Status == fetching }

func (image) differs(_, found store.State) string {
	switch {
	case found.Absent():
		return "it is not there"
	case found.Status != "":
		return "it is " + found.Status
	}
	return ""
}

func (image) fate(_ store.Owned, found store.State) (Fate, string) {
	switch {
	case found.Absent():
		return Gone, ""
	case found.Status == unseen:
		return Leave, "there is no podman that would remove it"
	}
	return Remove, ""
}

// resolve: an image that was not there, and is there or on its way, was fetched.
func (image) resolve(in store.Intent, found store.State) Resolution {
	switch gone := found.Absent(); {
	case in.Act == store.ActRemove && gone:
		return Done
	case in.Act == store.ActRemove, gone:
		return Undone
	case found.Status != "":
		return Partly
	}
	return Done
}

func (image) look(ctx context.Context, m Machine, places []string) []Found {
	all := make([]Found, len(places))
	there, err := m.Images(ctx, places)
	switch {
	case errors.Is(err, system.ErrNoContainers):
		for i := range all {
			all[i] = Found{State: store.State{Type: typeImage, Status: unseen}, Lacks: err.Error()}
		}
		return all
	case err != nil:
		return everyone(len(places), err)
	}
	var fetches []string // of what is not there
	for i, name := range places {
		if users, ok := there[name]; ok {
			all[i] = Found{State: Fetched(), Users: users}
			continue
		}
		fetches = append(fetches, system.FetchUnit(name))
	}
	units, err := m.Units(ctx, fetches)
	for i, name := range places {
		if all[i].State.Absent() {
			all[i].Err = err
		}
		if active := units[system.FetchUnit(name)].Active; all[i].State.Absent() && (active == "active" || active == "activating") {
			all[i].State = store.State{Type: typeImage, Status: fetching}
		}
	}
	return all
}

// remove leaves it to podman to see what is made of an image: it removes none of
// which something is.
func (image) remove(ctx context.Context, m Machine, owned []store.Owned, _ func(string)) []error {
	errs := make([]error, len(owned))
	for i, o := range owned {
		errs[i] = m.RemoveImage(ctx, o.Where)
	}
	return errs
}
