package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"mesh/lab/guest"
	"mesh/lab/lifecycle"
)

// run makes what the record names and lets it run. Everything that can be done
// while the machines stand is; they run on together.
func (r *restoring) run(ctx context.Context) error {
	if err := r.files(ctx); err != nil {
		return err
	}
	if err := r.step("machines have their memory, and the world its state", func() error { return r.stand(ctx) }); err != nil {
		return err
	}
	if err := r.step("machines run on, with clock and entropy of their own", func() error { return r.runOn(ctx) }); err != nil {
		return err
	}
	err := r.held.Update(func(rec *lifecycle.Record) {
		rec.Phase, rec.Work = lifecycle.Raised, nil
		if r.o.Machine == "" {
			rec.Snapshots = r.ancestors()
		}
		seconds := float64(r.cfg.Ports.Now().Sub(r.begun).Milliseconds()) / 1000
		for _, m := range r.machines {
			rec.Machines[m.Name] = lifecycle.MachineRecord{
				Accelerator: r.m.Platform.Accelerator, Start: "restored", ReadySeconds: seconds, Off: r.state(m.Name).Memory == "", Frozen: r.o.Frozen,
			}
		}
	})
	if err != nil {
		return err
	}
	if err := r.cfg.Lab.Collect(); err != nil { // what was written since the snapshot
		r.cfg.Ports.Progress.Note("%v", err)
	}
	return nil
}

func (r *restoring) step(what string, do func() error) error {
	done := r.cfg.Ports.Progress.Step(what)
	err := do()
	done(err)
	return err
}

