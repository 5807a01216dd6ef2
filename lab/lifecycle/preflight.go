package lifecycle

import (
	"errors"
	"fmt"
)

// preflight finds what keeps a raise from working, before anything is made. It
// reports all of it.
func (l *Lab) preflight(p Plan) error {
	if err := l.needRoot("raise " + p.Name); err != nil {
		return err
	}
	if r, err := readRecord(p.Directory); err == nil && r.Phase != Raising && r.Phase != Destroying {
		if r.Phase != Partial {
			return taken(r)
		}
		return nil // resources were enough once, and part of them is in use
	}
	return l.room(p)
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

// room checks memory and disk.
func (l *Lab) room(p Plan) error {
	memory, err := l.cfg.Computer.FreeMemory()
	if err != nil {
		return fmt.Errorf("measure memory: %w", err)
	}
	space, err := l.cfg.Computer.FreeSpace(p.Directory)
	if err != nil {
		return fmt.Errorf("measure disk space: %w", err)
	}
	short := func(what, where string, need, have int64, next string) error {
		if have >= need {
			return nil
		}
		return &Error{
			What: "not enough " + what + " to raise " + p.Name, Where: where,
			Why:  fmt.Sprintf("%d machines need %d MiB, %d MiB are free", len(p.Machines), need>>20, have>>20),
			Next: next, Code: codePrerequisite,
		}
	}
	return errors.Join(
		short("memory", "", p.MemoryBytes, memory,
			"destroy another scenario (`lab list`), or give the machines less memory"),
		short("disk space", p.Directory, p.DiskBytes, space,
			"free some there, or keep the store elsewhere with --store"),
	)
}

// where names a placement's place in the document.
func where(p Plan, s Step) string {
	return fmt.Sprintf("%s:%d, machine %s", p.Document, s.Place.Line, s.Machine)
}
