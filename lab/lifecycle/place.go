package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
)

// place carries out one placement.
func (r *raise) place(ctx context.Context, s Step) error {
	m, err := r.plan.Machine(s.Machine)
	if err != nil {
		return err
	}
	switch {
	case s.Place.Package != "":
		err = r.script(ctx, m, "DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "+quote(s.Place.Package), nil, nil)
	case s.Place.File != "":
		err = r.placeFile(ctx, m, *s.Place)
	default:
		err = r.placeRun(ctx, m, *s.Place)
	}
	if failed := (*Error)(nil); errors.As(err, &failed) {
		failed.Where = where(r.plan, s)
	}
	return err
}

func (r *raise) placeFile(ctx context.Context, m Machine, p Placement) error {
	f, err := r.files.Open(p.File)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := r.script(ctx, m, "mkdir -p "+quote(path.Dir(p.To)), nil, nil); err != nil {
		return err
	}
	if err := r.cfg.Guest.CopyIn(ctx, m.Spec.Name, f, p.To, 0o644); err != nil {
		return fmt.Errorf("write %s on machine %s: %w", p.To, m.Name, err)
	}
	return nil
}

func (r *raise) placeRun(ctx context.Context, m Machine, p Placement) error {
	var keep func([]byte)
	if p.Save != "" {
		keep = func(value []byte) { r.saved[p.Save] = value }
	}
	return r.script(ctx, m, p.Run, r.saved[p.Input], keep)
}

// neededAgain tells whether a step that was done by an earlier process gave a
// value that a step still to be done takes. Values are written nowhere, so such
// a step is done again.
func (r *raise) neededAgain(s Step) bool {
	if s.Place == nil || s.Place.Save == "" || r.saved[s.Place.Save] != nil {
		return false
	}
	for _, later := range r.plan.Steps {
		if later.Place != nil && later.Place.Input == s.Place.Save && r.state(later.ID) != Done {
			return true
		}
	}
	return false
}

// quote makes one word of the shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
