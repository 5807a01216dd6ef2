package apply

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"mesh/host/declaration"
	"mesh/host/resource"
	"mesh/host/store"
	"mesh/host/system"
)

// Verb says what a step does.
type Verb string

// Every verb.
const (
	VerbNone    Verb = "none"    // it is as declared
	VerbNote    Verb = "note"    // it is as declared; only the record of it changes
	VerbMake    Verb = "make"    // nothing is there yet
	VerbChange  Verb = "change"  // what is there is not as declared
	VerbRestart Verb = "restart" // it is as declared, and a restart is owed
	VerbRemove  Verb = "remove"  // owned, and not declared any more
	VerbForget  Verb = "forget"  // not declared any more, and gone already
	VerbLeave   Verb = "leave"   // not declared any more, and not the host's to remove
	VerbRefuse  Verb = "refuse"  // not declared any more, but the record of it is doubtful
	VerbReport  Verb = "report"  // it is not as declared, which is reported and nothing more
	VerbBlocked Verb = "blocked" // something is in the way
	VerbWait    Verb = "wait"    // what it needs does not work
)

// Step is one resource's part of a plan.
type Step struct {
	ID    string           `json:"id"`
	Kind  declaration.Kind `json:"kind"`
	Where string           `json:"where"`
	Verb  Verb             `json:"verb"`
	Why   string           `json:"why,omitempty"`

	resource declaration.Resource // zero for what is not declared any more
	late     bool                 // a service or container once more, behind the removals
	*basis                        // nil when the verb is VerbNone, and only then before foresight
}

// basis is what a step that is more than VerbNone was decided by, and how it acts.
type basis struct {
	owned   *store.Owned // nil when it is not owned
	origin  store.State
	before  store.State
	target  store.State
	restart bool
	reload  bool // what it owes is paid by a reload
	lacking bool // what it needs may come with a package

	instead *declaration.Package // installed in place of the package that is declared; nil: that one
}

// made is what the host made there; zero when it owns nothing.
func (b *basis) made() store.State {
	if b.owned == nil {
		return store.State{}
	}
	return b.owned.Made
}

func (s Step) key() store.Key { return store.Key{Kind: s.Kind, Where: s.Where} }

// acts says whether the step touches the machine.
func (s Step) acts() bool {
	switch s.Verb {
	case VerbMake, VerbChange, VerbRestart, VerbRemove:
		return true
	}
	return false
}

// owes says whether the services that restart because of the step owe that: it
// changes something, or finds it changed since it was made.
func (s Step) owes() bool {
	return s.acts() || s.Verb == VerbNote && s.owned != nil && resource.Differs(s.Kind, s.owned.Made, s.before) != ""
}

// Plan is what a pass does, in order: what is declared as it is declared, then
// what is owned and not declared any more, then the services that used it. The
// same input gives the same plan.
type Plan struct {
	Epoch      uint64 `json:"epoch"`
	Generation uint64 `json:"generation"`
	Digest     string `json:"digest"`
	Steps      []Step `json:"steps"`
}

// Changes counts the steps that touch the machine.
func (p Plan) Changes() int {
	n := 0
	for _, s := range p.Steps {
		if s.acts() {
			n++
		}
	}
	return n
}

// Quiet says that a pass would do nothing and leave nothing undone: everything
// is as declared, or stays until somebody decides about it.
func (p Plan) Quiet() bool {
	return !slices.ContainsFunc(p.Steps, func(s Step) bool {
		return s.Verb != VerbNone && s.Verb != VerbRefuse && s.Verb != VerbReport
	})
}

