package volatile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"mesh/lab/machine"
)

// Machines are a hypervisor's machines with disks that lose what was not flushed.
// A machine whose run has a server is made on its disk in the server's mount, with
// its flushes reaching it, and loses its power at the server when it is destroyed;
// any other is left as it is. To callers a disk always is its file behind. Safe
// for concurrent use.
type Machines struct {
	machine.Hypervisor
	machine.Memory
	directory, runtime string
}

// NewMachines makes Machines of a hypervisor, given as both of its ports, for
// disks whose files are in directory. A run's server is where Mount and Control
// say, its control socket in the directory runtime/RUN.
func NewMachines(h machine.Hypervisor, m machine.Memory, directory, runtime string) *Machines {
	return &Machines{h, m, directory, runtime}
}

// mountPrefix begins the names of mounts.
const mountPrefix = "disks-"

// Mount is where the disks of a run are shown: beside the directory that holds
// their files, so that what a disk says it stands on, relative to that directory,
// is found from there as well.
func Mount(directory, run string) string {
	return filepath.Join(filepath.Dir(directory), mountPrefix+run)
}

// Control is the control socket in a run's runtime directory.
func Control(runtime string) string { return filepath.Join(runtime, "disks.sock") }

// Create is machine.Hypervisor's.
func (m *Machines) Create(ctx context.Context, spec machine.Spec) error {
	spec, err := m.shown(spec)
	if err != nil {
		return fmt.Errorf("create machine %s: %w", spec.Name, err)
	}
	return m.Hypervisor.Create(ctx, spec)
}

// Restore is machine.Memory's.
func (m *Machines) Restore(ctx context.Context, spec machine.Spec, memory string) error {
	spec, err := m.shown(spec)
	if err != nil {
		return fmt.Errorf("restore machine %s: %w", spec.Name, err)
	}
	return m.Memory.Restore(ctx, spec, memory)
}

// shown is a spec with its disk as the run's server shows it, if it has one.
func (m *Machines) shown(spec machine.Spec) (machine.Spec, error) {
	mount := Mount(m.directory, spec.Run)
	_, err := os.Lstat(mount)
	switch {
	case errors.Is(err, os.ErrNotExist) || filepath.Dir(spec.Disk) != m.directory:
		return spec, nil
	case err != nil:
		return spec, fmt.Errorf("nobody serves its disk any more: %w", err)
	}
	spec.Disk, spec.Flushes = filepath.Join(mount, filepath.Base(spec.Disk)), true
	return spec, nil
}

// runOf is the run in whose mount a disk is; empty where it is in none.
func (m *Machines) runOf(disk string) string {
	run, ok := strings.CutPrefix(filepath.Base(filepath.Dir(disk)), mountPrefix)
	if !ok || filepath.Dir(disk) != Mount(m.directory, run) {
		return ""
	}
	return run
}

// Snapshot is machine.Memory's.
func (m *Machines) Snapshot(ctx context.Context, name, memory, disk string) error {
	now, err := m.Memory.Disk(ctx, name)
	if err != nil {
		return err
	}
	if m.runOf(now) != "" {
		disk = filepath.Join(filepath.Dir(now), filepath.Base(disk))
	}
	return m.Memory.Snapshot(ctx, name, memory, disk)
}

// Disk is machine.Memory's.
func (m *Machines) Disk(ctx context.Context, name string) (string, error) {
	disk, err := m.Memory.Disk(ctx, name)
	if m.runOf(disk) != "" {
		disk = filepath.Join(m.directory, filepath.Base(disk))
	}
	return disk, err
}

// Destroy is machine.Hypervisor's. Without the cut before, the machine's process
// would flush on its way out.
func (m *Machines) Destroy(ctx context.Context, name string) error {
	disk, err := m.Memory.Disk(ctx, name)
	if run := m.runOf(disk); err == nil && run != "" {
		server := NewClient(Control(filepath.Join(m.runtime, run)))
		_, err := server.Cut(ctx, disk, Loss{})
		_, gone := os.Lstat(filepath.Join(m.directory, filepath.Base(disk))) // then nothing can be lost
		if err != nil && !errors.Is(err, ErrAbsent) && !errors.Is(gone, os.ErrNotExist) {
			return fmt.Errorf("destroy machine %s: %w", name, err)
		}
	}
	return m.Hypervisor.Destroy(ctx, name)
}
