// Package watch is what somebody sees who watches scenarios: what is shown of
// them, on a screen of any size, and which of it changed between two looks.
//
// It is pure: it looks at nothing by itself and knows no terminal. Only cmd/lab
// imports it.
package watch

import "time"

// Scene is one scenario at one look.
type Scene struct {
	Name        string
	Phase       string // "gone" once it is no more
	Note        string // why nobody looks after it; what could not be seen
	Accelerator string
	Since       time.Time
	World       string // why the world does not answer; empty if it does
	Services    []Service
	Faults      []string // in force, each in words
	Machines    []Machine
}

// Service is one part of the world.
type Service struct {
	Name string
	Why  string // it is not well; empty if it is
}

// Machine is one machine of a scene.
type Machine struct {
	Name      string
	State     string
	Agent     bool // it answers
	Start     string
	Ready     time.Duration // after its start; zero: not yet
	Addresses []Address
	Used      *Used // nil: not known
}

// Address is where a machine stands in one segment.
type Address struct {
	Segment, IPv4, IPv6 string
}

// Used is what a machine has used of the lab machine since its start.
type Used struct {
	CPU           time.Duration
	Resident      int64 // bytes, now
	Read, Written int64 // bytes
}

// Look is everything that was seen at one time.
type Look struct {
	At     time.Time
	Scenes []Scene
}

// machine finds one of a look; nil where there is none.
func (l Look) machine(scene, name string) *Machine {
	for _, s := range l.Scenes {
		for i := range s.Machines {
			if s.Name == scene && s.Machines[i].Name == name {
				return &s.Machines[i]
			}
		}
	}
	return nil
}

// load is what a machine uses between two looks.
type load struct {
	known         bool
	cpu           float64 // of one processor; 1 is all of it
	read, written float64 // bytes in a second
}

// between compares what a machine had used. A machine that was started anew in
// between has used less than before, and tells nothing yet.
func between(before, now Look, scene string, m Machine) load {
	was, took := before.machine(scene, m.Name), now.At.Sub(before.At).Seconds()
	if was == nil || was.Used == nil || m.Used == nil || took <= 0 || m.Used.CPU < was.Used.CPU {
		return load{}
	}
	return load{
		known:   true,
		cpu:     (m.Used.CPU - was.Used.CPU).Seconds() / took,
		read:    max(0, float64(m.Used.Read-was.Used.Read)) / took,
		written: max(0, float64(m.Used.Written-was.Used.Written)) / took,
	}
}