// String is a line for each step that is not "none", and a line that counts.
func (p Plan) String() string {
	var b strings.Builder
	count := map[Verb]int{}
	for _, s := range p.Steps {
		count[s.Verb]++
		if s.Verb == VerbNone {
			continue
		}
		fmt.Fprintf(&b, "%-8s %s %s", s.Verb, s.Kind, s.Where)
		if s.ID != "" {
			fmt.Fprintf(&b, " (%s)", s.ID)
		}
		if s.Why != "" {
			fmt.Fprintf(&b, ": %s", s.Why)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "%d to change", p.Changes())
	for _, other := range []struct {
		verb Verb
		what string
	}{{VerbWait, "waiting"}, {VerbBlocked, "blocked"}} {
		if n := count[other.verb]; n > 0 {
			fmt.Fprintf(&b, ", %d %s", n, other.what)
		}
	}
	fmt.Fprintf(&b, ", %d as declared, %d in all\n", count[VerbNone]+count[VerbNote], len(p.Steps))
	return b.String()
}

// Seen is what was observed of a machine.
type Seen struct {
	Found    map[store.Key]resource.Found // for every place that is declared, owned, or announced and left open
	Accounts system.Accounts
	Contents map[string]bool   // digests of content that is kept, of what is declared and not there yet
	Offered  map[string]string // packages that follow a release → the newest version its source has
	Missing  map[string]bool   // directories that are not there, in which something is declared that is not there either

	Broken map[string][]resource.Broken // packages → versions that do not work on this machine
}

// NewPlan decides what brings a machine, of which this is the record and this
// was seen, to d. What a crash left open counts as what a pass resolves it to
// before anything else. It is pure.
func NewPlan(d Desired, record store.View, seen Seen) Plan {
	k := newKnown(d, record)
	k.saw(seen)
	k.recovered(record.Intents)
	return k.plan()
}

// known is what decisions rest on. While a plan is carried out it follows what
// is recorded and seen.
type known struct {
	d       Desired
	places  []store.Key // all that it is about; nil where nobody looks again
	owned   map[store.Key]*store.Owned
	debts   map[string][]store.Owed   // by unit or container
	dues    map[string][]string       // ID of a resource → units and containers to restart when it changes
	runs    map[string]bool           // units and containers that are declared to run
	origins map[store.Key]store.State // where it was looked at more than once: what was seen first
	late    map[string]bool           // units and containers that owe a restart once something is removed
	last    uint64                    // highest place in the order of ownership
	seen    Seen
}

func newKnown(d Desired, record store.View) *known {
	k := &known{
		d: d, owned: make(map[store.Key]*store.Owned, len(record.Owned)), debts: map[string][]store.Owed{},
		dues: map[string][]string{}, origins: map[store.Key]store.State{},
		late: map[string]bool{}, runs: map[string]bool{},
	}
	for _, o := range record.Owned {
		k.owned[o.Key] = o
		k.last = max(k.last, o.Order)
	}
	for _, debt := range record.Debts {
		k.debts[debt.Unit] = append(k.debts[debt.Unit], debt)
	}
	for _, r := range d.Resources {
		if !resource.Runs(r) {
			continue
		}
		k.runs[r.Where()] = true
		for _, id := range resource.Causes(r) {
			k.dues[id] = append(k.dues[id], r.Where())
		}
	}
	return k
}

// saw takes in what was seen, and may change it later. What was seen first is what
// was there before the host touched it: a package may bring a service a moment later.
func (k *known) saw(seen Seen) {
	if k.seen.Found == nil {
		k.seen = seen
		return
	}
	for key, found := range seen.Found {
		before, looked := k.seen.Found[key]
		if _, known := k.origins[key]; !known && looked && before.Err == nil {
			k.origins[key] = before.State
		}
		k.seen.Found[key] = found
	}
	k.seen.Accounts, k.seen.Missing = seen.Accounts, seen.Missing
	maps.Copy(k.seen.Contents, seen.Contents)
	maps.Copy(k.seen.Offered, seen.Offered)
	maps.Copy(k.seen.Broken, seen.Broken)
}

// origin is what was at a place before the host touched it.
func (k *known) origin(key store.Key) store.State {
	if owned := k.owned[key]; owned != nil {
		return owned.Origin
	}
	if first, looked := k.origins[key]; looked {
		return first
	}
	if found := k.seen.Found[key]; found.Err == nil {
		return found.State
	}
	return store.State{}
}

// owesWhenGone lists the units that owe a restart when s removes something.
func (k *known) owesWhenGone(s Step) []string {
	if s.Verb != VerbRemove && s.Verb != VerbForget {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(s.owned.Restarts), func(unit string) bool { return !k.runs[unit] })
}

// apply decides what is to be done about a declared resource. A running service
// that is to be restarted behind the removals is not restarted before them.
func (k *known) apply(r declaration.Resource, late bool) Step {
	s := Step{ID: r.ID, Kind: r.Kind(), Where: r.Where(), resource: r}
	b := basis{owned: k.owned[s.key()], origin: k.origin(s.key()), before: k.seen.Found[s.key()].State}
	verb, why := k.decide(r, &b, late)
	if verb != VerbNone { // most are, and there may be very many
		kept := b
		s.basis = &kept
	}
	return s.with(verb, why)
}

// decide completes b, which says what is there and what was.
func (k *known) decide(r declaration.Resource, b *basis, late bool) (Verb, string) {
	key := resource.KeyOf(r)
	found := k.seen.Found[key]
	if image, ok := resource.ImageOf(r); ok && found.Err == nil {
		found.Err = k.seen.Found[image].Err // what is fetched unseen would be nobody's
	}
	var err error
	b.target, err = resource.Target(r, k.seen.Accounts)
	if version := k.seen.Offered[key.Where]; r.Package != nil && version != "" {
		b.target.Version = version
	}
	switch {
	case found.Err != nil:
		return VerbBlocked, found.Err.Error()
	case !found.State.Absent() && found.State.Type != b.target.Type:
		return VerbBlocked, fmt.Sprintf("a %s is in the way: move it away, or declare another path", found.State.Type)
	case err != nil:
		b.lacking = true
		return VerbBlocked, err.Error()
	}
	if verb, why, settled := k.standIn(r, b); settled {
		return verb, why
	}
	debts := k.debts[key.Where]
	b.restart = resource.Runs(r) && len(debts) > 0 && (late || !k.late[key.Where])
	differs := resource.Differs(key.Kind, b.target, found.State)
	if verb, why, settled := k.byPolicy(r, differs, found.State, b.owned != nil); settled {
		return verb, why
	}
	if differs != "" && found.Lacks != "" {
		b.lacking = true
		return VerbBlocked, found.Lacks
	}
	b.reload = b.restart && onlyReloads(r.Service, debts)
	switch {
	case differs != "" && found.State.Absent():
		return VerbMake, differs
	case differs != "":
		return VerbChange, differs
	case b.restart:
		return VerbRestart, owing(debts)
	}
	return k.confirm(r, b.owned, found.State)
}

// confirm decides about what is as declared: whether the record of it is as it has
// to be.
func (k *known) confirm(r declaration.Resource, owned *store.Owned, found store.State) (Verb, string) {
	switch {
	case owned == nil:
		return VerbNote, "it is there already, and is not the host's to remove"
	case owned.ID != r.ID:
		return VerbNote, fmt.Sprintf("it was declared as %q", owned.ID)
	case !slices.Equal(owned.Restarts, k.dues[r.ID]):
		return VerbNote, "other services restart because of it"
	case owned.Doubtful:
		return VerbNote, "the record of it is older than a loss of the store, and is confirmed"
	}
	if since := resource.Differs(owned.Kind, owned.Made, found); since != "" {
		return VerbNote, "it is as declared, and not as it was made: " + since
	}
	return VerbNone, ""
}

func (s Step) with(v Verb, why string) Step {
	s.Verb, s.Why = v, line(why)
	return s
}

// owing says in words who owes what since when.
func owing(debts []store.Owed) string {
	since := "the bundle"
	if debts[0].Generation > 0 {
		since = fmt.Sprintf("generation %d", debts[0].Generation)
	}
	text := fmt.Sprintf("it owes a restart because of %s (%s) since %s", debts[0].ID, debts[0].Because, since)
	if n := len(debts) - 1; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// removals decides about everything that is owned and not declared: in reverse
// order of ownership, but images behind all containers, and directories last, the
// innermost first, because they can go only when they are empty.
func (k *known) removals() []Step {
	declared := make(map[store.Key]bool, len(k.d.Resources))
	for _, r := range k.d.Resources {
		declared[resource.KeyOf(r)] = true
		if image, ok := resource.ImageOf(r); ok {
			declared[image] = true
		}
	}
	var steps []Step
	first := k.last // in the order of ownership, of the containers that go
	for key, o := range k.owned {
		if !declared[key] && resource.Known(key.Kind) {
			steps = append(steps, k.remove(o))
		}
		if !declared[key] && key.Kind == declaration.KindContainer {
			first = min(first, o.Order)
		}
	}
	slices.SortFunc(steps, func(a, b Step) int {
		aDir, bDir := a.Kind == declaration.KindDirectory, b.Kind == declaration.KindDirectory
		switch {
		case aDir != bDir && aDir:
			return 1
		case aDir != bDir:
			return -1
		case aDir:
			if c := cmp.Compare(strings.Count(b.Where, "/"), strings.Count(a.Where, "/")); c != 0 {
				return c
			}
		}
		return cmp.Or(cmp.Compare(b.place(first), a.place(first)), cmp.Compare(b.owned.Order, a.owned.Order))
	})
	return steps
}

func (k *known) remove(o *store.Owned) Step {
	found := k.seen.Found[o.Key]
	s := Step{ID: o.ID, Kind: o.Kind, Where: o.Where, basis: &basis{owned: o, origin: o.Origin, before: found.State}}
	if found.Err != nil {
		return s.with(VerbBlocked, found.Err.Error())
	}
	fate, why := resource.FateOf(*o, found.State)
	switch {
	case fate == resource.Gone:
		return s.with(VerbForget, "it is gone already")
	case o.Doubtful:
		return s.with(VerbRefuse, "the record of it is older than a loss of the store: remove it by hand if it is not needed, or run `mesh-host acknowledge`")
	case fate == resource.Leave:
		return s.with(VerbLeave, why)
	case o.Kind == resource.KindImage:
		return k.unused(s, nil)
	}
	return s.with(VerbRemove, "it is not declared any more")
}
