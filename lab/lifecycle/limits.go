package lifecycle

import (
	"errors"
	"fmt"
	"time"

	"mesh/lab/machine"
)

// errTimeout is the cause of a step's context that ran out of time.
var errTimeout = errors.New("out of time")

// undoLimit bounds the removal of a scenario.
const undoLimit = 3 * time.Minute

// What the limits of what a machine does assume: a cold boot to the ready point
// takes 4 s under KVM and slower times as long, 40 s, under emulation.
const (
	assumedBoot = 4 * time.Second
	slower      = 10
)

// mostScale bounds how far a boot that was measured stretches a limit.
const mostScale = 4

// limit is how long a step may take.
func (r *raise) limit(k Kind) time.Duration {
	a := r.accelerator()
	return limit(k, a, r.booted(a))
}

// bootLimit is how long a boot under a may take.
func (l *Lab) bootLimit(a machine.Accelerator) time.Duration {
	return limit(StepBoot, a, l.booted(a))
}

// booted is the longest that a boot of a warm image of this store took under a;
// 0 where none was made.
func (l *Lab) booted(a machine.Accelerator) time.Duration {
	all, err := l.warmStore().List()
	if err != nil {
		return 0 // told by whoever needs one
	}
	var longest float64
	for _, w := range all {
		if w.Of.Platform.Accelerator == a {
			longest = max(longest, w.BootSeconds)
		}
	}
	return time.Duration(longest * float64(time.Second))
}

// limit is how long a step of that kind may take under a, where a boot took
// booted: never less than where none was measured, which is 0. What the lab
// machine does itself takes as long everywhere.
func limit(k Kind, a machine.Accelerator, booted time.Duration) time.Duration {
	base := 2 * time.Minute // done by the lab machine
	switch k {
	case StepWarm:
		base = 3 * time.Minute // another command's making may have to be waited for
	case StepBoot:
		base = 40 * time.Second
	case StepPlace:
		base = 3 * time.Minute
	default:
		return base
	}
	assumed := assumedBoot
	if a == machine.TCG {
		base, assumed = base*slower, assumed*slower
	}
	scale := min(max(booted.Seconds()/assumed.Seconds(), 1), mostScale)
	return time.Duration(float64(base) * scale).Round(time.Second)
}

// late explains that a step took too long.
func (r *raise) late(s Step, limit time.Duration, err error) error {
	e := &Error{
		What: s.About + ": not within " + limit.String(),
		Why:  fmt.Sprintf("last seen: %v\nmachines run by %s", err, r.record.Accelerator),
		Code: codeFailed, Cause: err,
	}
	if inner := (*Error)(nil); errors.As(err, &inner) {
		e.Where, e.Why = inner.Where, inner.Why
	}
	if m, err := r.plan.Machine(s.Machine); err == nil {
		e.Where = "machine " + m.Name
		e.Why += "\n" + consoleTail(m)
	}
	return e
}
