package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"mesh/lab/fault"
	"mesh/lab/guest"
	"mesh/lab/machine"
)

// Cut takes a machine's power away: it ends at once. It is the fault power-cut.
// A machine that is off stays off.
func (l *Lab) Cut(ctx context.Context, name, machineName string) error {
	return l.press(ctx, name, machineName, fault.PowerCut)
}

// Pause lets a machine's processors stand still. It is the fault pause. A paused
// machine stays paused.
func (l *Lab) Pause(ctx context.Context, name, machineName string) error {
	return l.press(ctx, name, machineName, fault.Pause)
}

// Reset presses a machine's reset button and waits until it has booted.
func (l *Lab) Reset(ctx context.Context, name, machineName string) error {
	return l.press(ctx, name, machineName, fault.ResetMachine)
}

// PowerOn gives a machine its power back, as it was declared, on the disk that
// it left behind, and waits until it is ready; its faults strike it again. Where
// the process that served disks was killed, another one does. One that runs is
// left alone.
func (l *Lab) PowerOn(ctx context.Context, name, machineName string) error {
	return l.change(ctx, name, machineName, func(s *striker, m Machine) error {
		return s.release(ctx, fault.PowerCut, m, s.powerOn)
	})
}

// Resume lets a paused machine run on. One that runs is left alone.
func (l *Lab) Resume(ctx context.Context, name, machineName string) error {
	return l.change(ctx, name, machineName, func(s *striker, m Machine) error {
		return s.release(ctx, fault.Pause, m, func(ctx context.Context, m Machine) error {
			return s.cfg.Hypervisor.Resume(ctx, m.Spec.Name)
		})
	})
}

// press does a fault of power to a machine, unless it is done already; then it is
// only made sure of.
func (l *Lab) press(ctx context.Context, name, machineName string, k fault.Kind) error {
	return l.change(ctx, name, machineName, func(s *striker, m Machine) error {
		f := fault.Fault{Kind: k, On: []fault.Target{{Kind: fault.Machine, Name: m.Name}}}
		if len(s.having(k, m)) > 0 {
			return s.strike(ctx, f)
		}
		_, err := s.add(ctx, f)
		return err
	})
}

// having are the names of the faults of a kind that strike a machine.
func (s *striker) having(k fault.Kind, m Machine) (names []string) {
	for _, f := range s.r.Faults {
		if f.Kind == k && f.strikes(m) {
			names = append(names, f.Name)
		}
	}
	return names
}

// release does what undoes a fault of power for one machine, and takes that
// machine out of the faults that it undoes.
func (s *striker) release(ctx context.Context, k fault.Kind, m Machine, do func(context.Context, Machine) error) error {
	if err := do(ctx, m); err != nil {
		return err
	}
	released := s.having(k, m)
	if len(released) == 0 {
		return nil
	}
	return s.update(func(r *Record) {
		r.Faults = slices.Clone(r.Faults)
		for _, name := range released {
			i := s.find(name)
			r.Faults[i].On = slices.DeleteFunc(slices.Clone(r.Faults[i].On), func(t fault.Target) bool { return t.Name == m.Name })
			if len(r.Faults[i].On) == 0 {
				r.Faults = slices.Delete(r.Faults, i, i+1)
			}
		}
	})
}

// cut ends a machine as if its power were gone.
func (s *striker) cut(ctx context.Context, m Machine) error {
	if why := s.r.Disks.Plain; why != "" {
		s.cfg.Progress.Note("what machine %s has not flushed survives here: %s", m.Name, why)
	}
	err := s.update(func(r *Record) {
		was := r.Machines[m.Name]
		was.Off = true
		r.Machines[m.Name] = was
	})
	if err != nil {
		return err
	}
	return s.end(ctx, s.r.Plan, m)
}

// powerOn boots a machine that does not run.
func (s *striker) powerOn(ctx context.Context, m Machine) error {
	if state, err := s.cfg.Hypervisor.State(ctx, m.Spec.Name); err == nil && state == machine.Running && !s.r.Machines[m.Name].Off {
		return nil
	}
	// A machine that was left half started is begun anew.
	if err := s.end(ctx, s.r.Plan, m); err != nil {
		return err
	}
	if err := s.serveAgain(ctx); err != nil {
		return err
	}
	if err := s.spareDisk(ctx, m); err != nil { // else nothing could be booted from
		return err
	}
	end, err := s.turn(ctx, m)
	if err != nil {
		return err
	}
	defer end()
	begun := s.cfg.Now()
	ctx, cancel := s.booting(ctx)
	defer cancel()
	err = s.watched(ctx, s.r.Plan, func(ctx context.Context, w *watch) error {
		if err := s.create(ctx, m, s.r.Accelerator); err != nil {
			return err
		}
		if err := s.attach(ctx, s.r.Plan, m); err != nil {
			return err
		}
		w.add(m)
		if !s.impaired() {
			return s.bootMachine(ctx, s.r.Plan, m, guest.Identity{})
		}
		if err := s.cfg.Hypervisor.Resume(ctx, m.Spec.Name); err != nil {
			return err
		}
		return s.answers(ctx, m)
	})
	if err != nil {
		return fmt.Errorf("power on machine %s: %w", m.Name, err)
	}
	err = s.update(func(r *Record) {
		r.Machines[m.Name] = MachineRecord{
			Accelerator: r.Accelerator, Start: StartCold, ReadySeconds: s.since(begun),
		}
	})
	if err != nil {
		return err
	}
	return s.again(ctx, m)
}

