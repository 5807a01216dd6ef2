package lifecycle

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"mesh/lab/fault"
	"mesh/lab/guest"
	"mesh/lab/machine"
	"mesh/lab/volatile"
)

// faultLimit is how long one fault may take to strike a machine or to leave it,
// booting excepted. It is for machines under KVM.
const faultLimit = 10 * time.Second

func (s *striker) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := faultLimit
	if s.r.Accelerator == machine.TCG {
		limit *= slower
	}
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w after %s", errTimeout, limit))
}

// mustRun refuses a machine that does not run.
func (s *striker) mustRun(ctx context.Context, name string) error {
	m, err := s.r.Plan.Machine(name)
	if err != nil {
		return err
	}
	state, err := s.cfg.Hypervisor.State(ctx, m.Spec.Name)
	switch {
	case errors.Is(err, machine.ErrAbsent):
		return &Error{What: "machine " + name + " is off", Next: fmt.Sprintf("`lab power on %s %s`", s.r.Plan.Name, name), Code: codeFailed, Cause: err}
	case err != nil:
		return fmt.Errorf("look at machine %s: %w", name, err)
	case state == machine.Paused:
		return &Error{What: "machine " + name + " is paused", Next: fmt.Sprintf("`lab power resume %s %s`", s.r.Plan.Name, name), Code: codeFailed}
	}
	return nil
}

