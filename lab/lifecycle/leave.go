package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
)

// LeaveOff ends the restore of one machine that failed or was cut off: the machine
// is off, with a disk as the snapshot has it, and the scenario, whose other machines
// ran on meanwhile, is raised. It can be tried again.
func (h *Held) LeaveOff(ctx context.Context) error {
	l, r := h.lab, h.Record
	m, err := r.Plan.Machine(r.Work.Machine)
	if err != nil {
		return err
	}
	if err := l.cfg.Daemon.Ensure(ctx); err != nil {
		return fmt.Errorf("hypervisor: %w", err)
	}
	if err := l.end(ctx, r.Plan, m); err != nil {
		return fmt.Errorf("end machine %s: %w", m.Name, err)
	}
	_, err = os.Stat(m.Spec.Disk)
	if errors.Is(err, fs.ErrNotExist) {
		err = l.cfg.Disks.Overlay(ctx, l.Layer(m.Layers[0]), m.Spec.Disk)
	}
	if err != nil {
		return fmt.Errorf("make the disk of machine %s: %w", m.Name, err)
	}
	err = h.Update(func(r *Record) {
		one := r.Machines[m.Name]
		one.Off = true
		r.Machines = maps.Clone(r.Machines)
		r.Machines[m.Name] = one
		r.Phase, r.Work = Raised, nil
	})
	if err == nil {
		l.tidy()
	}
	return err
}
