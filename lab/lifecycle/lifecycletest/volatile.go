package lifecycletest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"strings"

	"mesh/lab/volatile"
	"mesh/lab/world"
)

// servers are the fake as lifecycle.Volatile.
type servers struct{ *Fake }

// served is one run's disks as the fake keeps them.
type served struct {
	PID int    `json:"pid"`
	Run string `json:"run"`
}

func runOf(c volatile.Config) string {
	return strings.TrimPrefix(filepath.Base(c.Mount), "disks-")
}

func (s servers) Start(ctx context.Context, c volatile.Config) (world.Process, error) {
	sum := fnv.New32a()
	sum.Write([]byte("disks of " + runOf(c)))
	one := served{PID: firstFake + int(sum.Sum32()), Run: runOf(c)}
	err := s.change(ctx, "serve disks of "+one.Run, func() error {
		if s.NoFUSE {
			return errors.New("the kernel has no FUSE")
		}
		if s.has("mount", name(c.Mount)) || s.has("server", fmt.Sprint(one.PID)) {
			return errors.New("they are served already")
		}
		return errors.Join(s.put("mount", name(c.Mount), one), s.put("server", fmt.Sprint(one.PID), one))
	})
	return world.Process{PID: one.PID, Start: 1}, err
}

// name is a path as a part of a file's name.
func name(path string) string { return strings.ReplaceAll(path, "/", "|") }

// serves tells whether a process serves the disks of a run.
func (f *Fake) serves(run string) bool {
	for _, pid := range f.names("server") {
		var one served
		if err := f.get("server", pid, &one); err != nil {
			panic(err)
		}
		if one.Run == run {
			return true
		}
	}
	return false
}

// served refuses a machine of a run whose disks were served by a process that is
// gone: their mount answers nobody.
func (f *Fake) served(run string) error {
	for _, mount := range f.names("mount") {
		var one served
		if err := f.get("mount", mount, &one); err != nil {
			return err
		}
		if one.Run == run && !f.serves(run) {
			return errors.New("nobody serves its disk any more")
		}
	}
	return nil
}

// standing refuses while a machine of a run stands.
func (s servers) standing(run string) error {
	for _, name := range s.names("domain") {
		var d domain
		if err := s.get("domain", name, &d); err != nil {
			return err
		}
		if d.Spec.Run == run {
			return fmt.Errorf("machine %s stands on them", name)
		}
	}
	return nil
}

func (s servers) Remove(ctx context.Context, c volatile.Config) error {
	return s.change(ctx, "remove the disks of "+runOf(c), func() error {
		if s.serves(runOf(c)) {
			if err := s.standing(runOf(c)); err != nil {
				return err
			}
		}
		for _, pid := range s.names("server") {
			var one served
			if err := s.get("server", pid, &one); err != nil {
				return err
			}
			if one.Run == runOf(c) {
				s.drop("server", pid)
			}
		}
		s.drop("mount", name(c.Mount))
		return nil
	})
}

func (s servers) Status(_ context.Context, c volatile.Config) (volatile.Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var one served
	if err := s.get("mount", name(c.Mount), &one); err != nil || !s.has("server", fmt.Sprint(one.PID)) {
		return volatile.Status{}, volatile.ErrAbsent
	}
	status := volatile.Status{PID: one.PID}
	for _, machine := range s.names("domain") {
		var d domain
		if err := s.get("domain", machine, &d); err != nil {
			return volatile.Status{}, err
		}
		if d.Spec.Run == one.Run && !d.Lost && !d.Detached {
			status.Disks = append(status.Disks, volatile.DiskStatus{Name: filepath.Base(d.Spec.Disk), Open: true})
		}
	}
	return status, nil
}

// KillServers ends every process that serves disks, and leaves the mounts. The
// machines get errors from then on.
func (f *Fake) KillServers() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, pid := range f.names("server") {
		f.drop("server", pid)
	}
	for _, name := range f.names("domain") {
		var d domain
		if err := f.get("domain", name, &d); err != nil {
			panic(err)
		}
		d.Lost = true
		if err := f.put("domain", name, d); err != nil {
			panic(err)
		}
	}
}
