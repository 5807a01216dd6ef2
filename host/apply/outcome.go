package apply

import (
	"context"
	"errors"
	"slices"
	"strings"

	"mesh/host/declaration"
	"mesh/host/resource"
	"mesh/host/store"
	"mesh/host/system"
)

// finish records what came of steps and reports it. An act on a file or
// directory that worked is what it was told to be; systemd and dpkg have a mind
// of their own and are looked at again, and so is whatever failed.
func (p *pass) finish(ctx context.Context, steps []Step, intents map[store.Key]store.Intent, errs map[store.Key]error) {
	var keys []store.Key
	for _, s := range steps {
		if s.acts() && (errs[s.key()] != nil || !resource.OnDisk(s.Kind)) {
			keys = append(keys, s.key())
		}
		if image, ok := resource.ImageOf(s.resource); ok && s.acts() {
			keys = append(keys, image)
		}
	}
	seen := resource.Look(ctx, p.machine, keys)
	var records []store.Record
	results := make([]declaration.Result, len(steps))
	for i, s := range steps {
		var follows []store.Record
		follows, results[i].Status, results[i].Reason = p.came(s, intents[s.key()], seen[s.key()], errs[s.key()])
		records = append(append(records, p.fetched(s, intents, seen)...), follows...)
	}
	err := p.record(records)
	for i, r := range results {
		if err != nil && steps[i].acts() && r.Status != declaration.StatusFailed {
			r.Status, r.Reason = declaration.StatusFailed, "it was done, and could not be recorded: "+err.Error()
		}
		p.report(steps[i], r.Status, r.Reason)
	}
}

// came says what became of one step, and which records follow.
func (p *pass) came(s Step, in store.Intent, found resource.Found, err error) ([]store.Record, declaration.Status, string) {
	switch s.Verb {
	case VerbNone:
		return nil, declaration.StatusInSync, ""
	case VerbNote:
		return p.note(s), declaration.StatusInSync, ""
	case VerbBlocked:
		return nil, declaration.StatusFailed, s.Why
	case VerbWait:
		return nil, declaration.StatusWaiting, s.Why
	case VerbForget:
		return p.done(p.intent(s), s.before), declaration.StatusRemoved, s.Why
	case VerbLeave:
		return p.giveUp(s, s.Why), declaration.StatusKept, s.Why
	case VerbRefuse, VerbReport:
		return nil, declaration.StatusKept, s.Why
	case VerbRemove:
		return p.removed(s, in, found, err)
	}
	return p.applied(s, in, found, err)
}

// note records a resource that is as declared without having been touched. One
// that is not as it was made has changed all the same, for those that restart.
func (p *pass) note(s Step) []store.Record {
	in := p.intent(s)
	var records []store.Record
	if s.owes() {
		records = p.owed(in)
	}
	return append(records, p.own(in, s.before))
}

func (p *pass) giveUp(s Step, left string) []store.Record {
	return []store.Record{p.forgotten(p.intent(s), left)}
}

func (p *pass) applied(s Step, in store.Intent, found resource.Found, err error) ([]store.Record, declaration.Status, string) {
	if resource.OnDisk(s.Kind) && err == nil {
		return p.done(in, s.target), declaration.StatusChanged, s.Why
	}
	if err == nil && found.Err == nil && in.Act == store.ActReload { // nothing shows that it happened
		return p.done(in, found.State), declaration.StatusChanged, s.Why
	}
	if err == nil && found.Err == nil && resource.Resolve(in, found.State) == resource.Done {
		return p.done(in, found.State), declaration.StatusChanged, s.Why
	}
	records, _ := p.close(in, found, s.owned)
	why := failure(s, found, err)
	if s.instead != nil {
		why = s.Why + ", which failed: " + why
	}
	return records, declaration.StatusFailed, why
}

// failure says why a step did not work.
func failure(s Step, found resource.Found, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case found.Err != nil:
		return "it cannot be seen whether it worked: " + found.Err.Error()
	}
	return "it was done, and yet " + resource.Differs(s.Kind, s.target, found.State)
}

func (p *pass) removed(s Step, in store.Intent, found resource.Found, err error) ([]store.Record, declaration.Status, string) {
	dropped := []store.Record{store.Dropped{Key: in.Key, Reason: "not done"}}
	switch {
	case errors.Is(err, system.ErrNotEmpty) && p.ownsBelow(s.Where):
		return dropped, declaration.StatusWaiting, "something in it is still to be removed"
	case errors.Is(err, system.ErrMount):
		return dropped, declaration.StatusKept, system.ErrMount.Error()
	case errors.Is(err, system.ErrNotEmpty):
		return p.giveUp(s, system.ErrNotEmpty.Error()), declaration.StatusKept, system.ErrNotEmpty.Error()
	case errors.Is(err, system.ErrChanged):
		return p.giveUp(s, system.ErrChanged.Error()), declaration.StatusKept, system.ErrChanged.Error()
	case errors.Is(err, system.ErrInUse):
		return p.giveUp(s, err.Error()), declaration.StatusKept, err.Error()
	case err == nil && resource.OnDisk(s.Kind),
		err == nil && found.Err == nil && resource.Resolve(in, found.State) == resource.Done:
		return p.done(in, found.State), declaration.StatusRemoved, s.Why
	case err == nil:
		err = errors.New("it was removed, and yet it is there")
	}
	records, _ := p.close(in, found, s.owned)
	return records, declaration.StatusFailed, err.Error()
}

// ownsBelow says whether something in the directory is owned.
func (p *pass) ownsBelow(directory string) bool {
	for key := range p.owned {
		if resource.OnDisk(key.Kind) && strings.HasPrefix(key.Where, directory+"/") {
			return true
		}
	}
	return false
}

func (p *pass) report(s Step, status declaration.Status, reason string) {
	reason = line(reason)
	result := declaration.Result{ID: s.ID, Kind: s.Kind, Where: s.Where, Status: status, Reason: reason}
	switch {
	case !s.late:
		p.results = append(p.results, result)
	case status == declaration.StatusInSync:
		return // it was reported at its place
	default:
		p.results[slices.IndexFunc(p.results, func(r declaration.Result) bool { return r.Kind == s.Kind && r.Where == s.Where })] = result
	}
	switch {
	case removes(s):
	case status == declaration.StatusFailed, status == declaration.StatusWaiting:
		p.became[s.ID] = status
	default:
		delete(p.became, s.ID)
	}
	lasting := status == declaration.StatusFailed || status == declaration.StatusKept
	switch {
	case status == declaration.StatusInSync, status == declaration.StatusWaiting, lasting && slices.Contains(p.said, result):
	case status == declaration.StatusFailed:
		p.log.Warn("failed", "resource", s.ID, "kind", s.Kind, "where", s.Where, "err", reason)
	default:
		p.log.Info(string(status), "resource", s.ID, "kind", s.Kind, "where", s.Where, "why", reason)
	}
}

// fails says whether s failed in the pass before: that it is tried again is no news.
func (p *pass) fails(s Step) bool {
	return slices.ContainsFunc(p.said, func(r declaration.Result) bool {
		return r.Status == declaration.StatusFailed && r.Kind == s.Kind && r.Where == s.Where
	})
}

// line makes one line of a text.
func line(text string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(text, "\n", "; ")), " ")
}
