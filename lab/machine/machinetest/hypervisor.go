// Package machinetest is for tests: a strict hypervisor in memory that shows
// its world as text, a guest agent to put into its machines, and the suite that
// every machine.Hypervisor must pass. Only tests import it.
package machinetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"mesh/lab/machine"
)

// Agent answers guest-agent commands of one machine; an error wrapping
// machine.ErrAgent means that it does not answer.
type Agent func(ctx context.Context, command string) (string, error)

// Hypervisor is a world of machines that no process stands behind. It is
// stricter than a real one: names, UUIDs, disks, taps, logs and sockets clash
// across all machines. Memory images are files of its own, see Image. Make it with New. Safe for concurrent use.
type Hypervisor struct {
	// Broken, when not nil, is asked before each call with the method's and the
	// machine's name; an error is returned as that call's. Set it before use.
	Broken func(method, name string) error
	// NewAgent, when not nil, makes the agent of a machine at its first Resume.
	// Without one no agent answers. Set it before use.
	NewAgent func(spec machine.Spec) Agent

	mu       sync.Mutex
	machines map[string]*vm
	dead     map[string]machine.Death
}

var _ machine.Hypervisor = (*Hypervisor)(nil)

type vm struct {
	spec  machine.Spec
	state machine.State
	held  map[string]string // what the guest has in memory
	agent Agent             // nil: none answers
	ended chan struct{}     // closed at its end

	pulled   map[string]bool // MACs of NICs without a cable
	throttle machine.Throttle
	detached bool // the disk
}

// New returns an empty world.
func New() *Hypervisor {
	return &Hypervisor{machines: map[string]*vm{}, dead: map[string]machine.Death{}}
}

// String shows every machine that exists, in order of names.
func (h *Hypervisor) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(h.machines)) {
		m := h.machines[name]
		fmt.Fprintf(&b, "%s %s run=%s accelerator=%s memory=%dMiB cpus=%d disk=%s\n",
			name, m.state, m.spec.Run, m.spec.Accelerator, m.spec.MemoryBytes>>20, m.spec.CPUs, m.spec.Disk)
		if m.spec.Kernel != "" {
			fmt.Fprintf(&b, "  boot %s %s %q\n", m.spec.Kernel, m.spec.Initrd, m.spec.Cmdline)
		}
		for _, n := range m.spec.NICs {
			fmt.Fprintf(&b, "  nic %s %s", n.MAC, n.Tap)
			if m.pulled[n.MAC] {
				b.WriteString(" pulled")
			}
			b.WriteString("\n")
		}
		if m.detached {
			b.WriteString("  disk detached\n")
		}
		if m.throttle != (machine.Throttle{}) {
			fmt.Fprintf(&b, "  disk throttled to %d B/s, %d operations/s\n", m.throttle.BytesPerSecond, m.throttle.OperationsPerSecond)
		}
	}
	return b.String()
}

// End ends a machine's process as if by itself. It panics if there is none.
func (h *Hypervisor) End(name string, d machine.Death) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.machines[name] == nil {
		panic("machinetest: End of " + name + ", which is absent")
	}
	h.endLocked(name, d)
}

func (h *Hypervisor) endLocked(name string, d machine.Death) {
	close(h.machines[name].ended)
	delete(h.machines, name)
	h.dead[name] = d
}

// enter is the beginning of every call.
func (h *Hypervisor) enter(ctx context.Context, method, name string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w", method, name, context.Cause(ctx))
	}
	if h.Broken == nil {
		return nil
	}
	return h.Broken(method, name)
}

// Create is machine.Hypervisor's.
func (h *Hypervisor) Create(ctx context.Context, spec machine.Spec) error {
	if err := h.enter(ctx, "create", spec.Name); err != nil {
		return err
	}
	if err := spec.Check(); err != nil {
		return fmt.Errorf("create %s: %w", spec.Name, err)
	}
	if err := h.place(spec, map[string]string{heldCmdline: spec.Cmdline}); err != nil {
		return fmt.Errorf("create %s: %w", spec.Name, err)
	}
	return nil
}

