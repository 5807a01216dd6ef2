package apply

import (
	"context"
	"fmt"
	"time"

	"mesh/host/declaration"
	"mesh/host/resource"
	"mesh/host/store"
)

// Recover resolves every intent that a crash or a failure left open, by looking
// at what is there, and returns one line for each. Reconcile does it too;
// calling it first is for whoever wants to say what was found.
func (a *Applier) Recover(ctx context.Context) ([]string, error) {
	var keys []store.Key
	intents := a.store.View().Intents
	for _, in := range intents {
		if resource.Known(in.Kind) {
			keys = append(keys, in.Key)
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	seen := resource.Look(ctx, a.machine, keys)
	owned := map[store.Key]*store.Owned{}
	for _, o := range a.store.View().Owned {
		owned[o.Key] = o
	}
	var notes []string
	var records []store.Record
	for _, in := range intents {
		if found, ok := seen[in.Key]; ok {
			closing, note := a.close(in, found, owned[in.Key])
			records = append(records, closing...)
			notes = append(notes, note)
			a.log.Info("resolved what was left open", "resource", in.ID, "what", note)
		}
	}
	if err := a.store.Append(records...); err != nil {
		return notes, fmt.Errorf("record what was left open: %w", err)
	}
	return notes, nil
}

// close makes the records that close an intent, by what is found, and says what
// was found. owned is the record of the place; nil for none. No records mean that
// the intent stays open.
func (a *Applier) close(in store.Intent, found resource.Found, owned *store.Owned) ([]store.Record, string) {
	for _, p := range resource.Paths(in.Key) {
		if found.Err == nil {
			found.Err = a.machine.Settle(p) // seen is not yet durable
		}
	}
	return a.closing(in, found, owned)
}

// scribe makes records. It is pure.
type scribe struct{ now func() time.Time }

// closing is close for what is durable.
func (w scribe) closing(in store.Intent, found resource.Found, owned *store.Owned) ([]store.Record, string) {
	if found.Err != nil {
		return nil, fmt.Sprintf("%s: it is not known whether it was done: %s", in.Key, line(found.Err.Error()))
	}
	what := fmt.Sprintf("%s: %s, announced in generation %d", in.Key, in.Act, in.Generation)
	switch resource.Resolve(in, found.State) {
	case resource.Done:
		return w.done(in, found.State), what + ", was done"
	case resource.Partly:
		if in.Act == store.ActRemove {
			return []store.Record{w.rest(in, found.State, owned)}, what + ", was done in part"
		}
		return []store.Record{w.own(in, found.State)}, what + ", was done in part"
	case resource.Foreign:
		reason := "what is there is neither what was nor what was to be"
		if owned == nil && in.Act == store.ActApply {
			return []store.Record{w.forgotten(in, reason)}, what + ": " + reason
		}
		return []store.Record{store.Dropped{Key: in.Key, Reason: reason}}, what + ": " + reason
	}
	return []store.Record{store.Dropped{Key: in.Key, Reason: "not done"}}, what + ", was not done"
}

// done makes the records of an act that worked. Debts come first: if only a
// part of the records reaches the disk, the intent is still open and they come
// again.
func (w scribe) done(in store.Intent, found store.State) []store.Record {
	records := w.owed(in)
	switch {
	case in.Act == store.ActRemove:
		return append(records, w.forgotten(in, ""))
	case in.Kind == declaration.KindService:
		switch {
		case in.Act == store.ActRestart:
			records = append(records, w.settled(in.Where, "restarted"))
		case in.Act == store.ActReload:
			records = append(records, w.settled(in.Where, "reloaded"))
		case resource.Running(found) && !resource.Running(in.Before):
			records = append(records, w.settled(in.Where, "started"))
		}
	case in.Kind == declaration.KindContainer && anew(in.Before, found):
		records = append(records, w.settled(in.Where, "started anew"))
	}
	return append(records, w.own(in, found))
}

// anew says whether a container was started since it was seen before, be it by a
// reboot: what it owed a restart for lasted already, and has been read.
func anew(before, found store.State) bool {
	return resource.Running(found) && found.Invocation != before.Invocation
}

// owed makes the debts of a change.
func (w scribe) owed(in store.Intent) (debts []store.Record) {
	for _, unit := range in.Owes {
		debts = append(debts, store.Owed{
			Unit: unit, ID: in.ID, Because: in.Key, Epoch: in.Epoch, Generation: in.Generation, Time: w.now().UTC(),
		})
	}
	return debts
}

func (w scribe) own(in store.Intent, found store.State) store.Owned {
	return store.Owned{
		Key: in.Key, ID: in.ID, Epoch: in.Epoch, Generation: in.Generation,
		Origin: in.Origin, Made: found, Restarts: in.Owes, Time: w.now().UTC(),
	}
}

// rest makes the record of what a removal left that was done in part: the place is
// the host's still, and what it wrote there is what is found, since a record that
// says of what lastingly went that it is there is wrong. What runs comes and goes by
// itself, and is as it was made to be. A doubtful record stays what it is: one that
// is written anew is doubted no more.
func (w scribe) rest(in store.Intent, found store.State, owned *store.Owned) store.Record {
	if owned == nil || owned.Doubtful {
		return store.Dropped{Key: in.Key, Reason: "done in part"}
	}
	left := *owned
	left.Made.Digest, left.Time = found.Digest, w.now().UTC()
	return left
}

func (w scribe) forgotten(in store.Intent, left string) store.Forgotten {
	return store.Forgotten{
		Key: in.Key, ID: in.ID, Epoch: in.Epoch, Generation: in.Generation, Left: left, Time: w.now().UTC(),
	}
}

func (w scribe) settled(unit, reason string) store.Settled {
	return store.Settled{Unit: unit, Reason: reason, Time: w.now().UTC()}
}
