package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"mesh/lab/images"
	"mesh/lab/machine"
)

// discardWarm removes what an unfinished making left, its lock being held.
func (l *Lab) discardWarm(ctx context.Context, digest string) error {
	run := warmRun(digest)
	m := Machine{Name: run, Spec: machine.Spec{Name: "mesh." + run}}
	err := l.end(ctx, Plan{Name: run, Run: run}, m)
	if err == nil {
		err = l.cfg.Hypervisor.Forget(ctx, m.Spec.Name)
	}
	if err == nil {
		err = os.RemoveAll(filepath.Join(l.cfg.Runtime, run+".sock"))
	}
	if err == nil {
		err = l.warmStore().Discard(digest)
	}
	if err != nil {
		return fmt.Errorf("remove an unfinished warm image: %w", err)
	}
	l.tidy() // its layer
	return nil
}

// WarmImages lists the warm images of the store.
func (l *Lab) WarmImages() ([]images.Warm, error) { return l.warmStore().List() }

// RemoveWarm removes a warm image. Machines that were cloned from it run on: the
// layer that they stand on goes when none of them is left.
func (l *Lab) RemoveWarm(ctx context.Context, w images.Warm) error {
	held, err := l.holdWarm(ctx, w.Of)
	if err != nil {
		return err
	}
	defer held.release()
	if err := l.warmStore().Remove(w.Digest); err != nil {
		return err
	}
	return l.Collect()
}

// abandonedWarm lists the digests of unfinished warm images whose maker is gone.
func (l *Lab) abandonedWarm() ([]string, error) {
	unfinished, err := l.warmStore().Unfinished()
	var all []string
	for _, digest := range unfinished {
		if !locked(l.warmLock(digest)) {
			all = append(all, digest)
		}
	}
	return all, err
}

// reapWarm removes unfinished warm images whose maker is gone, and the locks of
// makers that ended outside of a making.
func (l *Lab) reapWarm(ctx context.Context) error {
	all, err := l.abandonedWarm()
	problems := []error{err}
	locks, err := filepath.Glob(l.warmLock("*"))
	problems = append(problems, err)
	for _, path := range locks {
		_, digest, _ := strings.Cut(filepath.Base(path), warmLockPrefix)
		if !slices.Contains(all, digest) && !locked(path) {
			all = append(all, digest)
		}
	}
	for _, digest := range all {
		problems = append(problems, l.reapOneWarm(ctx, digest))
	}
	return errors.Join(problems...)
}

func (l *Lab) reapOneWarm(ctx context.Context, digest string) error {
	held, err := tryLock(l.warmLock(digest))
	if errors.Is(err, errLocked) {
		return nil // somebody is at it again
	}
	if err != nil {
		return err
	}
	defer held.release()
	unfinished, err := l.warmStore().Unfinished()
	if err != nil || !slices.Contains(unfinished, digest) {
		return err
	}
	if err := l.cfg.Daemon.Ensure(ctx); err != nil {
		return fmt.Errorf("hypervisor: %w", err)
	}
	if err := l.discardWarm(ctx, digest); err != nil {
		return err
	}
	return l.cfg.Daemon.Release(ctx)
}