// turn waits until a machine may boot.
func (s *striker) turn(ctx context.Context, m Machine) (end func(), err error) {
	return s.Turn(ctx, Beginning{Accelerator: s.r.Accelerator, Cold: true, What: "boot machine " + m.Name})
}

// booting bounds a boot.
func (s *striker) booting(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := s.bootLimit(s.r.Accelerator)
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w after %s", errTimeout, limit))
}

// answers waits until a machine's agent answers and gives it its clock; more
// cannot be asked of one whose network is impaired.
func (s *striker) answers(ctx context.Context, m Machine) error {
	if err := s.cfg.Guest.Wait(ctx, m.Spec.Name); err != nil {
		return err
	}
	_, err := s.cfg.Guest.Settle(ctx, m.Spec.Name, guest.Identity{})
	return err
}

// bootIDScript tells one boot from another: random(4).
const bootIDScript = "cat /proc/sys/kernel/random/boot_id"

// reset presses the reset button and waits until another boot answers. An agent
// that does not answer before is no hindrance: then the first that does is it.
func (s *striker) reset(ctx context.Context, m Machine) error {
	end, err := s.turn(ctx, m)
	if err != nil {
		return err
	}
	defer end()
	short, cancel := context.WithTimeout(ctx, askLimit)
	before, _ := s.bootID(short, m)
	cancel()
	if err := s.cfg.Abuse.Reset(ctx, m.Spec.Name); err != nil {
		return err
	}
	if err := s.update(func(r *Record) {
		was := r.Machines[m.Name]
		was.Frozen = false // it has another clock after its boot
		r.Machines[m.Name] = was
	}); err != nil {
		return err
	}
	ctx, cancel = s.booting(ctx)
	defer cancel()
	look := time.NewTicker(4 * s.cfg.Poll)
	defer look.Stop()
	for {
		if err := s.cfg.Guest.Wait(ctx, m.Spec.Name); err != nil {
			return err
		}
		short, cancel := context.WithTimeout(ctx, askLimit)
		now, err := s.bootID(short, m)
		cancel()
		if err == nil && now != before {
			break
		}
		if errors.Is(err, machine.ErrAbsent) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for its boot: %w", context.Cause(ctx))
		case <-look.C:
		}
	}
	if err := s.answers(ctx, m); err != nil {
		return err
	}
	return s.again(ctx, m)
}

func (s *striker) bootID(ctx context.Context, m Machine) (string, error) {
	out, err := s.cfg.Guest.Exec(ctx, m.Spec.Name, guest.Shell(bootIDScript))
	return strings.TrimSpace(string(out.Stdout)), err
}

// change holds a raised scenario while work changes one machine of it.
func (l *Lab) change(ctx context.Context, name, machineName string, work func(*striker, Machine) error) error {
	if _, _, err := l.Find(name, machineName); err != nil {
		return err
	}
	return l.changing(ctx, name, "change machine "+machineName+" of "+name, func(r *Record) error {
		m, err := r.Plan.Machine(machineName)
		if err != nil {
			return err
		}
		return work(&striker{l, r}, m)
	})
}

// changing holds a raised scenario while work changes it. what says in an error
// what was wanted.
func (l *Lab) changing(ctx context.Context, name, what string, work func(*Record) error) error {
	if _, err := l.Record(name); err != nil {
		return err
	}
	if err := l.needRoot(what); err != nil {
		return err
	}
	held, err := l.hold(name)
	if err != nil {
		return err
	}
	defer held.release()
	r, err := l.Record(name) // as it is under the lock
	if err != nil {
		return err
	}
	if r.Phase != Raised && r.Phase != Partial {
		return &Error{
			What: fmt.Sprintf("scenario %s is not raised", name), Why: l.abandoned(r),
			Next: "`lab reap` removes what an interrupted command left", Code: codeFailed,
		}
	}
	if err := l.cfg.Daemon.Ensure(ctx); err != nil {
		return fmt.Errorf("hypervisor: %w", err)
	}
	return work(&r)
}
