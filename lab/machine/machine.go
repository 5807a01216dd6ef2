// Package machine is the port to a hypervisor: what the lab asks of it, and no
// more. Two implementations stand beside it: libvirt (real) and machinetest
// (strict, in memory), held together by machinetest's conformance suite.
package machine

import (
	"context"
	"errors"
)

// ErrAbsent means that no machine of that name exists. Match with errors.Is.
var ErrAbsent = errors.New("machine is absent")

// ErrAgent means that the guest agent did not answer in time. Match with errors.Is.
var ErrAgent = errors.New("guest agent does not answer")

// Accelerator is how guest code runs.
type Accelerator string

// The accelerators.
const (
	KVM Accelerator = "kvm"
	TCG Accelerator = "tcg"
)

// Spec is everything a machine is made from. Paths are absolute.
type Spec struct {
	Name        string      `json:"name"` // domain name, unique on the hypervisor
	UUID        string      `json:"uuid"`
	Run         string      `json:"run"` // the run's id, written into the domain's metadata
	Accelerator Accelerator `json:"accelerator"`
	MemoryBytes int64       `json:"memory_bytes"`
	CPUs        int         `json:"cpus"`
	Disk        string      `json:"disk"` // qcow2 overlay
	// Kernel is booted directly, with Initrd and Cmdline. Empty: the firmware
	// boots the disk, and Initrd and Cmdline must be empty too.
	Kernel      string `json:"kernel"`
	Initrd      string `json:"initrd"`
	Cmdline     string `json:"cmdline"`
	NICs        []NIC  `json:"nics"`
	ConsoleLog  string `json:"console_log"`    // appended: every byte of the serial console
	ConsoleSock string `json:"console_socket"` // UNIX socket of the serial console, < 108 bytes; one reader at a time
	// Display gives it a screen for Abuse.Screenshot. Nobody can connect to it.
	Display bool `json:"display,omitempty"`
	// Flushes lets the guest's flushes reach the disk's file. Without, they are
	// swallowed, which is quicker and no loss unless the lab machine stops.
	Flushes bool `json:"flushes,omitempty"`
}

// NIC is an interface whose tap the hypervisor makes on the lab machine.
type NIC struct {
	MAC string `json:"mac"`
	Tap string `json:"tap"`
}

// State is what a machine is doing.
type State string

// The states.
const (
	Paused  State = "paused"
	Running State = "running"
	Stopped State = "stopped" // defined by nobody any more or shut off; its process is gone
)

// Cause is why a machine's process ended.
type Cause string

// The causes.
const (
	Destroyed Cause = "destroyed" // by Destroy, or by somebody else through the hypervisor
	ShutDown  Cause = "shut down" // the guest switched itself off
	Saved     Cause = "saved"     // its memory was saved by Memory.Save
	Panicked  Cause = "panicked"  // the guest's kernel reported a panic
	Failed    Cause = "failed"    // the process ended without being asked to
	Unknown   Cause = "unknown"   // the hypervisor remembers nothing of that machine
)

// Death is what is known of a machine whose process has ended.
type Death struct {
	Cause   Cause
	Stderr  string // end of the process's error output; may be empty
	Command string // the command line that the process was started with; may be empty
}

// Hypervisor makes and ends machines. Machines are transient: when the process
// ends, nothing of them stays but their disk and console log. Safe for
// concurrent use.
type Hypervisor interface {
	// Create starts a machine paused, its taps present on the lab machine. A spec
	// that Check refuses, a name or UUID that is taken, a file that is not there:
	// an error, and nothing is left of the attempt.
	Create(ctx context.Context, spec Spec) error
	// Resume lets a paused machine run; a running one is left alone. ErrAbsent.
	Resume(ctx context.Context, name string) error
	// Destroy ends a machine at once, as a power cut does; absent is success.
	Destroy(ctx context.Context, name string) error
	// State tells what a machine is doing. ErrAbsent.
	State(ctx context.Context, name string) (State, error)
	// List names the machines that carry a run's id; an empty run means all of the lab's.
	List(ctx context.Context, run string) ([]string, error)
	// Agent sends one guest-agent command (JSON) and returns its answer (JSON). ErrAbsent, ErrAgent.
	Agent(ctx context.Context, name, command string) (string, error)
	// Diagnosis is the tail of a machine's process's error output, running or
	// ended. May be empty.
	Diagnosis(ctx context.Context, name string) (string, error)
	// Wait returns when the machine's process has ended, at once if it has
	// already or never was. Its error is ctx's, or the hypervisor's own failure.
	Wait(ctx context.Context, name string) (Death, error)
	// Forget removes what the hypervisor keeps of an ended machine (its error
	// output); Diagnosis and Wait know nothing of it afterwards. Absent is success.
	Forget(ctx context.Context, name string) error
}
