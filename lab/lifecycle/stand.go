package lifecycle

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"mesh/lab/guest"
	"mesh/lab/images"
	"mesh/lab/machine"
)

// findWarm finds or makes the warm image of a step's machines. Where that cannot
// be done, it says why and they boot.
func (r *raise) findWarm(ctx context.Context, step string) error {
	var names []string
	var like Machine
	for _, m := range r.plan.Machines {
		if r.plan.startsWarm(m) && warmStep(m) == step {
			names, like = append(names, m.Name), m
		}
	}
	image := images.Image{
		Name: like.Image, Content: like.Content, Cmdline: like.Boot,
		Disk: like.Base, Kernel: like.Spec.Kernel, Initrd: like.Spec.Initrd,
	}
	w, err := r.warm(ctx, image, Size{like.Spec.MemoryBytes, like.Spec.CPUs}, r.accelerator())
	if err != nil && ctx.Err() != nil {
		return err
	}
	if err != nil {
		r.cfg.Progress.Note("no warm start of %s, so these machines boot: %v", sized(like), err)
		return r.stands(names, "", nil)
	}
	return r.stands(names, w.Digest, []string{w.Layer})
}

func (r *raise) accelerator() machine.Accelerator {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record.Accelerator
}

// stands writes down which warm image machines are cloned from, and so on which
// layers they will stand; none for machines that boot.
func (r *raise) stands(names []string, warm string, layers []string) error {
	return r.update(func(rec *Record) {
		rec.Machines, rec.Plan.Machines = maps.Clone(rec.Machines), slices.Clone(rec.Plan.Machines)
		for i := range rec.Plan.Machines {
			m := &rec.Plan.Machines[i]
			if slices.Contains(names, m.Name) {
				m.Layers = layers
				rec.Machines[m.Name] = MachineRecord{Warm: warm}
			}
		}
	})
}

// stand makes a machine, paused: a clone of its warm image without a NIC, or one
// that is to boot. A clone that cannot be made is told, and the machine boots.
func (r *raise) stand(ctx context.Context, name string, again bool) error {
	m, err := r.machine(name)
	if err != nil {
		return err
	}
	if again {
		if err := r.end(ctx, r.plan, m); err != nil {
			return err
		}
	}
	if warm := r.warmOf(name); warm != "" {
		err := r.clone(ctx, m, warm)
		if err == nil || ctx.Err() != nil {
			return err
		}
		r.cfg.Progress.Note("no warm start of machine %s, so it boots: %v; `lab image remove %s --warm` has it made anew", name, err, m.Image)
		if err := r.stands([]string{name}, "", nil); err != nil {
			return err
		}
		if err := r.end(ctx, r.plan, m); err != nil {
			return err
		}
		if err := r.disk(ctx, name); err != nil {
			return err
		}
	} else if r.plan.Start == StartWarm && !r.plan.startsWarm(m) {
		r.cfg.Progress.Note("no warm start of machine %s, so it boots: warm images have no display", name)
	}
	return r.create(ctx, m, r.accelerator())
}

// warmOf is the digest of the warm image that a machine is cloned from; empty
// for one that boots.
func (r *raise) warmOf(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record.Machines[name].Warm
}

// clone makes a machine, paused and without a NIC, from a warm image.
func (r *raise) clone(ctx context.Context, m Machine, warm string) error {
	w, err := r.warmStore().Get(warm)
	if err != nil {
		return err
	}
	spec := m.Spec
	spec.Accelerator, spec.NICs = r.accelerator(), nil
	if err := r.cfg.Memory.Restore(ctx, spec, w.Memory); err != nil {
		return fmt.Errorf("clone machine %s: %w", m.Name, err)
	}
	return nil
}

// create makes a machine, paused, that is to boot.
func (l *Lab) create(ctx context.Context, m Machine, a machine.Accelerator) error {
	spec := m.Spec
	spec.Accelerator = a
	if err := l.cfg.Hypervisor.Create(ctx, spec); err != nil {
		return fmt.Errorf("create machine %s: %w", m.Name, err)
	}
	return nil
}

// join joins a machine's NICs to their segments; a clone gets them first. From
// then on it is watched.
func (r *raise) join(ctx context.Context, name string, again bool) error {
	if again { // it cannot be told which NICs it got
		if err := r.stand(ctx, name, again); err != nil {
			return err
		}
	}
	m, err := r.machine(name)
	if err != nil {
		return err
	}
	if r.warmOf(name) != "" {
		for _, nic := range m.Spec.NICs {
			if err := r.cfg.Memory.Plug(ctx, m.Spec.Name, nic); err != nil {
				return fmt.Errorf("join machine %s: %w", name, err)
			}
		}
	}
	if err := r.attach(ctx, r.plan, m); err != nil {
		return err
	}
	r.watch.add(m)
	return nil
}

// attach joins a machine's taps to the bridges of their segments.
func (l *Lab) attach(ctx context.Context, p Plan, m Machine) error {
	for _, nic := range m.Spec.NICs {
		if err := l.cfg.World.Attach(ctx, p.World.Underlay, nic.Tap); err != nil {
			return fmt.Errorf("join machine %s: %w", m.Name, err)
		}
	}
	return nil
}

// boot lets a machine run and waits until it is ready.
func (r *raise) boot(ctx context.Context, name string) error {
	m, err := r.machine(name)
	if err != nil {
		return err
	}
	warm := r.warmOf(name)
	begun := r.cfg.Now()
	id, err := r.identity(ctx, m, warm != "")
	if err != nil {
		return err
	}
	if err := r.bootMachine(ctx, r.plan, m, id); err != nil {
		return err
	}
	start := StartCold
	if warm != "" {
		start = StartWarm
	}
	return r.update(func(rec *Record) {
		seconds := rec.step(of(StepMachine, m)).Seconds + rec.step(of(StepJoin, m)).Seconds + r.since(begun)
		rec.Machines = maps.Clone(rec.Machines)
		rec.Machines[name] = MachineRecord{Accelerator: rec.Accelerator, Start: start, Warm: warm, ReadySeconds: seconds}
	})
}

// bootMachine resumes a machine that is paused, and waits until it is ready.
func (l *Lab) bootMachine(ctx context.Context, p Plan, m Machine, id guest.Identity) error {
	state, err := l.cfg.Hypervisor.State(ctx, m.Spec.Name)
	if err != nil {
		return fmt.Errorf("look at machine %s: %w", m.Name, err)
	}
	if state == machine.Paused {
		if err := l.cfg.Hypervisor.Resume(ctx, m.Spec.Name); err != nil {
			return fmt.Errorf("resume machine %s: %w", m.Name, err)
		}
	}
	return l.ready(ctx, p, m, id)
}
