package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"mesh/lab/fault"
)

// RunTimeline does the steps of a timeline to a raised scenario, each at its
// time, counted from now by a clock that nobody sets. told is called before each
// step with the time that has passed, and may be nil. A step that takes longer
// than the next one's time delays that one. Faults that no step undoes stay in
// force. If a step fails, or ctx ends, what the timeline has added is undone and
// no more is done. ErrAbsent.
func (l *Lab) RunTimeline(ctx context.Context, name string, t fault.Timeline, told func(elapsed time.Duration, s fault.Step)) error {
	r, err := l.Record(name)
	if err != nil {
		return err
	}
	if t, err = t.Resolve(r.Plan.World.Underlay); err != nil {
		return err
	}
	for _, s := range t.Steps {
		if s.Add != nil && slices.ContainsFunc(r.Faults, func(f FaultRecord) bool { return f.Name == s.Add.Name }) {
			return &Error{What: fmt.Sprintf("scenario %s has a fault %s already", name, s.Add.Name), Where: fmt.Sprintf("%s:%d", t.File, s.Line),
				Next: fmt.Sprintf("undo that one first: `lab fault remove %s %s`", name, s.Add.Name), Code: codeUsage}
		}
	}
	var added []string
	begun := time.Now() // with its monotonic reading
	for _, s := range t.Steps {
		if err = until(ctx, begun.Add(time.Duration(s.At))); err != nil {
			break
		}
		if told != nil {
			told(time.Since(begun), s)
		}
		if added, err = l.timelineStep(ctx, name, s, added); err != nil {
			err = fmt.Errorf("%s:%d: %w", t.File, s.Line, err)
			break
		}
	}
	if err == nil || len(added) == 0 {
		return err
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	l.cfg.Progress.Note("undoing %v", added)
	return errors.Join(err, l.undoFaults(undo, name, added))
}

// timelineStep does one step; it gives the names of the faults that were added
// and not undone.
func (l *Lab) timelineStep(ctx context.Context, name string, s fault.Step, added []string) ([]string, error) {
	if s.Add != nil {
		f, err := l.AddFault(ctx, name, *s.Add)
		if err == nil && f.State != "" {
			added = append(added, f.Name)
		}
		return added, err
	}
	undone := []string{s.Undo}
	if s.Undo == fault.UndoAll {
		undone = slices.Clone(added)
	}
	undone = slices.DeleteFunc(undone, func(n string) bool { return !slices.Contains(added, n) }) // undone before
	if len(undone) == 0 {
		return added, nil
	}
	if err := l.undoFaults(ctx, name, undone); err != nil {
		return added, err
	}
	return slices.DeleteFunc(added, func(n string) bool { return slices.Contains(undone, n) }), nil
}

// until waits for a time, or for the end of ctx, whose cause is the error.
func until(ctx context.Context, at time.Time) error {
	wait := time.NewTimer(time.Until(at))
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
