package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

const interrupt = syscall.SIGINT

// Mesh is one raised scenario.
type Mesh struct {
	lab  Lab
	Name string // what it was raised as
}

// Machine names one machine of the mesh; nothing is checked before it is used.
func (m *Mesh) Machine(name string) *Machine { return &Machine{mesh: m, Name: name} }

// Status is `lab status --json`, decoded into v.
func (m *Mesh) Status(ctx context.Context, v any) error {
	r := m.lab.Run(ctx, "", "status", m.Name, "--json")
	if err := r.Err(); err != nil {
		return err
	}
	return decode(r, v)
}

// Destroy destroys the mesh.
func (m *Mesh) Destroy(ctx context.Context) Result {
	return m.lab.Run(ctx, "", "destroy", m.Name)
}

// Machine is one virtual machine of a raised scenario.
type Machine struct {
	mesh *Mesh
	Name string
}

// Sh runs a script with the machine's shell as root.
func (m *Machine) Sh(ctx context.Context, script string) Result {
	return m.Input(ctx, "", script)
}

// Input is Sh with stdin.
func (m *Machine) Input(ctx context.Context, stdin, script string) Result {
	return m.mesh.lab.Run(ctx, stdin, "exec", m.mesh.Name, m.Name, "--", "/bin/sh", "-c", script)
}

// JSON runs a script whose stdout is one JSON document and decodes it into v.
func (m *Machine) JSON(ctx context.Context, script string, v any) error {
	r := m.Sh(ctx, script)
	if err := r.Err(); err != nil {
		return err
	}
	return decode(r, v)
}

// Write puts content into a file on the machine.
func (m *Machine) Write(ctx context.Context, path, content string) error {
	local := filepath.Join(os.TempDir(), fmt.Sprintf("bench-%d-%s", os.Getpid(), filepath.Base(path)))
	if err := os.WriteFile(local, []byte(content), 0o600); err != nil {
		return err
	}
	defer os.Remove(local)
	return m.mesh.lab.Run(ctx, "", "copy", local, m.mesh.Name+":"+m.Name+":"+path).Err()
}

// Cut takes the machine's power away: whatever it was doing ends at once.
func (m *Machine) Cut(ctx context.Context) Result {
	return m.mesh.lab.Run(ctx, "", "power", "cut", m.mesh.Name, m.Name)
}

// PowerOn starts a machine that was cut and waits until it answers.
func (m *Machine) PowerOn(ctx context.Context) Result {
	return m.mesh.lab.Run(ctx, "", "power", "on", m.mesh.Name, m.Name)
}

// Console is everything the machine wrote to its serial console so far.
func (m *Machine) Console(ctx context.Context) Result {
	return m.mesh.lab.Run(ctx, "", "console", m.mesh.Name, m.Name, "--log")
}

// Journal is the machine's journal of this boot.
func (m *Machine) Journal(ctx context.Context) Result {
	return m.Sh(ctx, "journalctl --no-pager --boot --output=short-monotonic")
}

func decode(r Result, v any) error {
	if err := json.Unmarshal([]byte(r.Stdout), v); err != nil {
		return fmt.Errorf("%s: read its JSON: %w\n%s", r.Command, err, tail(r.Stdout))
	}
	return nil
}
