package agent

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"mesh/host/apply"
	"mesh/host/declaration"
	"mesh/host/link"
	"mesh/host/resource"
	"mesh/host/store"
	"mesh/host/upgrade"
)

// State is one of the states a machine with a host can be in.
type State string

// The states; a machine without a host is "unmanaged" and has nobody to ask.
const (
	StateHosted       State = "hosted"       // a member of no mesh
	StateEnrolled     State = "enrolled"     // a member whose link is up
	StateDisconnected State = "disconnected" // a member whose link is down
)

// Status is everything this machine knows of itself, offline. Fields may be
// added and never change meaning.
type Status struct {
	State       State         `json:"state"`
	Since       *time.Time    `json:"since,omitempty"`  // absent: not known
	Reason      string        `json:"reason,omitempty"` // disconnected: why
	HostVersion string        `json:"host_version"`
	Running     bool          `json:"running"` // whether mesh-host is at work
	Member      *StatusMember `json:"member,omitempty"`
	Attempt     *time.Time    `json:"enrolment_begun,omitempty"` // an enrolment whose answer is not known
	Held        *StatusHeld   `json:"declaration,omitempty"`
	Refused     *link.Refused `json:"refused,omitempty"`
	Pass        *StatusPass   `json:"pass,omitempty"` // absent: none since this machine started
	Converged   bool          `json:"converged"`      // what is held is applied and nothing is owed
	Resources   []StatusItem  `json:"resources"`
	Owed        []StatusOwed  `json:"owed"`
	Left        []StatusLeft  `json:"left"`
	Copies      []StatusCopy  `json:"copies,omitempty"` // of what others wrote at files that keep copies
	Losses      []StatusLoss  `json:"losses"`
	Problems    []string      `json:"problems"` // parts of this status that could not be read

	Program *upgrade.State `json:"program,omitempty"` // which versions of this program work here; absent: nothing is known
}

// StatusMember is this machine's place in a mesh.
type StatusMember struct {
	Mesh      string    `json:"mesh"`
	Node      string    `json:"node"`
	Addresses []string  `json:"addresses"`
	Plane     []string  `json:"plane"` // while the link is up: the one address it uses
	Key       string    `json:"key"`
	Since     time.Time `json:"since"`
}

// StatusHeld is the declaration this machine follows.
type StatusHeld struct {
	Source     store.Source `json:"source"`
	Mesh       string       `json:"mesh,omitempty"`
	Epoch      uint64       `json:"epoch"`
	Generation uint64       `json:"generation"`
	Digest     string       `json:"digest"`
	Accepted   time.Time    `json:"accepted"`
}

// StatusPass is the pass that goes on, or the last one.
type StatusPass struct {
	Started  time.Time       `json:"started"`
	Finished *time.Time      `json:"finished,omitempty"` // absent: it goes on
	Activity *apply.Activity `json:"activity,omitempty"`
	Error    string          `json:"error,omitempty"`
}

// StatusItem is one resource: what the last pass came to, and what the record
// says. One that no pass has looked at yet has an empty status.
type StatusItem struct {
	ID     string             `json:"id"`
	Kind   declaration.Kind   `json:"kind"`
	Where  string             `json:"where"`
	Status declaration.Status `json:"status"`
	Reason string             `json:"reason,omitempty"`
	Owned  *StatusOwned       `json:"owned,omitempty"` // absent: not owned
}

// StatusOwned is what the record says of a place the host owns.
type StatusOwned struct {
	Since      time.Time `json:"since"`
	Epoch      uint64    `json:"epoch"`
	Generation uint64    `json:"generation"`
	Found      bool      `json:"found"`    // it stood as declared before the host touched it, and will be left so
	Doubtful   bool      `json:"doubtful"` // the record is older than a loss: it is not removed
}

// StatusOwed is a restart that was not paid yet.
type StatusOwed struct {
	Unit       string    `json:"unit"`
	Because    store.Key `json:"because"` // what changed
	ID         string    `json:"id"`      // of the resource that changed
	Epoch      uint64    `json:"epoch"`
	Generation uint64    `json:"generation"`
	Since      time.Time `json:"since"`
}

// StatusLeft is a place that was given up with something left behind.
type StatusLeft struct {
	ID    string           `json:"id"`
	Kind  declaration.Kind `json:"kind"`
	Where string           `json:"where"`
	Why   string           `json:"why"`
	Since time.Time        `json:"since"`
}

// StatusCopy is what somebody else wrote at a file, kept before it was replaced.
type StatusCopy struct {
	Kind   declaration.Kind `json:"kind"`
	Where  string           `json:"where"`
	Digest string           `json:"digest"`
	Bytes  int64            `json:"bytes"`
	Path   string           `json:"path"` // where it lies
	Since  time.Time        `json:"since"`
}

