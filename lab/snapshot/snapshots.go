package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"mesh/lab/images"
	"mesh/lab/lifecycle"
)

// Config is what Snapshots stand on. All of it must be set.
type Config struct {
	Lab     *lifecycle.Lab
	Ports   lifecycle.Config               // that Lab was made of
	Images  func() ([]images.Image, error) // those that are built
	NewRun  func() string                  // a fresh run's id: 8 hex digits
	NewID   func() string                  // 32 hex digits that nobody else has
	Entropy func() []byte                  // random bytes that nobody else has
}

// Snapshots takes, restores and removes snapshots of one store. Safe for
// concurrent use, by several processes too: each scenario is changed by one at
// a time.
type Snapshots struct {
	cfg   Config
	store Store
}

// New makes Snapshots; nothing happens yet.
func New(cfg Config) *Snapshots { return &Snapshots{cfg, Store{cfg.Ports.Store}} }

// Store is where the snapshots are.
func (s *Snapshots) Store() Store { return s.store }

// Limits of what is asked of one machine.
const (
	pauseLimit  = 10 * time.Second // a machine that does not stop by then hangs
	memoryLimit = 2 * time.Minute  // to write or read its memory
	settleLimit = 3 * time.Minute  // to have clock and entropy, once it runs
	// undoLimit bounds what is done after a failure or an interruption.
	undoLimit = 2 * time.Minute
)

// undoing is a context for undoing, which must not end because the doing did.
func undoing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
}

// held takes a scenario for changing it, having checked that it may be.
func (s *Snapshots) held(what, name string) (*lifecycle.Held, error) {
	if err := lifecycle.CheckName(name); err != nil {
		return nil, err
	}
	if !s.cfg.Ports.Computer.Root() {
		return nil, &lifecycle.Error{
			What: what, Why: "virtual machines and their networks need root", Next: "run it as root (sudo)", Code: codePrerequisite,
		}
	}
	return s.cfg.Lab.Hold(name)
}

// raised takes a scenario that is raised. One whose snapshot was cut off is put
// right first.
func (s *Snapshots) raised(ctx context.Context, what, name string) (*lifecycle.Held, error) {
	if _, err := s.cfg.Lab.Record(name); err != nil {
		return nil, err
	}
	h, err := s.held(what, name)
	if err != nil {
		return nil, err
	}
	if h.Record != nil && h.Record.Phase == lifecycle.Snapshotting {
		if err = h.Settle(ctx); err != nil {
			h.Release()
			return nil, err
		}
	}
	if h.Record == nil || h.Record.Phase != lifecycle.Raised {
		h.Release()
		return nil, &lifecycle.Error{
			What: what, Why: "the scenario is not raised, or only in part",
			Next: "`lab status " + name + "` tells how it is", Code: codeFailed,
		}
	}
	if err := s.cfg.Ports.Daemon.Ensure(ctx); err != nil {
		h.Release()
		return nil, fmt.Errorf("hypervisor: %w", err)
	}
	return h, nil
}

func isAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// Sweep removes what snapshots that were cut off have left: files without a
// manifest, and layers that nobody uses. What another command is at is left alone.
func (s *Snapshots) Sweep() error {
	scenarios, err := entries(s.store.root())
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	for _, scenario := range scenarios {
		if err := s.sweep(scenario); err != nil {
			return err
		}
	}
	return s.cfg.Lab.Collect()
}

func (s *Snapshots) sweep(scenario string) error {
	all, err := entries(s.store.Path(scenario, ""))
	if err != nil {
		return err
	}
	whole, err := s.store.names(scenario)
	for _, name := range whole {
		err = errors.Join(err, s.store.sweepStaged(scenario, name))
	}
	if err != nil || len(whole) == len(all) && len(all) > 0 {
		return err
	}
	h, err := s.cfg.Lab.Hold(scenario)
	if err != nil {
		return nil // somebody is at it, or nobody can be
	}
	defer h.Release()
	for _, name := range all {
		if _, err := s.store.read(scenario, name); isAbsent(err) {
			if err := s.store.Discard(scenario, name); err != nil {
				return err
			}
		}
	}
	return nil
}
