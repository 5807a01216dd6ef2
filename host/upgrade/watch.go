package upgrade

import (
	"fmt"
	"slices"

	"mesh/host/system"
)

// Begin is called before each start of the program, by the version that is kept.
// It says in one line what it did, if there is anything to be said. installed is
// asked which version dpkg knows of; empty when it cannot say.
//
// That a start is counted, and that a version is broken, lasts before anything
// follows from it; so whenever the machine goes down, the next Begin goes on.
func (k *Keeper) Begin(installed func() string) (said string, err error) {
	err = k.change(func(s *State) (bool, error) {
		there, err := k.Files.Look(k.Program)
		if err != nil {
			return false, fmt.Errorf("look at the program that is to be started: %w", err)
		}
		good, err := k.Files.Look(k.good())
		switch {
		case err != nil:
			return false, fmt.Errorf("look at the program that is kept: %w", err)
		case good.Type != system.TypeFile || good.Digest == "":
			return false, nil // there is nothing to put back
		case there.Type == "":
			said = fmt.Sprintf("there is no program at %s; version %s is put back", k.Program, k.Version)
			return false, k.putBack()
		case there.Type != system.TypeFile || there.Digest == "":
			return false, nil // somebody put something else there
		case there.Digest == good.Digest:
			over := s.Trial != nil
			s.Trial = nil
			return over, nil
		}
		if i := slices.IndexFunc(s.Broken, func(b Broken) bool { return b.Digest == there.Digest }); i >= 0 {
			said, err = k.putBackKnown(s, s.Broken[i], k.other(installed()))
			return false, err
		}
		if s.Trial == nil || s.Trial.Digest != there.Digest {
			s.Trial = &Trial{Version: k.other(installed()), Digest: there.Digest, Since: k.Now().UTC()}
		}
		if s.Trial.Starts < Attempts {
			s.Trial.Starts++
			said = fmt.Sprintf("version %s is on trial, start %d of %d", named(s.Trial.Version, s.Trial.Digest), s.Trial.Starts, Attempts)
			return true, nil
		}
		said, err = k.giveUp(s)
		return false, err
	})
	return said, err
}

// other is what dpkg says, unless that is what it says of the version that is
// kept: then the program came by another way.
func (k *Keeper) other(installed string) string {
	if installed == k.Version {
		return ""
	}
	return installed
}

// giveUp calls the version on trial broken, durably, and puts the kept one back.
func (k *Keeper) giveUp(s *State) (string, error) {
	t := s.Trial
	reason := t.Reason
	if t.ReasonOf != t.Starts {
		reason = "it went down with the machine"
	}
	s.Trial = nil
	return k.putBackFor(s, Broken{Version: t.Version, Digest: t.Digest, Since: k.Now().UTC(), Reason: reason})
}

// putBackKnown puts the kept version back in place of a program that is broken for
// the reason of b. version is the one it came as; where that is another than those
// that are known, it is broken as well, durably: else nobody would see that it does
// not run where dpkg says so.
func (k *Keeper) putBackKnown(s *State, b Broken, version string) (string, error) {
	if version == "" || slices.ContainsFunc(s.Broken, func(o Broken) bool { return o.Version == version }) {
		return fmt.Sprintf("%s; version %s is put back", b, k.Version), k.putBack()
	}
	b.Version, b.Since = version, k.Now().UTC()
	return k.putBackFor(s, b)
}

// putBackFor remembers b, durably, and puts the kept version back.
func (k *Keeper) putBackFor(s *State, b Broken) (string, error) {
	s.Broken = append(s.Broken, b)
	s.Broken = s.Broken[max(0, len(s.Broken)-maxBroken):]
	if err := k.write(*s); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s; version %s is put back", b, k.Version), k.putBack()
}

// putBack puts the kept program to where programs are started from. That is one
// rename: the path holds one of the two at every moment.
func (k *Keeper) putBack() error {
	program, err := k.Files.Read(k.good())
	if err == nil {
		w := system.Write{Path: k.Program, Content: program, Access: system.Access{Mode: 0o755}}
		err = k.Files.Replace([]system.Write{w})[0]
	}
	if err != nil {
		return fmt.Errorf("put version %s back to %s: %w", k.Version, k.Program, err)
	}
	return nil
}

// End is called after each end of the program, by the version that is kept, with
// what systemd says of it: SERVICE_RESULT, EXIT_CODE and EXIT_STATUS of
// systemd.exec(5). A start that was called off does not count.
func (k *Keeper) End(result, code, status string) error {
	return k.change(func(s *State) (bool, error) {
		t := s.Trial
		switch {
		case t == nil:
			return false, nil
		case result == "success":
			t.Starts = max(0, t.Starts-1)
			if t.ReasonOf > t.Starts {
				t.Reason, t.ReasonOf = "", 0
			}
		case t.ReasonOf == t.Starts:
			return false, nil // it said so itself
		default:
			t.Reason, t.ReasonOf = ended(result, code, status), t.Starts
		}
		return true, nil
	})
}

// notExecuted is systemd's status for a program that the kernel does not start.
// https://www.freedesktop.org/software/systemd/man/systemd.exec.html#Process%20Exit%20Codes
const notExecuted = "203"

// ended says in words how a program ended that was not healthy yet.
func ended(result, code, status string) string {
	switch {
	case result == "timeout":
		return "it did not become healthy in time"
	case result == "protocol":
		return "it ended by itself before it was healthy"
	case result == "oom-kill":
		return "it was killed because memory ran out"
	case code == "exited" && status == notExecuted:
		return "it could not be executed"
	case code == "exited":
		return "it ended with status " + oneLine(status)
	case code == "killed" || code == "dumped":
		return "it was killed by SIG" + oneLine(status)
	}
	return oneLine(fmt.Sprintf("it ended (%s %s %s)", result, code, status))
}