// StatusLoss is a part of the host's record that is gone.
type StatusLoss struct {
	What  string    `json:"what"`
	Grave bool      `json:"grave"` // everything recorded before is doubtful: nothing of it is removed
	Since time.Time `json:"since"`
}

// Inspection is what looking at this machine's own record needs. It takes no
// lock, changes nothing and asks nobody.
type Inspection struct {
	Identity Folder
	Runtime  Folder
	Store    store.Directory
	Content  string             // directory of what is named by its digest
	Alive    func(Process) bool // whether that run of a program goes on
	Version  string

	Program func() (upgrade.State, error) // nil: nothing is known
}

// Status reads everything. What cannot be read is named in Problems; there is
// an error only when nothing can be said at all, because the record is of a
// newer version or may not be read by this user.
func (i Inspection) Status() (Status, error) {
	s := Status{
		State: StateHosted, HostVersion: i.Version,
		Resources: []StatusItem{}, Owed: []StatusOwed{}, Left: []StatusLeft{}, Losses: []StatusLoss{}, Problems: []string{},
	}
	// What is being done is read before what is done: a pass that is seen to have
	// ended has all of it on record.
	linkState, linkErr := load[LinkState](i.Runtime, linkName)
	pass, passErr := load[PassState](i.Runtime, passName)
	outcome, outcomeErr := load[declaration.Outcome](i.Runtime, outcomeName)
	view, _, err := store.Read(i.Store, RecordExpected(i.Identity))
	if err != nil {
		return Status{}, fmt.Errorf("read this machine's record: %w", err)
	}
	file, err := readIdentity(i.Identity)
	if err != nil {
		s.Problems = append(s.Problems, oneLine(err.Error()))
	}
	if err := errors.Join(linkErr, passErr, outcomeErr); err != nil {
		s.Problems = append(s.Problems, oneLine(fmt.Sprintf("read what mesh-host is doing: %v", err)))
	}
	s.Running = linkState != nil && i.Alive(linkState.Process)
	s.membership(file, linkState)
	s.record(view)
	s.program(i.Program)
	for _, c := range view.Copies {
		s.Copies = append(s.Copies, StatusCopy{c.Kind, c.Where, c.Digest, c.Bytes, path.Join(i.Content, c.Digest), c.Time})
	}
	s.pass(pass, pass != nil && i.Alive(pass.Process))
	s.came(pass, outcome, view)
	return s, nil
}

// program fills in what is known of the versions of this program.
func (s *Status) program(read func() (upgrade.State, error)) {
	if read == nil {
		return
	}
	known, err := read()
	if err != nil {
		s.Problems = append(s.Problems, oneLine(err.Error()))
	}
	if known.Kept != nil || known.Trial != nil || len(known.Broken) > 0 {
		s.Program = &known
	}
}

// membership fills in what concerns the mesh and the link.
func (s *Status) membership(file identityFile, l *LinkState) {
	if file.Attempt != nil {
		s.Attempt = &file.Attempt.Time
	}
	if file.Member == nil {
		return
	}
	m := file.Member
	s.Member = &StatusMember{Mesh: m.Mesh, Node: m.Node, Addresses: m.Addresses, Since: m.Since}
	if member, err := file.membership(); err == nil {
		s.Member.Key = member.Key.Public().String()
	}
	for _, a := range m.Plane {
		s.Member.Plane = append(s.Member.Plane, a.String())
	}
	switch {
	case l == nil:
		s.State, s.Reason = StateDisconnected, "mesh-host is not running"
		return
	case s.Running && l.Up:
		s.State, s.Since = StateEnrolled, &l.Since
		s.Member.Plane = []string{l.Address}
	case s.Running:
		s.State, s.Since, s.Reason = StateDisconnected, &l.Since, l.Error
	case l.Up:
		s.State, s.Reason = StateDisconnected, "mesh-host is not running; it ended without saying so"
	default:
		s.State, s.Since, s.Reason = StateDisconnected, &l.Since, "mesh-host is not running"
	}
	s.Refused = l.Refused
}

// record fills in what the store holds.
func (s *Status) record(view store.View) {
	if a := view.Accepted; a != nil {
		s.Held = &StatusHeld{Source: a.Source, Mesh: a.Mesh, Epoch: a.Epoch, Generation: a.Generation, Digest: a.Digest, Accepted: a.Time}
	}
	for _, o := range view.Debts {
		s.Owed = append(s.Owed, StatusOwed{Unit: o.Unit, Because: o.Because, ID: o.ID, Epoch: o.Epoch, Generation: o.Generation, Since: o.Time})
	}
	for _, f := range view.Left {
		s.Left = append(s.Left, StatusLeft{ID: f.ID, Kind: f.Kind, Where: f.Where, Why: f.Left, Since: f.Time})
	}
	for _, l := range view.Losses {
		s.Losses = append(s.Losses, StatusLoss{What: l.File + ": " + l.What, Grave: l.Grave, Since: l.Time})
	}
}

