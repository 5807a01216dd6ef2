// Package evidence collects everything that may explain how a scenario came to
// be as it is: into one directory with an index that tells of each file what it
// is and where it came from, and what could not be had and why.
//
// It changes nothing of the scenario. It never fails for a part: what cannot be
// had is written down as such. It is bounded in time and in size, and it leaves
// out what looks like a key, a token or a password. Captures of traffic are kept
// as they are.
//
// What is collected is a pure list (Pieces); a Collector gathers it. Only cmd/lab
// imports it.
package evidence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"mesh/lab/guest"
	"mesh/lab/lifecycle"
)

// Guest runs commands on machines, named as the hypervisor names them.
type Guest interface {
	Exec(ctx context.Context, name string, c guest.Command) (guest.Result, error)
}

// Hypervisor tells what it knows of a machine.
type Hypervisor interface {
	// Diagnosis is the tail of its process's error output.
	Diagnosis(ctx context.Context, name string) (string, error)
	// Description is how it was told to make it, in its own words.
	Description(ctx context.Context, name string) (string, error)
}

// Here runs commands on the lab machine.
type Here interface {
	// Run writes what a command prints, errors too, to out. An exit code other
	// than 0 is an error.
	Run(ctx context.Context, out io.Writer, command ...string) error
}

// Config is what a Collector stands on. All but the limits must be set.
type Config struct {
	Store      string // directory that Keep keeps in; absolute
	Guest      Guest
	Hypervisor Hypervisor
	Here       Here
	Status     func(ctx context.Context, name string) (lifecycle.Status, error)
	Now        func() time.Time
	Version    string // of the lab

	Each  time.Duration // for one piece; zero: 30 s
	All   time.Duration // for all of them; zero: 2 min
	Bytes int64         // of all files; zero: 512 MiB
	Kept  int           // collections that Keep leaves; zero: 10
}

// Collector gathers evidence. Make it with New. Safe for concurrent use.
type Collector struct{ cfg Config }

// New makes a Collector; nothing happens yet.
func New(cfg Config) *Collector {
	def := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	def(&cfg.Each, 30*time.Second)
	def(&cfg.All, 2*time.Minute)
	if cfg.Bytes == 0 {
		cfg.Bytes = 512 << 20
	}
	if cfg.Kept == 0 {
		cfg.Kept = 10
	}
	return &Collector{cfg}
}

// Reason is why something is collected, and what must never be found in it.
type Reason struct {
	Why     string   // for people; zero: somebody asked
	Secrets []string // values to leave out wherever they stand
}

// Collect gathers the evidence of a scenario into a new directory. Its index is
// in there too, as index.md and index.json. An error means that the directory
// could not be made or written; then there is none.
func (c *Collector) Collect(ctx context.Context, r lifecycle.Record, into string, why Reason) (Index, error) {
	if err := os.Mkdir(into, 0o700); errors.Is(err, fs.ErrExist) {
		return Index{}, &lifecycle.Error{
			What: "evidence is not collected", Where: into, Why: "it is there already",
			Next: "choose a name that is free, or remove it", Code: codeUsage, Cause: err,
		}
	} else if err != nil {
		return Index{}, fmt.Errorf("collect evidence: %w", err)
	}
	index, err := c.gather(ctx, r, into, why)
	if err != nil {
		return Index{}, errors.Join(fmt.Errorf("collect evidence: %w", err), os.RemoveAll(into))
	}
	return index, nil
}

// codeUsage is the exit code of a mistake of the operator.
const codeUsage = 2

// Keep gathers the evidence of a scenario into Store/NAME-RUN, in place of what
// is there of the same run, and removes the oldest of what Keep kept when there
// is too much of it. It gives the directory.
func (c *Collector) Keep(ctx context.Context, r lifecycle.Record, why string, secrets []string) (string, error) {
	if err := os.MkdirAll(c.cfg.Store, 0o700); err != nil {
		return "", fmt.Errorf("keep evidence: %w", err)
	}
	dir := filepath.Join(c.cfg.Store, r.Plan.Name+"-"+r.Plan.Run)
	partial := filepath.Join(c.cfg.Store, "."+filepath.Base(dir))
	if err := os.RemoveAll(partial); err != nil { // of one that was killed
		return "", fmt.Errorf("keep evidence: %w", err)
	}
	if _, err := c.Collect(ctx, r, partial, Reason{Why: why, Secrets: secrets}); err != nil {
		return "", err
	}
	err := os.RemoveAll(dir)
	if err == nil {
		err = os.Rename(partial, dir)
	}
	if err != nil {
		return "", fmt.Errorf("keep evidence: %w", err)
	}
	return dir, c.forget(dir)
}

// forget removes the oldest collections beyond the number that is kept, never
// the newest, and nothing that is no collection.
func (c *Collector) forget(newest string) error {
	found, err := filepath.Glob(filepath.Join(c.cfg.Store, "*", indexJSON))
	if err != nil {
		return fmt.Errorf("forget old evidence: %w", err)
	}
	for len(found) > c.cfg.Kept {
		oldest, at := -1, time.Time{}
		for i, path := range found {
			info, err := os.Stat(path)
			if err != nil || filepath.Dir(path) == newest {
				continue
			}
			if oldest < 0 || info.ModTime().Before(at) {
				oldest, at = i, info.ModTime()
			}
		}
		if oldest < 0 {
			return nil
		}
		if err := os.RemoveAll(filepath.Dir(found[oldest])); err != nil {
			return fmt.Errorf("forget old evidence: %w", err)
		}
		found = append(found[:oldest], found[oldest+1:]...)
	}
	return nil
}
