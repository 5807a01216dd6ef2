// Package volatile is the disks' volatile write cache: a directory of disk files
// as a FUSE mount, behind which what a machine writes is kept in memory until the
// machine flushes it, and is forgotten when the machine's power is cut before.
//
// The file system shows the files of one directory whose names end in Suffix;
// they are read, written, flushed, resized, and given away (chown, chmod), and
// neither made, renamed nor removed through it. What is flushed is in the file
// behind for everybody on the lab machine; it is not forced onto the lab
// machine's own disk: machines lose their power here, the lab machine does not.
//
// Closing a file for the last time is losing power, too: whatever its last
// writer has not flushed is forgotten. So a machine that was killed has lost
// just what it did not flush.
//
// One process serves the disks of one scenario: Start, Serve, Remove. It is asked
// and told through a UNIX socket: Client.
package volatile

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Suffix ends the names of the files that are served.
const Suffix = ".qcow2"

// Status is what the server knows of its disks.
type Status struct {
	PID   int          `json:"pid"`
	Disks []DiskStatus `json:"disks"` // those that are open or have a fault, by name
}

// DiskStatus is one disk.
type DiskStatus struct {
	Name           string `json:"name"`
	Open           bool   `json:"open"`            // somebody may write to it
	UnflushedBytes int64  `json:"unflushed_bytes"` // would be lost now
	Flushes        int64  `json:"flushes"`         // since it was opened
	Fault          *Fault `json:"fault,omitempty"`
}

// Fault is what goes wrong with a disk from now on; the zero Fault is nothing.
// It stays with the disk's name, through power cuts too, until it is replaced or
// the server ends.
type Fault struct {
	Read  Errno `json:"read,omitempty"`  // every read fails so
	Write Errno `json:"write,omitempty"` // every write and discard
	Flush Errno `json:"flush,omitempty"` // every flush; what was to be flushed stays unflushed
	// DelayMilliseconds is how much longer each read, write and flush takes; at
	// most MaxDelay.
	DelayMilliseconds int64 `json:"delay_milliseconds,omitempty"`
}

// Errno is the name of an error of a disk: "EIO" or "ENOSPC". Empty is none.
type Errno string

// The errors that a disk can give. A machine hears of EIO at once; ENOSPC stops
// it where its hypervisor waits for space, as QEMU does for writes.
const (
	EIO    Errno = "EIO"
	ENOSPC Errno = "ENOSPC"
)

// MaxDelay bounds Fault.DelayMilliseconds.
const MaxDelay = time.Minute

// Check refuses a fault that no disk can have, all of it at once, on one line.
func (f Fault) Check() error {
	var wrong []string
	for _, one := range []struct {
		member string
		is     Errno
	}{{"read", f.Read}, {"write", f.Write}, {"flush", f.Flush}} {
		if !slices.Contains([]Errno{"", EIO, ENOSPC}, one.is) {
			wrong = append(wrong, fmt.Sprintf("%s: %q is neither %s nor %s", one.member, one.is, EIO, ENOSPC))
		}
	}
	if f.DelayMilliseconds < 0 || f.delay() > MaxDelay {
		wrong = append(wrong, fmt.Sprintf("delay_milliseconds: %d is not within 0 and %d", f.DelayMilliseconds, MaxDelay.Milliseconds()))
	}
	if wrong != nil {
		return fmt.Errorf("fault of a disk: %s", strings.Join(wrong, "; "))
	}
	return nil
}

// String is the fault in words.
func (f Fault) String() string {
	var words []string
	for _, one := range []struct {
		what string
		is   Errno
	}{{"reads", f.Read}, {"writes", f.Write}, {"flushes", f.Flush}} {
		if one.is != "" {
			words = append(words, fmt.Sprintf("%s fail with %s", one.what, one.is))
		}
	}
	if f.DelayMilliseconds > 0 {
		words = append(words, fmt.Sprintf("each takes %s longer", f.delay()))
	}
	if words == nil {
		return "none"
	}
	return strings.Join(words, ", ")
}

func (f Fault) delay() time.Duration { return time.Duration(f.DelayMilliseconds) * time.Millisecond }

// number is the system's of an error; 0 for none.
func (e Errno) number() unix.Errno {
	switch e {
	case EIO:
		return unix.EIO
	case ENOSPC:
		return unix.ENOSPC
	}
	return 0
}

// Loss says what a power cut takes of what was not flushed. The zero Loss takes
// all of it. Disks write back when they like, so any part may have survived: each
// page survives with the probability Survive (0 to 1), drawn from Seed.
type Loss struct {
	Survive float64 `json:"survive,omitempty"`
	Seed    uint64  `json:"seed,omitempty"`
}

// Check refuses what is no probability.
func (l Loss) Check() error {
	if !(l.Survive >= 0 && l.Survive <= 1) {
		return fmt.Errorf("loss of a power cut: survive: %v is not within 0 and 1", l.Survive)
	}
	return nil
}