// clash reports what two machines cannot both have.
func clash(a, b machine.Spec) error {
	var problems []error
	same := func(what, x, y string) {
		if x == y {
			problems = append(problems, fmt.Errorf("%s %s is machine %s's", what, x, b.Name))
		}
	}
	same("name", a.Name, b.Name)
	same("uuid", a.UUID, b.UUID)
	same("disk", a.Disk, b.Disk)
	same("console socket", a.ConsoleSock, b.ConsoleSock)
	same("console log", a.ConsoleLog, b.ConsoleLog)
	for _, x := range a.NICs {
		for _, y := range b.NICs {
			same("tap", x.Tap, y.Tap)
		}
	}
	return errors.Join(problems...)
}

// Resume is machine.Hypervisor's.
func (h *Hypervisor) Resume(ctx context.Context, name string) error {
	return h.on(ctx, "resume", name, func(m *vm) error {
		m.state = machine.Running
		h.wakeLocked(m)
		return nil
	})
}

// wakeLocked gives a running machine its agent.
func (h *Hypervisor) wakeLocked(m *vm) {
	if m.state == machine.Running && m.agent == nil && h.NewAgent != nil {
		m.agent = h.NewAgent(m.spec)
	}
}

// Destroy is machine.Hypervisor's.
func (h *Hypervisor) Destroy(ctx context.Context, name string) error {
	if err := h.enter(ctx, "destroy", name); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.machines[name] != nil {
		h.endLocked(name, machine.Death{Cause: machine.Destroyed})
	}
	return nil
}

// State is machine.Hypervisor's.
func (h *Hypervisor) State(ctx context.Context, name string) (machine.State, error) {
	if err := h.enter(ctx, "state", name); err != nil {
		return "", err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.machines[name]
	if m == nil {
		return "", fmt.Errorf("state of %s: %w", name, machine.ErrAbsent)
	}
	return m.state, nil
}

// List is machine.Hypervisor's; the names are in order.
func (h *Hypervisor) List(ctx context.Context, run string) ([]string, error) {
	if err := h.enter(ctx, "list", ""); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(h.machines)) {
		if run == "" || h.machines[name].spec.Run == run {
			names = append(names, name)
		}
	}
	return names, nil
}

// Agent is machine.Hypervisor's.
func (h *Hypervisor) Agent(ctx context.Context, name, command string) (string, error) {
	if err := h.enter(ctx, "agent", name); err != nil {
		return "", err
	}
	h.mu.Lock()
	m := h.machines[name]
	var agent Agent
	if m != nil && m.state == machine.Running {
		agent = m.agent
	}
	h.mu.Unlock()
	switch {
	case m == nil:
		return "", fmt.Errorf("agent of %s: %w", name, machine.ErrAbsent)
	case agent == nil:
		return "", fmt.Errorf("agent of %s: %w", name, machine.ErrAgent)
	}
	return agent(ctx, command)
}

// Diagnosis is machine.Hypervisor's.
func (h *Hypervisor) Diagnosis(ctx context.Context, name string) (string, error) {
	if err := h.enter(ctx, "diagnosis", name); err != nil {
		return "", err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dead[name].Stderr, nil
}

// Wait is machine.Hypervisor's.
func (h *Hypervisor) Wait(ctx context.Context, name string) (machine.Death, error) {
	if err := h.enter(ctx, "wait", name); err != nil {
		return machine.Death{}, err
	}
	h.mu.Lock()
	m := h.machines[name]
	h.mu.Unlock()
	if m != nil {
		select {
		case <-m.ended:
		case <-ctx.Done():
			return machine.Death{}, fmt.Errorf("wait for %s: %w", name, context.Cause(ctx))
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	d, known := h.dead[name]
	if !known {
		d.Cause = machine.Unknown
	}
	return d, nil
}

// Forget is machine.Hypervisor's.
func (h *Hypervisor) Forget(ctx context.Context, name string) error {
	if err := h.enter(ctx, "forget", name); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.machines[name] != nil {
		return fmt.Errorf("forget %s: it exists", name)
	}
	delete(h.dead, name)
	return nil
}