// pass fills in the pass that goes on, or the last one.
func (s *Status) pass(p *PassState, alive bool) {
	if p == nil {
		return
	}
	s.Pass = &StatusPass{Started: p.Started, Error: p.Error}
	switch {
	case !p.Finished.IsZero():
		s.Pass.Finished = &p.Finished
	case alive:
		s.Pass.Activity = p.Activity
	default:
		s.Pass.Error = "it was cut short; the next one goes on from there"
	}
}

// came fills in the resources: what is declared, with what the last pass over that
// very declaration found.
func (s *Status) came(p *PassState, o *declaration.Outcome, view store.View) {
	found := map[store.Key]declaration.Result{}
	a := view.Accepted
	current := o != nil && a != nil && o.Digest == a.Digest && o.Epoch == a.Epoch
	if current {
		for _, r := range o.Results {
			found[store.Key{Kind: r.Kind, Where: r.Where}] = r
		}
	}
	s.list(view, found)
	s.Converged = a == nil || current && p != nil && p.Error == "" && Converged(*o) && len(s.Owed) == 0
}

func (s *Status) list(view store.View, found map[store.Key]declaration.Result) {
	if view.Accepted == nil {
		return
	}
	desired, err := Desired(*view.Accepted)
	if err != nil {
		s.Problems = append(s.Problems, oneLine(fmt.Sprintf("read the declaration held: %v", err)))
		return
	}
	owned := map[store.Key]*StatusOwned{}
	for _, o := range view.Owned {
		owned[o.Key] = &StatusOwned{Since: o.Time, Epoch: o.Epoch, Generation: o.Generation, Found: o.Found(), Doubtful: o.Doubtful}
	}
	add := func(id string, key store.Key) {
		r := found[key]
		s.Resources = append(s.Resources, StatusItem{
			ID: id, Kind: key.Kind, Where: key.Where, Status: r.Status, Reason: r.Reason, Owned: owned[key],
		})
	}
	declared := map[store.Key]bool{}
	for _, r := range desired.Resources {
		key := resource.KeyOf(r)
		declared[key] = true
		add(r.ID, key)
		if image, ok := resource.ImageOf(r); ok {
			found[image] = asItsContainer(found[key])
		}
	}
	for _, o := range view.Owned { // no longer declared and not gone yet, or brought by what is declared
		if !declared[o.Key] {
			add(o.ID, o.Key)
		}
	}
}

// asItsContainer is what a pass came to for an image, of which it reports only the
// container that is made of it: an image is fetched, or the container is not there.
func asItsContainer(r declaration.Result) declaration.Result {
	if r.Status == declaration.StatusChanged {
		r.Status, r.Reason = declaration.StatusInSync, ""
	}
	return r
}

// About keeps of s what concerns one place: a path, a package, a unit, an image or
// a container, by its name, its unit or its unit file.
func (s Status) About(where string) Status {
	for _, r := range s.Resources {
		if r.Kind == declaration.KindContainer && (where == declaration.ContainerUnit(r.Where) || where == declaration.ContainerFile(r.Where)) {
			where = r.Where
		}
	}
	s.Resources = slices.DeleteFunc(slices.Clone(s.Resources), func(r StatusItem) bool { return r.Where != where })
	s.Left = slices.DeleteFunc(slices.Clone(s.Left), func(l StatusLeft) bool { return l.Where != where })
	s.Copies = slices.DeleteFunc(slices.Clone(s.Copies), func(c StatusCopy) bool { return c.Where != where })
	s.Owed = slices.DeleteFunc(slices.Clone(s.Owed), func(o StatusOwed) bool {
		return o.Unit != where && o.Because.Where != where
	})
	return s
}

// MayRemove says why the host must not be removed yet: what it owns would stay
// and nobody would know of it. Empty when nothing speaks against it.
func (i Inspection) MayRemove() (reasons []string, err error) {
	view, _, err := store.Read(i.Store, nil)
	if err != nil {
		return nil, fmt.Errorf("read this machine's record: %w", err)
	}
	for _, o := range view.Owned {
		reasons = append(reasons, fmt.Sprintf("it owns %s (%s)", o.Key, o.ID))
	}
	for _, in := range view.Intents {
		reasons = append(reasons, fmt.Sprintf("it has begun with %s (%s)", in.Key, in.ID))
	}
	return reasons, nil
}
