package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// giveUp ends a raise that failed or was interrupted.
func (r *raise) giveUp(ctx context.Context, err error, keep bool) error {
	name := r.plan.Name
	stopped := interrupted(ctx)
	failure := r.failure(err, stopped)
	// The undoing must not end because the doing did.
	ctx = context.WithoutCancel(ctx)
	found := r.evidence(ctx, failure)
	undo, cancel := context.WithTimeout(ctx, undoLimit)
	defer cancel()
	if keep && failure.Code != codePrerequisite {
		failure.Next = found + fmt.Sprintf("what stands was kept: `lab status %[1]s`; the same raise again goes on; `lab destroy %[1]s` removes it", name)
		return errors.Join(failure, r.update(func(rec *Record) { rec.Phase = Partial }))
	}
	r.cfg.Progress.Note("undoing the raise of %s", name)
	if err := r.remove(undo, r.record); err != nil {
		failure.Next = found + fmt.Sprintf("not all of it could be undone: `lab destroy %s`", name)
		return errors.Join(failure, err)
	}
	failure.Next = found + failure.Next
	return failure
}

// failure tells in four parts why a raise ended.
func (r *raise) failure(err error, stopped bool) *Error {
	f := &Error{What: "raise " + r.plan.Name + ": interrupted", Code: codeInterrupted, Cause: err,
		Next: "everything it had made was undone"}
	if stopped {
		return f
	}
	f.What, f.Code = "raise "+r.plan.Name+" failed", codeFailed
	f.Next = "everything it had made was undone; `" + r.reproduce() + "` does it again and keeps what stands"
	f.Why = r.redact(err.Error())
	if coded := (interface{ ExitCode() int })(nil); errors.As(err, &coded) {
		f.Code = coded.ExitCode()
	}
	if f.Code == codePrerequisite {
		f.Next = "nothing was made; see `lab verify`"
	}
	if inner := (*Error)(nil); errors.As(err, &inner) {
		f.What += ": " + r.redact(inner.What)
		f.Where, f.Why = inner.Where, r.redact(inner.Why)
		if inner.Next != "" {
			f.Next = inner.Next
		}
	}
	return f
}

// reproduce is the command that does the same raise, stopping where it fails.
func (r *raise) reproduce() string {
	line := "lab raise " + r.plan.Source + " --keep"
	if r.plan.Name != r.plan.Scenario {
		line += " --as " + r.plan.Name
	}
	if r.plan.Accelerator != Auto {
		line += " --accelerator " + r.plan.Accelerator
	}
	if r.plan.Start == StartCold {
		line += " --cold"
	}
	if r.plan.Packages != "" {
		line += " --packages " + r.plan.Packages
	}
	return line
}

// redact takes saved values out of a text.
func (r *raise) redact(text string) string {
	for name, value := range r.saved {
		if v := strings.TrimSpace(string(value)); v != "" {
			text = strings.ReplaceAll(text, v, "(value of "+name+")")
		}
	}
	return text
}
