package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"mesh/lab/fault"
	"mesh/lab/world"
)

// FaultState is how far a fault is.
type FaultState string

// The states of a fault. One that is neither in force nor gone was cut short;
// undoing it is always right.
const (
	Striking FaultState = "striking" // being done
	InForce  FaultState = "in force"
	Undoing  FaultState = "undoing"
)

// FaultRecord is a fault of a raised scenario. It is written down before the
// fault strikes and removed after it is undone.
type FaultRecord struct {
	fault.Fault
	State FaultState `json:"state"`
	Since time.Time  `json:"since"` // UTC
}

// strikes tells whether a machine is one of a fault's targets.
func (f FaultRecord) strikes(m Machine) bool {
	return slices.ContainsFunc(f.On, func(t fault.Target) bool { return t.Kind == fault.Machine && t.Name == m.Name })
}

// Faults lists the faults of a scenario, in the order of their coming. ErrAbsent.
func (l *Lab) Faults(name string) ([]FaultRecord, error) {
	r, err := l.Record(name)
	return r.Faults, err
}

// AddFault makes a fault strike a raised scenario, until it is undone. It gives
// the fault with the name and the targets that it got. If it cannot be done, what
// was done of it is undone; then it is still listed only where that failed, too.
// What is wrong with f itself is fault.Problems. ErrAbsent.
func (l *Lab) AddFault(ctx context.Context, name string, f fault.Fault) (FaultRecord, error) {
	var added FaultRecord
	err := l.strikers(ctx, name, func(s *striker) (err error) {
		added, err = s.add(ctx, f)
		return err
	})
	return added, err
}

// RemoveFaults undoes faults of a scenario by their names, or all of them. Each
// is tried, whatever becomes of the others. ErrAbsent.
func (l *Lab) RemoveFaults(ctx context.Context, name string, names ...string) error {
	return l.strikers(ctx, name, func(s *striker) error {
		known := s.names()
		if len(names) == 0 {
			names = known
		}
		for _, n := range names {
			if !slices.Contains(known, n) {
				return noFault(name, n, known)
			}
		}
		return s.removeAll(ctx, names)
	})
}

// undoFaults is RemoveFaults of names some of which somebody may have undone.
func (l *Lab) undoFaults(ctx context.Context, name string, names []string) error {
	return l.strikers(ctx, name, func(s *striker) error {
		known := s.names()
		return s.removeAll(ctx, slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !slices.Contains(known, n) }))
	})
}

func (s *striker) names() (all []string) {
	for _, f := range s.r.Faults {
		all = append(all, f.Name)
	}
	return all
}

// removeAll undoes faults that there are, each once, in the order of their ranks.
func (s *striker) removeAll(ctx context.Context, names []string) error {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(s.rank(a), s.rank(b)) })
	var problems []error
	for _, n := range names {
		if err := s.remove(ctx, n); err != nil {
			problems = append(problems, fmt.Errorf("undo fault %s: %w", n, err))
		}
	}
	return errors.Join(problems...)
}

func noFault(scenario, name string, known []string) error {
	e := &Error{What: fmt.Sprintf("scenario %s has no fault %q", scenario, name), Code: codeUsage}
	if e.Next = "there are none"; len(known) > 0 {
		e.Next = "its faults are " + fmt.Sprint(known)
	}
	return e
}

// striker does faults to a scenario that this process alone may change.
type striker struct {
	*Lab
	r *Record // as it is on disk
}

// strikers holds a raised scenario while work strikes it.
func (l *Lab) strikers(ctx context.Context, name string, work func(*striker) error) error {
	return l.changing(ctx, name, "change faults of "+name, func(r *Record) error { return work(&striker{l, r}) })
}

// update changes the record, durably.
func (s *striker) update(change func(*Record)) error {
	change(s.r)
	return writeRecord(s.r.Plan.Directory, *s.r)
}

func (s *striker) find(name string) int {
	return slices.IndexFunc(s.r.Faults, func(f FaultRecord) bool { return f.Name == name })
}

// rank orders undoing: first what keeps others from being undone.
func (s *striker) rank(name string) int {
	switch s.r.Faults[s.find(name)].Kind {
	case fault.PowerCut:
		return 0
	case fault.Pause:
		return 1
	case fault.DiskDetached, fault.DiskError:
		return 2
	}
	return 3
}

