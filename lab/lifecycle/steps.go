package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"mesh/lab/machine"
)

// daemon makes the hypervisor answer and settles on an accelerator.
func (r *raise) daemon(ctx context.Context) error {
	if err := r.cfg.Daemon.Ensure(ctx); err != nil {
		return fmt.Errorf("hypervisor: %w", err)
	}
	chosen, why := machine.Accelerator(r.plan.Accelerator), "chosen by the operator"
	if chosen != machine.TCG {
		found, reason, err := r.cfg.Daemon.Accelerator(ctx)
		if err != nil {
			return fmt.Errorf("find the accelerator: %w", err)
		}
		if chosen == machine.KVM && found != machine.KVM {
			return &Error{
				What: "KVM is required and does not work here", Why: reason,
				Next: "raise without --require-kvm to use emulation, or see `lab verify`", Code: codePrerequisite,
			}
		}
		chosen, why = found, reason
	}
	r.cfg.Progress.Note("machines run by %s: %s", chosen, why)
	return r.update(func(rec *Record) { rec.Accelerator, rec.Why = chosen, why })
}

func (r *raise) repository(ctx context.Context) error {
	dir := r.plan.World.Repositories["mesh"]
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("clear %s: %w", dir, err)
	}
	return r.cfg.Disks.Repository(ctx, r.plan.Packages, dir)
}

func (r *raise) disk(ctx context.Context, name string) error {
	m, err := r.machine(name)
	if err != nil {
		return err
	}
	if err := os.Remove(m.Spec.Disk); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("clear %s: %w", m.Spec.Disk, err)
	}
	if err := os.MkdirAll(filepath.Dir(m.Spec.Disk), 0o755); err != nil {
		return fmt.Errorf("make the directory of disks: %w", err)
	}
	base := m.Base
	if len(m.Layers) > 0 {
		base = r.Layer(m.Layers[0])
	}
	return r.cfg.Disks.Overlay(ctx, base, m.Spec.Disk)
}

func (r *raise) startWorld(ctx context.Context, again bool) error {
	if again {
		if err := r.cfg.World.Remove(ctx, r.plan.World, r.record.World); err != nil {
			return fmt.Errorf("clear the world of an earlier try: %w", err)
		}
	}
	if err := os.MkdirAll(r.plan.Runtime, 0o755); err != nil {
		return fmt.Errorf("make runtime directory: %w", err)
	}
	p, err := r.cfg.World.Start(ctx, r.plan.World)
	if err != nil {
		return err
	}
	r.watch.world(p)
	return r.update(func(rec *Record) { rec.World = p })
}
