package lifecycle

import (
	"context"
	"errors"
	"fmt"
)

// preflight finds what keeps a raise from working, before anything is made. It
// reports all of it.
func (l *Lab) preflight(p Plan) error {
	if err := l.needRoot("raise " + p.Name); err != nil {
		return err
	}
	r, err := readRecord(p.Directory)
	if err == nil && r.Phase != Raising && r.Phase != Destroying && r.Phase != Partial {
		return taken(r)
	}
	return nil
}

// needRoot refuses what only root can do.
func (l *Lab) needRoot(what string) error {
	if l.cfg.Computer.Root() {
		return nil
	}
	return &Error{
		What: what, Why: "network namespaces, taps and virtual machines need root",
		Next: "run it as root (sudo)", Code: codePrerequisite,
	}
}

// room checks memory, beside what others were promised, and disk. errShort, errNever.
func (l *Lab) room(ctx context.Context, p Plan) error {
	memory, err := l.cfg.Computer.FreeMemory()
	if err != nil {
		return fmt.Errorf("measure memory: %w", err)
	}
	total, err := l.cfg.Computer.Memory()
	if err != nil {
		return fmt.Errorf("measure memory: %w", err)
	}
	others, err := l.promised(ctx, p.Name)
	if err != nil {
		return err
	}
	space, err := l.cfg.Computer.FreeSpace(p.Directory)
	if err != nil {
		return fmt.Errorf("measure disk space: %w", err)
	}
	problems := []error{shortOf(p, memory, total, others)}
	if space < p.DiskBytes {
		problems = append(problems, &Error{
			What: "not enough disk space to raise " + p.Name, Where: p.Directory,
			Why:  fmt.Sprintf("it needs %d MiB, %d MiB are free", p.DiskBytes>>20, space>>20),
			Next: "free some there, or keep the store elsewhere with --store", Code: codePrerequisite, Cause: errShort,
		})
	}
	return errors.Join(problems...)
}

// where names a placement's place in the document.
func where(p Plan, s Step) string {
	return fmt.Sprintf("%s:%d, machine %s", p.Document, s.Place.Line, s.Machine)
}
