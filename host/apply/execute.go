package apply

import (
	"context"
	"maps"
	"slices"

	"mesh/host/declaration"
	"mesh/host/resource"
	"mesh/host/store"
)

// maxRun bounds how many files share a barrier, and with them the files that
// are open at once and the time until they are recorded.
const maxRun = 512

// pass is one plan being carried out.
type pass struct {
	*Applier
	*known
	became  map[string]declaration.Status // by ID: what failed, or waits
	results []declaration.Result
	stale   bool    // a package or service changed the machine after it was looked at
	errs    []error // of the pass as a whole
}

// execute carries out the plan: runs of files and directories between barriers,
// everything else one by one.
func (p *pass) execute(ctx context.Context, plan Plan) {
	p.settleMoot()
	for steps := plan.Steps; len(steps) > 0; {
		n := 1
		for n < min(len(steps), maxRun) && together(steps[0], steps[n]) {
			n++
		}
		p.run(ctx, steps[:n])
		steps = steps[n:]
	}
}

// together says whether b may share a barrier with a: files and directories
// may, but a directory is removed only when it is recorded what was in it.
func together(a, b Step) bool {
	if removes(a) || removes(b) {
		return removes(a) && removes(b) && a.Kind == declaration.KindFile && b.Kind == declaration.KindFile
	}
	return resource.OnDisk(a.Kind) && resource.OnDisk(b.Kind)
}

// removes says whether the step is about something not declared any more.
func removes(s Step) bool { return s.resource.ID == "" }

// settleMoot drops the debts of units that are not declared to run. If that
// cannot be recorded they are moot in the next pass, too.
func (p *pass) settleMoot() {
	var records []store.Record
	for _, unit := range slices.Sorted(maps.Keys(p.debts)) {
		if !p.runs[unit] {
			records = append(records, p.settled(unit, "not declared to run"))
		}
	}
	_ = p.record(records)
}

// record appends records durably, and follows what was recorded. An error is one of the
// pass as a whole, too.
func (p *pass) record(records []store.Record) error {
	if err := p.store.Append(records...); err != nil {
		p.errs = append(p.errs, err)
		return err
	}
	p.follow(records)
	return nil
}

// run carries out steps that share one barrier: every intent is durable, then
// each is acted on and made durable, then what worked is recorded.
func (p *pass) run(ctx context.Context, steps []Step) {
	if ctx.Err() != nil {
		for _, s := range steps {
			p.report(s, declaration.StatusWaiting, "the host was told to stop before its turn")
		}
		return
	}
	steps = p.decideAgain(ctx, steps)
	intents := map[store.Key]store.Intent{}
	var records []store.Record
	p.copyAside(steps, &records)
	for _, s := range steps {
		if s.acts() {
			in := p.intent(s)
			intents[s.key()] = in
			records = append(records, in)
		}
		if in, ok := p.fetch(s); ok {
			intents[in.Key] = in
			records = append(records, in)
		}
	}
	if err := p.record(records); err != nil {
		for i, s := range steps {
			if s.acts() {
				steps[i] = s.with(VerbBlocked, "nothing was done, because it could not be announced in the store: "+err.Error())
			}
		}
		intents = nil
	}
	p.finish(context.WithoutCancel(ctx), steps, intents, p.act(ctx, steps))
}

// copyAside keeps what somebody else wrote at files that are to be replaced, where
// they are declared so. What cannot be kept is not replaced.
func (p *pass) copyAside(steps []Step, records *[]store.Record) {
	for i, s := range steps {
		f := s.resource.File
		if s.Verb != VerbChange || f == nil || f.Policy != declaration.PolicyKeepCopy {
			continue
		}
		if d := s.before.Digest; d != "" && (d == s.made().Digest || d == s.target.Digest) { // one too large to be read has none
			continue
		}
		data, err := p.machine.Read(s.Where)
		var digest string
		if err == nil {
			digest, err = p.machine.KeepContent(data)
		}
		if err != nil {
			steps[i] = s.with(VerbBlocked, "nothing was done, because what is there could not be kept: "+err.Error())
			continue
		}
		*records = append(*records, store.Copied{Key: s.key(), Digest: digest, Bytes: int64(len(data)), Time: p.now().UTC()})
	}
}

