package lifecycle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"mesh/lab/machine"
	"mesh/lab/world"
)

// Lab raises and destroys scenarios of one store. Safe for concurrent use, by
// several processes too: each scenario is changed by one at a time.
type Lab struct {
	cfg Config
}

// Config is what a Lab stands on. All but Snapshots, Evidence and Poll must be set.
type Config struct {
	Store      string // absolute; holds scenarios/NAME
	Runtime    string // absolute and short; holds locks and sockets
	Daemon     Daemon
	Hypervisor machine.Hypervisor
	Memory     machine.Memory // of the same hypervisor
	Abuse      machine.Abuse  // of the same hypervisor
	DiskFaults DiskFaults
	Snapshots  Snapshots // nil: there are none
	World      World
	Guest      Guest
	Evidence   Evidence // of raises that fail; nil: none is kept
	Disks      Disks
	Volatile   Volatile
	Computer   Computer
	Progress   Progress
	Now        func() time.Time
	Poll       time.Duration // how often machines are looked at while raising; zero: 250 ms
}

// New makes a Lab; nothing happens yet.
func New(cfg Config) *Lab {
	if cfg.Poll == 0 {
		cfg.Poll = 250 * time.Millisecond
	}
	return &Lab{cfg}
}

// Directory is where a scenario's disks, logs and record are.
func (l *Lab) Directory(name string) string {
	return filepath.Join(l.cfg.Store, "scenarios", name)
}

// RuntimeOf is where a run's sockets are.
func (l *Lab) RuntimeOf(run string) string { return filepath.Join(l.cfg.Runtime, run) }

func (l *Lab) lockPath(name string) string {
	return filepath.Join(l.cfg.Runtime, "locks", name)
}

// hold takes a scenario for changing it.
func (l *Lab) hold(name string) (*lock, error) {
	held, err := tryLock(l.lockPath(name))
	if errors.Is(err, errLocked) {
		why := "another lab command changes it"
		if r, err := readRecord(l.Directory(name)); err == nil && r.Phase != Raised && r.Phase != Partial && l.cfg.Computer.Alive(r.Process) {
			why = fmt.Sprintf("process %d is %s it", r.Process.PID, r.Phase)
		}
		return nil, &Error{
			What: "scenario " + name + " is busy", Why: why,
			Next: "wait for it, or interrupt it: it undoes what it began", Code: codeUsage,
		}
	}
	return held, err
}

// moveLockPrefix begins the names of locks of moves; no scenario's does.
const moveLockPrefix = "move="

// HoldMove takes a scenario for moving it elsewhere, which others may use
// meanwhile, until the returned function is called.
func (l *Lab) HoldMove(name string) (release func(), err error) {
	if err := errors.Join(CheckName(name), l.needRoot("move scenario "+name)); err != nil {
		return nil, err
	}
	held, err := tryLock(l.lockPath(moveLockPrefix + name))
	if errors.Is(err, errLocked) {
		return nil, &Error{
			What: "scenario " + name + " cannot be moved", Why: "another lab command moves it",
			Next: "wait for it, or interrupt it: then it runs on here", Code: codeUsage,
		}
	}
	if err != nil {
		return nil, err
	}
	return held.release, nil
}

// Record reads what the store knows of a scenario. ErrAbsent.
func (l *Lab) Record(name string) (Record, error) {
	r, err := readRecord(l.Directory(name))
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, absent(name)
	}
	return r, err
}

// Names lists what the store holds, sorted, whatever its phase.
func (l *Lab) Names() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(l.cfg.Store, "scenarios"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list scenarios: %w", err)
	}
	var names []string
	for _, e := range entries {
		if _, err := os.Lstat(filepath.Join(l.Directory(e.Name()), recordName)); err == nil {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Abandoned lists the scenarios whose process is gone, so that nobody will
// finish what the record says was begun, or serve what was raised; and the warm
// images whose maker is gone.
func (l *Lab) Abandoned() ([]Abandoned, error) {
	names, err := l.Names()
	if err != nil {
		return nil, err
	}
	var all []Abandoned
	for _, name := range names {
		r, err := readRecord(l.Directory(name))
		if err != nil {
			continue // told by the command that needs it
		}
		if why := l.abandoned(r); why != "" {
			all = append(all, Abandoned{Kind: KindScenario, Name: name, Why: why, phase: r.Phase})
		}
	}
	unfinished, err := l.abandonedWarm()
	for _, digest := range unfinished {
		all = append(all, Abandoned{
			Kind: KindWarm, Name: digest[:min(12, len(digest))], Why: "the process that was making it is gone", digest: digest,
		})
	}
	return all, err
}

// Abandoned is something that nobody looks after any more.
type Abandoned struct {
	Kind string `json:"kind"` // KindScenario or KindWarm
	Name string `json:"name"`
	Why  string `json:"why"`

	digest string // of a warm image
	phase  Phase  // of a scenario
}

// Remedy says what can be done about it.
func (a Abandoned) Remedy() string { return a.phase.Remedy() }

// What can be abandoned.
const (
	KindScenario = "scenario"
	KindWarm     = "warm image"
)

// abandoned tells why a record's scenario is looked after by nobody; empty if it is.
func (l *Lab) abandoned(r Record) string {
	alive := l.cfg.Computer.Alive
	switch {
	case r.Phase != Raised && r.Phase != Partial && !alive(r.Process):
		return fmt.Sprintf("the process that was %s it (%d) is gone", r.Phase, r.Process.PID)
	case r.Phase == Raised && !alive(r.World):
		return fmt.Sprintf("the process of its world (%d) is gone", r.World.PID)
	case r.Phase == Raised && r.Disks.Process != (world.Process{}) && !alive(r.Disks.Process):
		return fmt.Sprintf("the process of its disks (%d) is gone", r.Disks.Process.PID)
	}
	return ""
}

// Find gives a scenario's record and one machine of it, with a message that
// names the nearest when there is none.
func (l *Lab) Find(name, machineName string) (Record, Machine, error) {
	r, err := l.Record(name)
	if err != nil {
		return Record{}, Machine{}, err
	}
	m, err := r.Plan.Machine(machineName)
	return r, m, err
}

// Machine finds a machine of the plan by its name in the scenario.
func (p Plan) Machine(name string) (Machine, error) {
	i := slices.IndexFunc(p.Machines, func(m Machine) bool { return m.Name == name })
	if i >= 0 {
		return p.Machines[i], nil
	}
	e := &Error{What: fmt.Sprintf("scenario %s has no machine %q", p.Name, name), Code: codeUsage}
	for i, m := range p.Machines {
		if i > 0 {
			e.Next += ", "
		}
		e.Next += m.Name
	}
	e.Next = "its machines are " + e.Next
	return Machine{}, e
}