// add is AddFault's.
func (s *striker) add(ctx context.Context, f fault.Fault) (FaultRecord, error) {
	f, err := fault.Resolve(f, s.r.Plan.World.Underlay)
	if err != nil {
		return FaultRecord{}, err
	}
	form, _ := fault.FormOf(f.Kind)
	f = fault.Named(f, func(name string) bool { return s.find(name) >= 0 })
	added := FaultRecord{Fault: f, State: Striking, Since: s.cfg.Now().UTC().Truncate(time.Second)}
	if err := s.mayAdd(ctx, f, form); err != nil {
		return FaultRecord{}, err
	}
	if f.Kind == fault.DiskError && f.How != fault.Writes { // the layers below are read by the hypervisor itself
		s.cfg.Progress.Note("reads fail of what a machine wrote since its raise, restore or last snapshot; all else of its disk can still be read")
	}
	if form.Momentary {
		added.State = ""
		return added, s.strike(ctx, f)
	}
	if err := s.update(func(r *Record) { r.Faults = append(r.Faults, added) }); err != nil {
		return FaultRecord{}, err
	}
	if err := s.strike(ctx, f); err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
		defer cancel()
		err = fmt.Errorf("fault %s: %w", f.Name, err)
		if undone := s.remove(undo, f.Name); undone != nil {
			return FaultRecord{}, errors.Join(err, fmt.Errorf("undo it: %w; `lab fault remove %s %s` tries again", undone, s.r.Plan.Name, f.Name))
		}
		return FaultRecord{}, err
	}
	added.State = InForce
	return added, s.update(func(r *Record) { r.Faults[s.find(f.Name)].State = InForce })
}

// mayAdd refuses what cannot be done, before anything is.
func (s *striker) mayAdd(ctx context.Context, f fault.Fault, form fault.Form) error {
	if s.find(f.Name) >= 0 {
		return &Error{What: fmt.Sprintf("scenario %s has a fault %s already", s.r.Plan.Name, f.Name),
			Next: fmt.Sprintf("give another name, or undo that one: `lab fault remove %s %s`", s.r.Plan.Name, f.Name), Code: codeUsage}
	}
	for _, t := range f.On {
		for _, other := range s.r.Faults {
			if form.Once && other.Kind == f.Kind && slices.Contains(other.On, t) {
				return &Error{What: fmt.Sprintf("%s is struck by %s already", t, f.Kind), Why: "by fault " + other.Name,
					Next: fmt.Sprintf("undo that one first: `lab fault remove %s %s`", s.r.Plan.Name, other.Name), Code: codeUsage}
			}
		}
		if t.Kind == fault.Machine && !f.OfWorld() && f.Kind != fault.PowerCut {
			if err := s.mustRun(ctx, t.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// remove undoes one fault; what is undone in part is undone again.
func (s *striker) remove(ctx context.Context, name string) error {
	if err := s.update(func(r *Record) { r.Faults[s.find(name)].State = Undoing }); err != nil {
		return err
	}
	if err := s.relent(ctx, s.r.Faults[s.find(name)].Fault); err != nil {
		return err
	}
	return s.update(func(r *Record) {
		i := s.find(name)
		r.Faults = slices.Delete(slices.Clone(r.Faults), i, i+1)
	})
}

// strike does a fault, whether or not it is done already.
func (s *striker) strike(ctx context.Context, f fault.Fault) error {
	if f.OfWorld() {
		return s.setWorld(ctx)
	}
	return s.eachMachine(f, func(m Machine, t fault.Target) error { return s.strikeMachine(ctx, f, m, t) })
}

// relent undoes a fault, whether or not it was ever done.
func (s *striker) relent(ctx context.Context, f fault.Fault) error {
	if f.OfWorld() {
		err := s.setWorld(ctx)
		if errors.Is(err, world.ErrAbsent) { // it begins anew with nothing impaired
			return nil
		}
		return err
	}
	return s.eachMachine(f, func(m Machine, t fault.Target) error { return s.relentMachine(ctx, f, m, t) })
}

func (s *striker) eachMachine(f fault.Fault, do func(Machine, fault.Target) error) error {
	var problems []error
	for _, t := range f.On {
		m, err := s.r.Plan.Machine(t.Name)
		if err == nil {
			err = do(m, t)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("machine %s: %w", t.Name, err))
		}
	}
	return errors.Join(problems...)
}

// setWorld makes the world's faults be those of the record, and leaves the rest
// of its state as it is.
func (s *striker) setWorld(ctx context.Context) error {
	faults := []fault.Fault{}
	for _, f := range s.r.Faults {
		if f.OfWorld() && f.State != Undoing {
			faults = append(faults, f.Fault)
		}
	}
	return s.changeWorld(ctx, s.r.Plan.World, "faults", faults)
}
