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

// slower is how much more time an emulated machine gets: a cold boot takes 3–4 s
// under KVM and 30–45 s under emulation; two of them on two cores a third more.
const slower = 10

// limit is how long a step may take.
func (r *raise) limit(k Kind) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return limit(k, r.record.Accelerator)
}

func limit(k Kind, a machine.Accelerator) time.Duration {
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
	if a == machine.TCG {
		return base * slower
	}
	return base
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