// decideAgain decides by what is known now: debts may have come, and the
// machine may be another one since it was looked at.
func (p *pass) decideAgain(ctx context.Context, steps []Step) []Step {
	if p.stale {
		keys := make([]store.Key, len(steps))
		for i, s := range steps {
			keys[i] = s.key()
			if image, ok := resource.ImageOf(s.resource); ok {
				keys = append(keys, image)
			}
		}
		seen, err := look(ctx, p.machine, p.d, keys)
		if err != nil {
			p.errs = append(p.errs, err) // go on with what was seen before
		} else {
			p.saw(seen)
		}
	}
	again := make([]Step, len(steps))
	for i, s := range steps {
		switch {
		case removes(s):
			again[i] = p.remove(s.owned)
		case s.late && p.didNotWork(s.ID):
			again[i] = s.with(VerbNone, "") // it was tried at its place; what it owes stays owed
		case !p.stale && resource.OnDisk(s.Kind) && (s.Verb == VerbNone || !s.lacking):
			again[i] = s // only what is on the disk decides, and nobody has been there
		case p.waitsFor(s) != "":
			again[i] = s.with(VerbWait, "it waits for "+p.waitsFor(s)+", which did not work")
		default:
			again[i] = p.apply(s.resource, s.late)
		}
		again[i].late = s.late
	}
	return again
}

// waitsFor names the resource that has to work before s is tried.
func (p *pass) waitsFor(s Step) string { return needed(s, p.didNotWork) }

func (p *pass) didNotWork(id string) bool {
	return p.became[id] == declaration.StatusFailed || p.became[id] == declaration.StatusWaiting
}

func (p *pass) intent(s Step) store.Intent {
	in := store.Intent{
		Key: s.key(), ID: s.ID, Epoch: p.d.Epoch, Generation: p.d.Generation, Act: store.ActApply,
		Origin: s.origin, Before: s.before, Target: s.target, Owes: p.dues[s.ID], Time: p.now().UTC(),
	}
	switch {
	case removes(s):
		in.Act, in.Target, in.Owes = store.ActRemove, store.State{}, p.owesWhenGone(s)
	case s.reload && resource.Running(s.before):
		in.Act = store.ActReload
	case s.restart && resource.Running(s.before):
		in.Act = store.ActRestart
	}
	return in
}

// act touches the machine. Neighbours of one kind go together.
func (p *pass) act(ctx context.Context, steps []Step) map[store.Key]error {
	errs := map[store.Key]error{}
	var group []Step
	flush := func() {
		if len(group) > 0 {
			for i, err := range p.actOn(ctx, group) {
				errs[group[i].key()] = err
			}
			p.stale = p.stale || !resource.OnDisk(group[0].Kind)
		}
		group = nil
	}
	for _, s := range steps {
		if !s.acts() {
			continue
		}
		if len(group) > 0 && (group[0].Kind != s.Kind || s.Kind == declaration.KindDirectory) {
			flush()
		}
		group = append(group, s)
	}
	flush()
	return errs
}

// doing says for people who watch what a verb is about.
var doing = map[Verb]string{VerbMake: "making", VerbChange: "changing", VerbRestart: "restarting", VerbRemove: "removing"}

// actOn acts on steps of one kind, which all apply or all remove.
func (p *pass) actOn(ctx context.Context, group []Step) []error {
	note := func(s Step) func(string) {
		return func(what string) {
			p.watch(Activity{ID: s.ID, Kind: s.Kind, Where: s.Where, What: what})
			if !p.fails(s) {
				p.log.Info(what, "resource", s.ID, "where", s.Where)
			}
		}
	}
	p.watch(Activity{ID: group[0].ID, Kind: group[0].Kind, Where: group[0].Where, What: doing[group[0].Verb]})
	if removes(group[0]) {
		owned := make([]store.Owned, len(group))
		for i, s := range group {
			owned[i] = *s.owned
		}
		return resource.TakeAway(ctx, p.machine, group[0].Kind, owned, note(group[0]))
	}
	changes := make([]resource.Change, len(group))
	for i, s := range group {
		if s.instead != nil {
			s.resource.Package = s.instead
		}
		changes[i] = resource.Change{Resource: s.resource, Before: s.before, Target: s.target, Restart: s.restart, Reload: s.reload, Made: s.made(), Note: note(s)}
	}
	return resource.Apply(ctx, p.machine, group[0].Kind, changes)
}
