package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"mesh/lab/machine"
	"mesh/lab/underlay"
	"mesh/lab/world"
)

// Status is what stands of a scenario, asked for now.
type Status struct {
	Name        string              `json:"name"`
	Scenario    string              `json:"scenario"`
	Source      string              `json:"source"`
	Run         string              `json:"run"`
	Phase       Phase               `json:"phase"`
	Abandoned   string              `json:"abandoned,omitempty"` // why nobody looks after it
	Accelerator machine.Accelerator `json:"accelerator,omitempty"`
	Why         string              `json:"why,omitempty"`
	Since       time.Time           `json:"since"`
	Directory   string              `json:"directory"`
	Machines    []MachineStatus     `json:"machines"`
	Faults      []FaultRecord       `json:"faults,omitempty"`  // in the order of their coming
	Roamers     []underlay.Roamer   `json:"roamers,omitempty"` // who can be moved, and where they stand
	World       WorldStatus         `json:"world"`
	Disks       DisksStatus         `json:"disks"`
	Steps       []StepStatus        `json:"steps"`
}

// MachineStatus is one machine.
type MachineStatus struct {
	Name          string              `json:"name"`
	Image         string              `json:"image"`
	State         string              `json:"state"` // a machine.State, "off", "absent" or "unknown"
	Agent         bool                `json:"agent"` // the guest agent answers
	Accelerator   machine.Accelerator `json:"accelerator,omitempty"`
	Start         string              `json:"start,omitempty"` // how it was started: StartWarm, StartCold, "restored"
	ReadySeconds  float64             `json:"ready_seconds,omitempty"`
	Addresses     []Address           `json:"addresses"`
	ConsoleLog    string              `json:"console_log"`
	ConsoleSocket string              `json:"console_socket"`
	Domain        string              `json:"domain"`
}

// Address is where a machine stands in one segment.
type Address struct {
	Segment string `json:"segment"`
	IPv4    string `json:"ipv4,omitempty"`
	IPv6    string `json:"ipv6,omitempty"`
	MAC     string `json:"mac"`
}

// WorldStatus is the outside.
type WorldStatus struct {
	Alive    bool                  `json:"alive"`
	PID      int                   `json:"pid,omitempty"`
	Log      string                `json:"log"`
	Services []world.ServiceStatus `json:"services"`
	Problem  string                `json:"problem,omitempty"`
}

// StepStatus is one step of the raise and what came of it.
type StepStatus struct {
	StepRecord
	Kind    Kind   `json:"kind"`
	Machine string `json:"machine,omitempty"`
	About   string `json:"about"`
}

// How long Status waits for an answer of one machine's agent, and of the world.
const askLimit = 5 * time.Second

// Status looks at a scenario and changes nothing. ErrAbsent.
func (l *Lab) Status(ctx context.Context, name string) (Status, error) {
	r, err := l.Record(name)
	if err != nil {
		return Status{}, err
	}
	s := Status{
		Name: r.Plan.Name, Scenario: r.Plan.Scenario, Source: r.Plan.Source, Run: r.Plan.Run,
		Phase: r.Phase, Abandoned: l.abandoned(r), Accelerator: r.Accelerator, Why: r.Why,
		Since: r.Since, Directory: r.Plan.Directory, World: l.worldStatus(ctx, r),
		Roamers: r.Plan.World.Underlay.Roamers(),
	}
	s.Faults = r.Faults
	s.Machines = make([]MachineStatus, len(r.Plan.Machines))
	var asking sync.WaitGroup
	for i, m := range r.Plan.Machines {
		asking.Go(func() { s.Machines[i] = l.machineStatus(ctx, r, m) })
	}
	asking.Wait()
	s.Disks = l.disksStatus(ctx, r, s.Machines)
	for i, step := range r.Plan.Steps {
		s.Steps = append(s.Steps, StepStatus{StepRecord: r.Steps[i], Kind: step.Kind, Machine: step.Machine, About: step.About})
	}
	return s, nil
}

func (l *Lab) machineStatus(ctx context.Context, r Record, m Machine) MachineStatus {
	was := r.Machines[m.Name]
	s := MachineStatus{
		Name: m.Name, Image: m.Image, Accelerator: cmp.Or(was.Accelerator, r.Accelerator), Start: was.Start,
		ReadySeconds: was.ReadySeconds, Addresses: Addresses(r.Plan, m.Name),
		ConsoleLog: m.Spec.ConsoleLog, ConsoleSocket: m.Spec.ConsoleSock, Domain: m.Spec.Name,
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	state, err := l.cfg.Hypervisor.State(ctx, m.Spec.Name)
	switch {
	case errors.Is(err, machine.ErrAbsent) && was.Off:
		s.State = "off"
	case errors.Is(err, machine.ErrAbsent):
		s.State = "absent"
	case err != nil:
		s.State = "unknown"
	default:
		s.State = string(state)
	}
	s.Agent = err == nil && state == machine.Running && l.cfg.Guest.Wait(ctx, m.Spec.Name) == nil
	return s
}

// Addresses lists where a machine of a plan stands; nil for one it does not have.
func Addresses(p Plan, name string) (all []Address) {
	at, err := place(p, name)
	if err != nil {
		return nil
	}
	for _, nic := range at.NICs {
		a := Address{Segment: nic.Segment, MAC: nic.MAC}
		if nic.IPv4.IsValid() {
			a.IPv4 = nic.IPv4.String()
		}
		if nic.IPv6.IsValid() {
			a.IPv6 = nic.IPv6.String()
		}
		all = append(all, a)
	}
	return all
}

func (l *Lab) worldStatus(ctx context.Context, r Record) WorldStatus {
	s := WorldStatus{PID: r.World.PID, Log: r.Plan.World.Log, Alive: l.cfg.Computer.Alive(r.World)}
	if !s.Alive {
		s.Problem = "its process does not run"
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	answer, err := l.cfg.World.Status(ctx, r.Plan.World)
	if err != nil {
		s.Problem = err.Error()
		return s
	}
	s.Services = answer.Services
	return s
}

// Summary is one line of a list.
type Summary struct {
	Name      string    `json:"name"`
	Scenario  string    `json:"scenario,omitempty"`
	Phase     Phase     `json:"phase,omitempty"`
	Machines  []string  `json:"machines,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	Abandoned string    `json:"abandoned,omitempty"`
	Problem   string    `json:"problem,omitempty"` // why the record cannot be read
}

// List sums up what the store holds, by name. It asks no machine.
func (l *Lab) List() ([]Summary, error) {
	names, err := l.Names()
	if err != nil {
		return nil, err
	}
	all := []Summary{}
	for _, name := range names {
		r, err := readRecord(l.Directory(name))
		if err != nil {
			all = append(all, Summary{Name: name, Problem: err.Error()})
			continue
		}
		s := Summary{Name: name, Scenario: r.Plan.Scenario, Phase: r.Phase, Since: r.Since, Abandoned: l.abandoned(r)}
		for _, m := range r.Plan.Machines {
			s.Machines = append(s.Machines, m.Name)
		}
		all = append(all, s)
	}
	return all, nil
}
