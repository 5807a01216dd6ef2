package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"mesh/lab/lifecycle"
)

// Remove removes a snapshot. Scenarios and snapshots that come of it stay whole:
// they have memory of their own, and layers go when nobody stands on them.
func (s *Snapshots) Remove(scenario, name string) error {
	if err := s.store.Remove(scenario, name); err != nil {
		return err
	}
	return s.cfg.Lab.Collect()
}

// Verify reads all that a snapshot consists of, and reports what is not as it
// was when it was taken; nil when it is whole. ErrAbsent.
func (s *Snapshots) Verify(ctx context.Context, scenario, name string) error {
	m, done, err := s.store.Use(ctx, scenario, name)
	if err != nil {
		return err
	}
	defer done()
	var problems []error
	check := func(what, path, digest string, bytes int64) {
		if err := verify(ctx, path, digest, bytes); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", what, err))
		}
	}
	for _, f := range m.Files {
		check(f.Path, filepath.Join(s.store.Path(scenario, name), f.Path), f.SHA256, f.Bytes)
	}
	for _, l := range m.Layers {
		check("disk layer "+l.ID, s.cfg.Lab.Layer(l.ID), l.SHA256, l.Bytes)
	}
	if err := errors.Join(problems...); err != nil {
		return &lifecycle.Error{
			What: fmt.Sprintf("snapshot %s of %s is damaged", name, scenario), Where: s.store.Path(scenario, name), Why: err.Error(),
			Next: "it cannot be restored; `lab snapshot remove` removes it", Code: codeFailed,
		}
	}
	return nil
}

func verify(ctx context.Context, path, digest string, bytes int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	n, got, err := measure(ctx, f)
	switch {
	case err != nil:
		return err
	case n != bytes:
		return fmt.Errorf("it has %d bytes, not %d", n, bytes)
	case got != digest:
		return fmt.Errorf("its sha256 is %s, not %s", got, digest)
	}
	return nil
}
