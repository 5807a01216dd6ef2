package watch

import (
	"fmt"
	"strings"
	"time"
)

// Change is one thing that is not as it was at the look before.
type Change struct {
	Time     time.Time `json:"time"` // UTC
	Scenario string    `json:"scenario"`
	Machine  string    `json:"machine,omitempty"`
	What     string    `json:"what"` // phase, accelerator, state, agent, start, address SEGMENT, world, service NAME, fault
	Value    string    `json:"value,omitempty"`
	Was      string    `json:"was,omitempty"`
}

// String is the change in one line.
func (c Change) String() string {
	of := c.Scenario
	if c.Machine != "" {
		of += " " + c.Machine
	}
	value := c.Value
	if value == "" {
		value = "none"
	}
	line := fmt.Sprintf("%s %s: %s %s", c.Time.Format("2006-01-02T15:04:05Z"), of, c.What, value)
	if c.Was != "" {
		line += " (was " + c.Was + ")"
	}
	return strings.Join(strings.Fields(line), " ")
}

// fact is something that is seen at a look and can change. What is used is none:
// it always does.
type fact struct{ scenario, machine, what, value string }

// Changes lists what is different between two looks, in the order of the later
// one, what is gone last. After a zero look everything is new.
func Changes(before, now Look) (all []Change) {
	was := map[fact]string{} // without their values
	for _, f := range before.facts() {
		key := f
		key.value = ""
		was[key] = f.value
	}
	change := func(f fact, value, was string) {
		all = append(all, Change{
			Time: now.At.UTC().Truncate(time.Second), Scenario: f.scenario, Machine: f.machine, What: f.what,
			Value: value, Was: was,
		})
	}
	for _, f := range now.facts() {
		key := f
		key.value = ""
		old, known := was[key]
		delete(was, key)
		if !known || old != f.value {
			change(key, f.value, old)
		}
	}
	for _, f := range before.facts() { // for their order
		key := f
		key.value = ""
		if old, left := was[key]; left && now.has(f.scenario) {
			change(key, "", old)
		} else if left && f.what == "phase" {
			change(key, "gone", old)
		}
	}
	return all
}

func (l Look) has(scene string) bool {
	for _, s := range l.Scenes {
		if s.Name == scene {
			return true
		}
	}
	return false
}

func (l Look) facts() (all []fact) {
	for _, s := range l.Scenes {
		add := func(machine, what, value string) {
			if value != "" {
				all = append(all, fact{s.Name, machine, what, value})
			}
		}
		add("", "phase", s.Phase)
		add("", "note", s.Note)
		add("", "accelerator", s.Accelerator)
		for _, m := range s.Machines {
			add(m.Name, "state", m.State)
			add(m.Name, "agent", agent(m))
			add(m.Name, "start", start(m))
			for _, a := range m.Addresses {
				add(m.Name, "address "+a.Segment, strings.TrimSpace(a.IPv4+" "+a.IPv6))
			}
		}
		add("", "world", orOK(s.World))
		for _, service := range s.Services {
			add("", "service "+service.Name, orOK(service.Why))
		}
		for _, f := range s.Faults {
			add("", "fault "+f, "in force")
		}
	}
	return all
}

func orOK(why string) string {
	if why == "" {
		return "ok"
	}
	return why
}

func agent(m Machine) string {
	if m.Agent {
		return "answers"
	}
	return "silent"
}

// start is how a machine was started, once it was ready.
func start(m Machine) string {
	if m.Start == "" {
		return ""
	}
	return fmt.Sprintf("%s, %.1f s", m.Start, m.Ready.Seconds())
}
