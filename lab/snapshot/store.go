package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"mesh/lab/lifecycle"
)

// manifestName is the file without which there is no snapshot.
const manifestName = "manifest.json"

// Store is the snapshots of a lab's store, Dir. Safe for concurrent use, by
// processes too.
type Store struct {
	Dir string // absolute; need not exist
}

// ErrAbsent means that there is no such snapshot. Match with errors.Is.
var ErrAbsent = errors.New("no such snapshot")

func (s Store) root() string { return filepath.Join(s.Dir, "snapshots") }

// Path is the directory of a snapshot.
func (s Store) Path(scenario, name string) string { return filepath.Join(s.root(), scenario, name) }

// Get reads the manifest of a snapshot. ErrAbsent, with the names there are.
func (s Store) Get(scenario, name string) (Manifest, error) {
	for _, n := range []string{scenario, name} {
		if err := lifecycle.CheckName(n); err != nil {
			return Manifest{}, err
		}
	}
	m, err := s.read(scenario, name)
	if errors.Is(err, fs.ErrNotExist) {
		return Manifest{}, s.absent(scenario, name)
	}
	return m, err
}

func (s Store) absent(scenario, name string) error {
	next := "`lab snapshot list` shows those there are"
	if others, err := s.names(scenario); err == nil && len(others) > 0 {
		next = "those of " + scenario + " are " + strings.Join(others, ", ")
	}
	return &lifecycle.Error{
		What: fmt.Sprintf("scenario %s has no snapshot %s", scenario, name), Next: next, Code: codeUsage, Cause: ErrAbsent,
	}
}

// read reads a manifest; fs.ErrNotExist where there is none.
func (s Store) read(scenario, name string) (Manifest, error) {
	path := filepath.Join(s.Path(scenario, name), manifestName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Manifest{}, err
	}
	var m Manifest
	if err == nil {
		m, err = Parse(data)
	}
	if err == nil && (m.Scenario != scenario || m.Name != name) {
		err = fmt.Errorf("it is of snapshot %s of scenario %s", m.Name, m.Scenario)
	}
	if err != nil {
		return Manifest{}, &lifecycle.Error{
			What: fmt.Sprintf("snapshot %s of %s cannot be read", name, scenario), Where: path, Why: err.Error(),
			Next: "use the lab that wrote it, or remove it: lab snapshot remove " + scenario + " " + name, Code: codeFailed,
		}
	}
	return m, nil
}

// List reads the manifests of a scenario's snapshots, or of all where the
// scenario is empty: by scenario, and from old to new. Those that cannot be read
// are left out and told in the error.
func (s Store) List(scenario string) ([]Manifest, error) {
	scenarios := []string{scenario}
	if scenario == "" {
		var err error
		if scenarios, err = entries(s.root()); err != nil {
			return nil, err
		}
	}
	all, problems := []Manifest{}, []error(nil)
	for _, scenario := range scenarios {
		names, err := s.names(scenario)
		problems = append(problems, err)
		var own []Manifest
		for _, name := range names {
			m, err := s.read(scenario, name)
			switch {
			case err == nil:
				own = append(own, m)
			case !errors.Is(err, fs.ErrNotExist): // not removed meanwhile
				problems = append(problems, err)
			}
		}
		slices.SortStableFunc(own, func(a, b Manifest) int { return a.Taken.Compare(b.Taken) })
		all = append(all, own...)
	}
	return all, errors.Join(problems...)
}

// Scenarios names those that have snapshots, raised or not.
func (s Store) Scenarios() ([]string, error) {
	all, err := entries(s.root())
	return slices.DeleteFunc(all, func(name string) bool {
		names, err := s.names(name)
		return err == nil && len(names) == 0
	}), err
}

// names lists a scenario's snapshots, readable or not.
func (s Store) names(scenario string) ([]string, error) {
	all, err := entries(filepath.Join(s.root(), scenario))
	return slices.DeleteFunc(all, func(name string) bool {
		_, err := os.Lstat(filepath.Join(s.Path(scenario, name), manifestName))
		return err != nil
	}), err
}

// entries names what is in a directory; nothing where there is none.
func entries(dir string) (names []string, err error) {
	found, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range found {
		names = append(names, e.Name())
	}
	return names, err
}

// Layers is lifecycle.Snapshots': those of snapshots, and of what Stage has announced.
func (s Store) Layers() (ids []string, err error) {
	all, err := s.List("")
	staged, problem := s.staged()
	all, err = append(all, staged...), errors.Join(err, problem)
	for _, m := range all {
		for _, l := range m.Layers {
			ids = append(ids, l.ID)
		}
	}
	return ids, err
}

// stagedName is a manifest that is not in force yet.
const stagedName = manifestName + ".new"

