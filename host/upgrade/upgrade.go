// Package upgrade lets the host come back from a version of itself that does not
// work.
//
// The last version that proved itself is kept beside the host's record. It, and
// never the new one, watches over another version: before each start it looks
// which program is going to be started and counts the starts of one that has not
// proved itself. After three of which none became healthy it puts itself back by
// a single rename, and remembers the other one as broken, with the reason.
//
// dpkg is not asked for that: it would need its lock, its time, and the scripts of
// the version that does not work. That its database is wrong about the path then is
// put right by the version that runs again, which installs its own package once
// more where it is kept (see resource.Trials). Not chosen: to divert the path, by
// which dpkg would never be right about what runs.
//
// It asks neither the network nor the program it watches, and how that got to
// its path is all the same to it. cmd/host and host/agent may import it.
package upgrade

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"mesh/host/system"
)

// Attempts is how many starts a version has to become healthy in.
const Attempts = 3

// maxBroken bounds what is remembered: the newest.
const maxBroken = 16

// Names in the directory.
const (
	goodName  = "good"  // the last version that proved itself
	stateName = "state" // State
	lockName  = "lock"
)

// Config is what a Keeper needs.
type Config struct {
	Files     *system.Files
	Directory string // of what is kept
	Program   string // where the program lies that is started
	Version   string // of this build
	Now       func() time.Time
}

// Keeper keeps and puts back programs. Each call is a transition of its own, for
// which it holds a lock; errors match store.ErrLocked when another process is at
// one.
type Keeper struct {
	Config
	directory *system.StateDirectory
}

// New makes a Keeper; it touches nothing.
func New(cfg Config) *Keeper {
	return &Keeper{cfg, system.NewStateDirectory(cfg.Files, cfg.Directory)}
}

func (k *Keeper) good() string { return path.Join(k.Directory, goodName) }

// Standing is what is known of a program.
type Standing int

// The standings.
const (
	Known   Standing = iota // it is the one that proved itself, and that is on record
	First                   // there is no other one that did
	OnTrial                 // another one did
)

// Standing says how the program with this digest stands.
func (k *Keeper) Standing(digest string) (Standing, error) {
	good, err := k.Files.Look(k.good())
	switch {
	case err != nil:
		return First, fmt.Errorf("look at the program that is kept: %w", err)
	case good.Type != system.TypeFile:
		return First, nil
	case good.Digest != digest:
		return OnTrial, nil
	}
	s, err := k.Read()
	if err == nil && s.Kept != nil && s.Kept.Digest == digest {
		return Known, nil
	}
	return First, err // it was cut short when it was about to be recorded
}

// Read is the state as it is, without a lock. One that makes no sense is none.
func (k *Keeper) Read() (State, error) {
	b, err := k.directory.Read(stateName)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, nil
	}
	if err != nil {
		return State{}, fmt.Errorf("read what is known of this program's versions: %w", err)
	}
	s, err := parseState(b)
	if err != nil {
		return State{}, nil // it is replaced by the next transition; what was broken is found out again
	}
	return s, nil
}

// change makes one transition, under the lock. The state is written when decide
// says so.
func (k *Keeper) change(decide func(s *State) (bool, error)) error {
	lock, err := k.directory.Lock(lockName)
	if err != nil {
		return fmt.Errorf("keep account of this program's versions: %w", err)
	}
	s, err := k.Read()
	if err == nil {
		var changed bool
		if changed, err = decide(&s); err == nil && changed {
			err = k.write(s)
		}
	}
	return errors.Join(err, lock.Close())
}

func (k *Keeper) write(s State) error {
	b, err := s.text()
	if err == nil {
		err = k.directory.Replace(stateName, b)
	}
	if err != nil {
		return fmt.Errorf("write down what is known of this program's versions: %w", err)
	}
	return nil
}

// Keep takes program, which is this build and runs, for the one that proved
// itself. pkg is the digest of the Debian package it came in, if that is kept.
func (k *Keeper) Keep(program []byte, pkg string) error {
	return k.change(func(s *State) (bool, error) {
		w := system.Write{Path: k.good(), Content: program, Access: system.Access{Mode: 0o700}}
		if err := k.Files.Replace([]system.Write{w})[0]; err != nil {
			return false, fmt.Errorf("keep this program: %w", err)
		}
		good, err := k.Files.Look(k.good())
		if err != nil {
			return false, fmt.Errorf("keep this program: %w", err)
		}
		s.Kept = &Kept{Version: k.Version, Digest: good.Digest, Package: pkg, Since: k.Now().UTC()}
		s.Trial = nil
		s.Broken = slices.DeleteFunc(s.Broken, func(b Broken) bool { return b.Digest == good.Digest || b.Version == k.Version })
		return true, nil
	})
}

// Failed notes why the version on trial, which runs and knows, does not become
// healthy.
func (k *Keeper) Failed(reason string) error {
	return k.change(func(s *State) (bool, error) {
		if s.Trial != nil {
			s.Trial.Reason, s.Trial.ReasonOf = oneLine(reason), s.Trial.Starts
		}
		return s.Trial != nil, nil
	})
}

// ErrUnknown is the error of Forget for a version that is not known as broken.
var ErrUnknown = errors.New("this version is not known to be broken")

// Forget lets a version that is known as broken be tried again, and with it every
// other one that holds the same program; one that dpkg does not know is named by
// its digest. The error matches ErrUnknown when there is none.
func (k *Keeper) Forget(version string) error {
	return k.change(func(s *State) (bool, error) {
		i := slices.IndexFunc(s.Broken, func(b Broken) bool { return named(b.Version, b.Digest) == version })
		if i < 0 {
			return false, fmt.Errorf("forget version %s: %w", version, ErrUnknown)
		}
		program := s.Broken[i].Digest
		s.Broken = slices.DeleteFunc(s.Broken, func(b Broken) bool { return b.Digest == program || named(b.Version, b.Digest) == version })
		return true, nil
	})
}