// strikeMachine does a fault to one machine. Each way is idempotent.
func (s *striker) strikeMachine(ctx context.Context, f fault.Fault, m Machine, t fault.Target) error {
	switch f.Kind { // those that take as long as a boot
	case fault.PowerCut:
		return s.cut(ctx, m)
	case fault.ResetMachine:
		return s.reset(ctx, m)
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	switch f.Kind {
	case fault.Pause:
		return s.cfg.Memory.Pause(ctx, m.Spec.Name)
	case fault.DiskSlow:
		return s.cfg.Abuse.Throttle(ctx, m.Spec.Name, machine.Throttle{BytesPerSecond: f.Rate.Bytes(), OperationsPerSecond: int64(f.Ops)})
	case fault.DiskDetached:
		return s.cfg.Abuse.Detach(ctx, m.Spec.Name)
	case fault.DiskError:
		return s.diskError(ctx, m, diskFault(f.How))
	case fault.LinkDown:
		return s.links(ctx, m, t, func(string) bool { return false })
	case fault.DiskFull:
		return s.inside(ctx, m, "fill", f.Name, int64(f.Leave))
	case fault.Memory:
		return s.inside(ctx, m, "hold", f.Name, (int64(f.Size)+1<<20-1)>>20)
	case fault.ClockStep:
		return s.inside(ctx, m, "step", f.Name, int64(f.By))
	case fault.ClockDrift:
		return s.inside(ctx, m, "drift", f.Name, int64(f.Drift))
	}
	return fmt.Errorf("%s cannot be done here", f.Kind)
}

// relentMachine undoes a fault of one machine. One that has ended since has
// nothing left of it but what is on its disk.
func (s *striker) relentMachine(ctx context.Context, f fault.Fault, m Machine, t fault.Target) error {
	if f.Kind == fault.PowerCut {
		return s.powerOn(ctx, m)
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	err := s.relentRunning(ctx, f, m, t)
	if errors.Is(err, machine.ErrAbsent) && f.Kind != fault.DiskFull {
		return nil
	}
	return err
}

func (s *striker) relentRunning(ctx context.Context, f fault.Fault, m Machine, t fault.Target) error {
	switch f.Kind {
	case fault.Pause:
		return s.cfg.Hypervisor.Resume(ctx, m.Spec.Name)
	case fault.DiskSlow:
		return s.cfg.Abuse.Throttle(ctx, m.Spec.Name, machine.Throttle{})
	case fault.DiskDetached:
		return s.cfg.Abuse.Attach(ctx, m.Spec.Name)
	case fault.DiskError:
		return s.spareDisk(ctx, m)
	case fault.LinkDown:
		return s.links(ctx, m, t, func(segment string) bool { return !s.pulled(f.Name, m.Name, segment) })
	}
	// What is done in the guest can be undone only while it runs.
	if err := s.mustRun(ctx, m.Name); err != nil {
		return err
	}
	switch f.Kind {
	case fault.DiskFull:
		return s.inside(ctx, m, "drain", f.Name, 0)
	case fault.Memory:
		return s.inside(ctx, m, "let-go", f.Name, 0)
	case fault.ClockStep:
		return s.inside(ctx, m, "step-back", f.Name, -int64(f.By))
	case fault.ClockDrift:
		return s.inside(ctx, m, "drift", f.Name, 0)
	}
	return fmt.Errorf("%s cannot be undone here", f.Kind)
}

// DiskFaults makes the disks of machines fail.
type DiskFaults interface {
	// SetFault makes a disk, named by its file, fail in some way, or in none. control
	// is the socket of the process that serves it. volatile.ErrAbsent.
	SetFault(ctx context.Context, control, disk string, f volatile.Fault) error
}

// diskError makes the disk of a machine fail in some way, or in none.
func (s *striker) diskError(ctx context.Context, m Machine, f volatile.Fault) error {
	err := s.cfg.DiskFaults.SetFault(ctx, volatile.Control(s.r.Plan.Runtime), m.Spec.Disk, f)
	if errors.Is(err, volatile.ErrAbsent) {
		return fmt.Errorf("only a disk that the lab serves can fail (`lab status %s` tells why it does not): %w", s.r.Plan.Name, err)
	}
	return err
}

// spareDisk lets the disk of a machine work again. One that nobody serves does
// not fail in that way.
func (s *striker) spareDisk(ctx context.Context, m Machine) error {
	err := s.diskError(ctx, m, volatile.Fault{})
	if errors.Is(err, volatile.ErrAbsent) {
		return nil
	}
	return err
}

// diskFault is what a manner of failing means for a disk. What was written before
// can be flushed: QEMU would remember a flush that failed, and fail every later one
// and each snapshot of the machine for as long as it runs (block/file-posix.c).
func diskFault(how fault.How) volatile.Fault {
	switch how {
	case fault.Reads:
		return volatile.Fault{Read: volatile.EIO}
	case fault.Writes:
		return volatile.Fault{Write: volatile.EIO}
	}
	return volatile.Fault{Read: volatile.EIO, Write: volatile.EIO}
}

// links pulls or plugs the cables of a target; up tells of each segment.
func (s *striker) links(ctx context.Context, m Machine, t fault.Target, up func(segment string) bool) error {
	at, err := place(s.r.Plan, m.Name)
	if err != nil {
		return err
	}
	for _, nic := range at.NICs {
		if t.Segment != "" && t.Segment != nic.Segment {
			continue
		}
		if err := s.cfg.Abuse.Link(ctx, m.Spec.Name, nic.MAC, up(nic.Segment)); err != nil {
			return err
		}
	}
	return nil
}

// pulled tells whether another fault than the named one pulls a machine's cable
// in a segment.
func (s *striker) pulled(but, name, segment string) bool {
	return slices.ContainsFunc(s.r.Faults, func(f FaultRecord) bool {
		return f.Kind == fault.LinkDown && f.Name != but && f.State != Undoing && slices.ContainsFunc(f.On, func(t fault.Target) bool {
			return t.Kind == fault.Machine && t.Name == name && (t.Segment == "" || t.Segment == segment)
		})
	})
}

// faultScript is what does faults inside a machine.
//
//go:embed fault.pl
var faultScript string

// inside does or undoes a fault in the guest.
func (s *striker) inside(ctx context.Context, m Machine, what, name string, much int64) error {
	out, err := s.cfg.Guest.Exec(ctx, m.Spec.Name, guest.Command{
		Args: []string{"/usr/bin/perl", "-e", faultScript, "--", what, name, strconv.FormatInt(much, 10)},
	})
	if err == nil && out.ExitCode != 0 {
		err = fmt.Errorf("%s: exit code %d: %s", what, out.ExitCode, strings.TrimSpace(string(out.Stderr)))
	}
	return err
}

// again makes the faults of a machine that has booted anew strike it again. What
// is on its disk is there still.
func (s *striker) again(ctx context.Context, m Machine) error {
	var problems []error
	for _, f := range s.r.Faults {
		if f.OfWorld() || f.State != InForce || f.Kind == fault.PowerCut || f.Kind == fault.DiskFull {
			continue
		}
		for _, t := range f.On {
			if t.Name != m.Name {
				continue
			}
			err := error(nil)
			if f.Kind == fault.ClockStep {
				err = s.stepAgain(ctx, m, f)
			} else {
				err = s.strikeMachine(ctx, f.Fault, m, t)
			}
			if err != nil {
				problems = append(problems, fmt.Errorf("fault %s strikes no more: %w", f.Name, err))
			}
		}
	}
	return errors.Join(problems...)
}

// impaired tells whether something may keep a machine from its addresses.
func (s *striker) impaired() bool {
	return slices.ContainsFunc(s.r.Faults, func(f FaultRecord) bool { return f.OfWorld() })
}