// Stage announces, durably, the snapshot that Write will make, so that its
// layers are kept until then. Its directory is there, and is held by whoever
// holds the scenario.
func (s Store) Stage(m Manifest) error {
	data, err := m.Marshal()
	if err != nil {
		return err
	}
	dir := s.Path(m.Scenario, m.Name)
	f, err := os.OpenFile(filepath.Join(dir, stagedName), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close(), lifecycle.SyncDir(dir)); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return nil
}

// staged reads the manifests that are announced. One that is cut short was not.
func (s Store) staged() (all []Manifest, err error) {
	scenarios, err := entries(s.root())
	problems := []error{err}
	for _, scenario := range scenarios {
		names, err := entries(s.Path(scenario, ""))
		problems = append(problems, err)
		for _, name := range names {
			data, err := os.ReadFile(filepath.Join(s.Path(scenario, name), stagedName))
			if err != nil {
				if !errors.Is(err, fs.ErrNotExist) {
					problems = append(problems, err)
				}
				continue
			}
			if m, err := Parse(data); err == nil {
				all = append(all, m)
			}
		}
	}
	return all, errors.Join(problems...)
}

// Write makes a snapshot of the files that lie in its directory and the layers
// that there are: its manifest, durably, at once or not at all.
func (s Store) Write(m Manifest) error {
	if err := s.Stage(m); err != nil {
		return err
	}
	dir := s.Path(m.Scenario, m.Name)
	err := os.Rename(filepath.Join(dir, stagedName), filepath.Join(dir, manifestName))
	for _, dir := range []string{dir, filepath.Dir(dir), s.root()} {
		err = errors.Join(err, lifecycle.SyncDir(dir))
	}
	if err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return nil
}

// Use keeps a snapshot from being removed until the returned function is
// called. Any number may use one; it waits for who removes it, or makes its disks
// consist of fewer layers. ErrAbsent.
func (s Store) Use(ctx context.Context, scenario, name string) (Manifest, func(), error) {
	m, err := s.Get(scenario, name)
	if err != nil {
		return m, nil, err
	}
	done, err := s.lock(scenario, name, unix.LOCK_SH)
	again := time.NewTicker(lockRetry)
	defer again.Stop()
	for errors.Is(err, errInUse) {
		select {
		case <-ctx.Done():
			return m, nil, fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		case <-again.C:
			done, err = s.lock(scenario, name, unix.LOCK_SH)
		}
	}
	if err != nil {
		return m, nil, err
	}
	// What was read may have been removed, or replaced, before it was locked.
	if m, err = s.Get(scenario, name); err != nil {
		done()
		return m, nil, err
	}
	return m, done, nil
}

// errInUse is matched where somebody else has locked a snapshot.
var errInUse = errors.New("in use")

// lockRetry is how often a lock is tried that is waited for.
const lockRetry = 100 * time.Millisecond

// lock locks a snapshot's manifest, without waiting. errInUse.
func (s Store) lock(scenario, name string, how int) (func(), error) {
	f, err := os.Open(filepath.Join(s.Path(scenario, name), manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, s.absent(scenario, name)
	}
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if err == nil && !same(f) {
		_ = f.Close()
		return s.lock(scenario, name, how) // it was removed, or made anew, in between
	}
	if err != nil {
		_ = f.Close()
		return nil, &lifecycle.Error{
			What: fmt.Sprintf("snapshot %s of %s is in use", name, scenario), Why: "another lab command restores, exports or removes it",
			Next: "wait for it", Code: codeUsage, Cause: errInUse,
		}
	}
	return func() { _ = f.Close() }, nil
}

// same tells whether an open file still is what its name stands for.
func same(f *os.File) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(f.Name())
	return err == nil && os.SameFile(open, named)
}

// Remove removes a snapshot, one that cannot be read too. Layers stay; see
// lifecycle.Lab.Collect. ErrAbsent.
func (s Store) Remove(scenario, name string) error {
	for _, n := range []string{scenario, name} {
		if err := lifecycle.CheckName(n); err != nil {
			return err
		}
	}
	done, err := s.lock(scenario, name, unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer done()
	dir := s.Path(scenario, name)
	if err := os.Remove(filepath.Join(dir, manifestName)); err != nil {
		return fmt.Errorf("remove snapshot: %w", err)
	}
	return s.Discard(scenario, name)
}

// Discard removes the directory of what is no snapshot, and its parents if
// nothing else is in them. The scenario is held.
func (s Store) Discard(scenario, name string) error {
	dir := s.Path(scenario, name)
	if err := errors.Join(syncExisting(dir), os.RemoveAll(dir)); err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	_ = os.Remove(filepath.Dir(dir)) // fails, as it should, while it has others
	_ = os.Remove(s.root())
	return nil
}

func syncExisting(dir string) error {
	if err := lifecycle.SyncDir(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
