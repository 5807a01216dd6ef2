package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// endLimit bounds the end of a run's domains. Only one that is still starting,
// because whoever asked for it was killed, is not ended at once.
const endLimit = 30 * time.Second

// End ends machines of a plan, as a power cut does, until the hypervisor lists
// none of them. Only what carries the run's id is touched: another lab's may have
// the same name.
func (l *Lab) End(ctx context.Context, p Plan, machines ...Machine) error {
	return l.end(ctx, p, machines...)
}

// end is End.
func (l *Lab) end(ctx context.Context, p Plan, machines ...Machine) error {
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	again := time.NewTicker(l.cfg.Poll)
	defer again.Stop()
	for first := true; ; first = false {
		left, err := l.endOnce(ctx, p, machines)
		if err == nil && !left {
			return nil
		}
		if err == nil && first {
			continue // most are gone by now
		}
		select {
		case <-ctx.Done():
			if err == nil {
				err = errors.New("they do not end")
			}
			return fmt.Errorf("end machines of %s: %w", p.Name, err)
		case <-again.C:
		}
	}
}

// endOnce destroys what is listed, and tells whether anything was.
func (l *Lab) endOnce(ctx context.Context, p Plan, machines []Machine) (bool, error) {
	ours, err := l.cfg.Hypervisor.List(ctx, p.Run)
	if err != nil {
		return false, err
	}
	found := false
	problems := make([]error, len(machines))
	var ending sync.WaitGroup // a process takes a second or two to end
	for i, m := range machines {
		if slices.Contains(ours, m.Spec.Name) {
			found = true
			ending.Go(func() { problems[i] = l.cfg.Hypervisor.Destroy(ctx, m.Spec.Name) })
		}
	}
	ending.Wait()
	return found, errors.Join(problems...)
}

// removeAll removes a scenario's directory, its record last, so that what could
// not be removed is still known.
func removeAll(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == recordName {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(dir))
}
