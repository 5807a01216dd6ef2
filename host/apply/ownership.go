package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mesh/host/declaration"
	"mesh/host/resource"
	"mesh/host/store"
	"mesh/host/system"
)

// Orphan is a place the host had its hand in and would not take away.
type Orphan struct {
	ID       string           `json:"id"`
	Kind     declaration.Kind `json:"kind"`
	Where    string           `json:"where"`
	Declared bool             `json:"declared"`      // by the declaration that is followed
	Why      string           `json:"why"`           // it is not the host's to take away
	Adopts   bool             `json:"adopts"`        // whether `adopt` takes it
	But      string           `json:"but,omitempty"` // why not
	Since    time.Time        `json:"since"`         // of the record that says so

	record store.Owned // as adopting makes it, but for its time
}

func (o Orphan) key() store.Key { return store.Key{Kind: o.Kind, Where: o.Where} }

// Orphans lists what is on this machine because of the host, or is declared, and
// would stay if it were not declared any more: what stood as declared when the
// host first saw it, what is of before a loss of the record, and what was left
// behind. d is what is followed; nil for nothing. It looks, and touches nothing.
func Orphans(ctx context.Context, m resource.Machine, record store.View, d *Desired) ([]Orphan, error) {
	declared := map[store.Key]bool{}
	if d != nil {
		for _, r := range d.Resources {
			declared[resource.KeyOf(r)] = true
		}
	}
	var all []Orphan
	var keys []store.Key
	add := func(o Orphan) {
		if resource.Known(o.Kind) {
			o.Declared = declared[o.key()]
			all, keys = append(all, o), append(keys, o.key())
		}
	}
	for _, o := range record.Owned {
		why := ""
		switch {
		case o.Doubtful:
			why = "the record of it is older than a loss of the store"
		case !o.Origin.Absent():
			why = "it was there before it was first declared"
		}
		if why != "" {
			add(Orphan{ID: o.ID, Kind: o.Kind, Where: o.Where, Why: why, Since: o.Time, record: *o})
		}
	}
	for _, f := range record.Left {
		add(Orphan{ID: f.ID, Kind: f.Kind, Where: f.Where, Why: "it was left behind: " + f.Left, Since: f.Time,
			record: store.Owned{Key: f.Key, ID: f.ID, Epoch: f.Epoch, Generation: f.Generation}})
	}
	seen := resource.Look(ctx, m, keys)
	open := opened(record)
	for i := range all {
		all[i].judge(seen[all[i].key()], open[all[i].key()])
	}
	return all, nil
}

// opened are the places at which something was begun.
func opened(record store.View) map[store.Key]bool {
	open := map[store.Key]bool{}
	for _, in := range record.Intents {
		open[in.Key] = true
	}
	return open
}

// judge says whether what is found can be adopted: the very thing of that kind,
// as the record has it, if the record has it.
func (o *Orphan) judge(found resource.Found, begun bool) {
	made := o.record.Made
	switch {
	case begun:
		o.But = "something was begun there; it is known after the next pass"
	case found.Err != nil:
		o.But = line(found.Err.Error())
	case found.State.Absent():
		o.But = "nothing is there"
	case found.State.Type != typeOf(o.Kind):
		o.But = fmt.Sprintf("a %s is in its place", found.State.Type)
	case !made.Absent() && resource.Differs(o.Kind, made, found.State) != "":
		o.But = "it is not as it was: " + resource.Differs(o.Kind, made, found.State)
	default:
		o.Adopts = true
		o.record.Made, o.record.Origin = found.State, store.State{}
	}
}

// typeOf is what is at a place of kind k when it is well.
func typeOf(k declaration.Kind) string {
	switch k {
	case declaration.KindFile:
		return string(system.TypeFile)
	case declaration.KindDirectory:
		return string(system.TypeDirectory)
	}
	return string(k)
}

// Adopt makes the host the owner of places among its orphans, as if it had made
// them: they are taken away once they are not declared any more. Nothing is
// touched, and nothing below or beside a place is adopted with it. Where one
// cannot be, none is, and the error names every one.
func (a *Applier) Adopt(ctx context.Context, d *Desired, places []string) ([]Orphan, error) {
	orphans, err := Orphans(ctx, a.machine, a.store.View(), d)
	if err != nil {
		return nil, err
	}
	var taken []Orphan
	var records []store.Record
	var errs []error
	for _, where := range places {
		o, why := pick(orphans, a.store.View(), where)
		if why != "" {
			errs = append(errs, fmt.Errorf("adopt %s: %s", where, why))
			continue
		}
		o.record.Time = a.now().UTC()
		taken, records = append(taken, o), append(records, o.record)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return taken, a.store.Append(records...)
}

// pick finds the orphan at where, or says why there is none to adopt.
func pick(orphans []Orphan, record store.View, where string) (Orphan, string) {
	for _, o := range orphans {
		switch {
		case o.Where == where && o.Adopts:
			return o, ""
		case o.Where == where:
			return o, o.But
		}
	}
	for _, o := range record.Owned {
		if o.Where == where {
			return Orphan{}, "the host owns it already"
		}
	}
	return Orphan{}, "the host has no record of it; it takes what is declared for this machine, after a pass, and what it left behind: see `mesh-host orphans`"
}

// Release ends the ownership of places. What is there stays, and is nobody's
// until it is declared. Where one is not owned, nothing is released, and the
// error names every one.
func (a *Applier) Release(places []string) ([]store.Key, error) {
	view := a.store.View()
	open := opened(view)
	var keys []store.Key
	var records []store.Record
	var errs []error
	for _, where := range places {
		owned := false
		for _, o := range view.Owned {
			if o.Where != where {
				continue
			}
			owned = true
			if open[o.Key] {
				errs = append(errs, fmt.Errorf("release %s: something was begun there; try again after the next pass", where))
				continue
			}
			keys = append(keys, o.Key)
			records = append(records, store.Forgotten{
				Key: o.Key, ID: o.ID, Epoch: o.Epoch, Generation: o.Generation, Left: "it was released by hand", Time: a.now().UTC(),
			})
		}
		if !owned {
			errs = append(errs, fmt.Errorf("release %s: the host does not own it", where))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return keys, a.store.Append(records...)
}
