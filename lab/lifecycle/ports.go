package lifecycle

import (
	"context"
	"encoding/json"
	"io"
	"io/fs"

	"mesh/lab/guest"
	"mesh/lab/machine"
	"mesh/lab/underlay"
	"mesh/lab/world"
)

// Daemon is the hypervisor's daemon.
type Daemon interface {
	// Ensure makes sure that one answers, starting one owned by the lab if none
	// does. Until Release, or the end of this process, nobody ends it. Idempotent.
	Ensure(ctx context.Context) error
	// Release gives up this process's need, and ends the one that the lab owns if
	// nobody needs it and no machine is left. Idempotent.
	Release(ctx context.Context) error
	// Accelerator finds by trying how guests can be run, and says why.
	Accelerator(ctx context.Context) (machine.Accelerator, string, error)
}

// World is the outside of scenarios.
type World interface {
	// Start builds the network and starts the process that serves it; it returns
	// when that is ready. The process outlives the caller.
	Start(ctx context.Context, c world.Config) (world.Process, error)
	// Remove ends the process, known or not (zero), and removes all that it made;
	// nothing there is success.
	Remove(ctx context.Context, c world.Config, p world.Process) error
	// Attach moves a machine's tap into u's namespace and joins it to a bridge.
	Attach(ctx context.Context, u underlay.Underlay, tap string) error
	// Status asks the process.
	Status(ctx context.Context, c world.Config) (world.Status, error)
	// State and SetState are about everything that can be changed of a running
	// world, as one document. One that is refused changes nothing. world.ErrAbsent.
	State(ctx context.Context, c world.Config) (json.RawMessage, error)
	// Whole is State with what routers remember of what passed them.
	Whole(ctx context.Context, c world.Config) (json.RawMessage, error)
	SetState(ctx context.Context, c world.Config, state json.RawMessage) error
	// Roots are the certificates that machines must trust, in PEM.
	Roots(ctx context.Context, c world.Config) ([]byte, error)
}

// Guest is what is done inside machines, which are named as the hypervisor
// names them.
type Guest interface {
	// Wait returns when the guest agent answers. machine.ErrAbsent when the
	// machine ends or has ended.
	Wait(ctx context.Context, name string) error
	// Settle gives a machine whose agent answers the clock of the lab machine and
	// an identity; it tells what the machine is then.
	Settle(ctx context.Context, name string, id guest.Identity) (guest.Facts, error)
	// Exec runs a command; an exit code other than 0 is not an error.
	Exec(ctx context.Context, name string, c guest.Command) (guest.Result, error)
	// CopyIn writes a file whose directory exists.
	CopyIn(ctx context.Context, name string, content io.Reader, to string, mode fs.FileMode) error
	// CopyOut reads a file.
	CopyOut(ctx context.Context, name, from string, to io.Writer) error
}

// Disks makes what machines write to.
type Disks interface {
	// Overlay makes a qcow2 file, whole or not at all, that holds what differs
	// from base and names it relative to its own directory.
	Overlay(ctx context.Context, base, path string) error
	// Flatten makes a qcow2 file, whole or not at all, that stands on base, named
	// relative to its own directory, and holds all that top differs from it. base is
	// one of those that top stands on, and nobody writes to any of them.
	Flatten(ctx context.Context, top, base, path string) error
	// Repository makes a flat apt repository in dir out of the .deb files and the
	// container images (images.LayoutSuffix) in packages.
	Repository(ctx context.Context, packages, dir string) error
}

// Computer is the lab machine itself.
type Computer interface {
	// Root tells whether the process may do what a raise needs.
	Root() bool
	// Cores is the number of usable processors.
	Cores() int
	// FreeMemory is what can be used without swapping, in bytes.
	FreeMemory() (int64, error)
	// Memory is what there is in all, in bytes.
	Memory() (int64, error)
	// FreeSpace is what is left on the file system of dir or of its nearest existing parent, in bytes.
	FreeSpace(dir string) (int64, error)
	// Self is the calling process.
	Self() (world.Process, error)
	// Alive tells whether that very process still runs.
	Alive(p world.Process) bool
}

// Progress narrates.
type Progress interface {
	// Step announces what begins; the returned function ends it.
	Step(what string) (done func(error))
	// Note says one line.
	Note(format string, args ...any)
}