// files makes the directories, and brings what is kept of the scenario's own files.
func (r *restoring) files(ctx context.Context) error {
	for _, dir := range []string{r.plan.Runtime, r.cfg.Lab.Layers()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := r.held.ServeDisks(ctx); err != nil || !r.fresh {
		return err
	}
	return link(r.store.Path(r.m.Scenario, r.m.Name), r.plan.Directory)
}

// stand makes machines and world stand, side by side: nobody runs yet.
func (r *restoring) stand(ctx context.Context) error {
	if r.newWorld && !r.fresh { // a world is cleared when nobody is in it any more
		if err := r.cfg.Lab.End(ctx, r.plan, r.machines...); err != nil {
			return err
		}
	}
	group, side := errgroup.WithContext(ctx)
	if r.newWorld {
		group.Go(func() error { return r.startWorld(side) })
	}
	for _, m := range r.machines {
		group.Go(func() error { return r.standMachine(side, m, r.state(m.Name)) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if r.o.Machine != "" && !r.newWorld {
		return nil // the others live in the world as it is
	}
	if err := r.cfg.Ports.World.SetState(ctx, r.plan.World, []byte(r.m.World)); err != nil {
		return fmt.Errorf("give the world its state: %w", err)
	}
	return nil
}

// startWorld begins the outside anew. One that lives is kept instead, and with
// it its issuer.
func (r *restoring) startWorld(ctx context.Context) error {
	ports := r.cfg.Ports
	if err := ports.World.Remove(ctx, r.plan.World, r.held.Record.World); err != nil {
		return fmt.Errorf("clear an earlier world: %w", err)
	}
	p, err := ports.World.Start(ctx, r.plan.World)
	if err != nil {
		return err
	}
	r.roots = true
	return r.held.Update(func(rec *lifecycle.Record) { rec.World = p })
}

// standMachine restores a machine, paused, on a new layer over the frozen one,
// once what was in its place has ended.
func (r *restoring) standMachine(ctx context.Context, m lifecycle.Machine, was Machine) error {
	if !r.fresh {
		if err := r.cfg.Lab.End(ctx, r.plan, m); err != nil {
			return err
		}
	}
	if err := r.cfg.Ports.Disks.Overlay(ctx, r.cfg.Lab.Layer(m.Layers[0]), m.Spec.Disk); err != nil {
		return err
	}
	if was.Memory == "" {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, memoryLimit, fmt.Errorf("not within %s", memoryLimit))
	defer cancel()
	memory := filepath.Join(r.store.Path(r.m.Scenario, r.m.Name), was.Memory)
	if err := r.cfg.Ports.Memory.Restore(ctx, r.spec(m), memory); err != nil {
		return fmt.Errorf("restore machine %s: %w", m.Name, err)
	}
	return nil
}

// each does something to every machine that has a memory, side by side.
func (r *restoring) each(ctx context.Context, do func(context.Context, lifecycle.Machine, Machine) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, m := range r.machines {
		if was := r.state(m.Name); was.Memory != "" {
			group.Go(func() error { return do(ctx, m, was) })
		}
	}
	return group.Wait()
}

// runOn resumes the machines and settles them. They meet the outside, and each
// other, only when each has the right clock and random numbers of its own.
func (r *restoring) runOn(ctx context.Context) error {
	trust, err := r.trust(ctx)
	if err != nil {
		return err
	}
	err = r.each(ctx, func(ctx context.Context, m lifecycle.Machine, was Machine) error {
		if was.Paused {
			return nil
		}
		if err := r.cfg.Ports.Hypervisor.Resume(ctx, m.Spec.Name); err != nil {
			return fmt.Errorf("resume machine %s: %w", m.Name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = r.each(ctx, func(ctx context.Context, m lifecycle.Machine, was Machine) error {
		if was.Paused {
			return nil
		}
		return r.settle(ctx, m, trust)
	})
	if err != nil {
		return err
	}
	off := func(m lifecycle.Machine) bool { return r.state(m.Name).Memory == "" } // struck when its power is given back
	if err := r.held.StrikeAgain(ctx, r.o.Frozen, slices.DeleteFunc(slices.Clone(r.machines), off)...); err != nil {
		return err
	}
	return r.each(ctx, func(ctx context.Context, m lifecycle.Machine, _ Machine) error {
		for _, nic := range m.Spec.NICs {
			if err := r.cfg.Ports.World.Attach(ctx, r.plan.World.Underlay, nic.Tap); err != nil {
				return fmt.Errorf("join machine %s: %w", m.Name, err)
			}
		}
		return nil
	})
}

// settle gives a machine that runs on what it cannot have from its snapshot.
func (r *restoring) settle(ctx context.Context, m lifecycle.Machine, trust []guest.File) error {
	ctx, cancel := context.WithTimeoutCause(ctx, settleLimit, fmt.Errorf("not within %s", settleLimit))
	defer cancel()
	err := r.cfg.Ports.Guest.Wait(ctx, m.Spec.Name)
	if err == nil {
		_, err = r.cfg.Ports.Guest.Settle(ctx, m.Spec.Name, guest.Identity{
			KeepClock: r.o.Frozen, Entropy: r.cfg.Entropy(), Files: trust, Silent: true,
		})
	}
	if err != nil {
		return errors.Join(fmt.Errorf("settle machine %s: %w", m.Name, err), r.end(ctx, m))
	}
	return nil
}

// end tells how a machine ended, if it did.
func (r *restoring) end(ctx context.Context, m lifecycle.Machine) error {
	said, err := r.cfg.Ports.Hypervisor.Diagnosis(context.WithoutCancel(ctx), m.Spec.Name)
	if err != nil || said == "" {
		return nil
	}
	return fmt.Errorf("its process said:\n%s", said)
}

// trust is what makes machines trust a new world; nothing where it is the old one.
func (r *restoring) trust(ctx context.Context) ([]guest.File, error) {
	if !r.roots {
		return nil, nil
	}
	roots, err := r.cfg.Ports.World.Roots(ctx, r.plan.World)
	if err != nil {
		return nil, fmt.Errorf("ask the world for its root certificates: %w", err)
	}
	r.cfg.Ports.Progress.Note("the world's issuer has a new root: machines trust it, and no certificate that was issued before")
	return guest.Trust(roots)
}
