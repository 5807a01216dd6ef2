package machine

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrForeign means that a memory image cannot be restored here: it is no memory
// image, is cut short, or was written by a hypervisor whose format, machine
// type, processor or accelerator this one does not have. The error's text says
// which. Match with errors.Is.
var ErrForeign = errors.New("memory image cannot be restored here")

// Platform is what a memory image depends on beside the machine's own Spec. Two
// equal platforms restore each other's images.
type Platform struct {
	Emulator    string      `json:"emulator"`     // program and version: "qemu 7.2.22"
	MachineType string      `json:"machine_type"` // versioned: "pc-q35-7.2"
	CPU         string      `json:"cpu"`          // model as the guest sees it: "Nehalem"
	Accelerator Accelerator `json:"accelerator"`
}

// Fits reports, one a line, why a memory image of a machine made from image
// cannot be restored as s; nil when it can. Accelerator, memory, processors, a
// display, whether a kernel is booted directly, and the MACs of the NICs in
// their order are in the image. Match with ErrForeign.
func (s Spec) Fits(image Spec) error {
	var problems []error
	differ := func(what string, is, want any) {
		if is != want {
			problems = append(problems, fmt.Errorf("%w: %s is %v in the image and %v in the spec", ErrForeign, what, is, want))
		}
	}
	macs := func(s Spec) string {
		var all []string
		for _, n := range s.NICs {
			all = append(all, n.MAC)
		}
		return fmt.Sprint(all)
	}
	differ("accelerator", image.Accelerator, s.Accelerator)
	differ("memory_bytes", image.MemoryBytes, s.MemoryBytes)
	differ("cpus", image.CPUs, s.CPUs)
	differ("display", image.Display, s.Display)
	differ("boot from a kernel", image.Kernel != "", s.Kernel != "")
	differ("macs", macs(image), macs(s))
	return errors.Join(problems...)
}

// Memory is what a hypervisor can do with the memory of machines. Memory images
// are files: whole or absent, readable by this hypervisor later on, without
// the machine that they were taken of. Safe for concurrent use, for different
// machines side by side.
type Memory interface {
	// Platform tells what machines of that accelerator are made of here.
	Platform(ctx context.Context, a Accelerator) (Platform, error)
	// Pause stops a machine's processors; a paused one is left alone. ErrAbsent.
	Pause(ctx context.Context, name string) error
	// PauseAll stops the processors of several running machines as close together
	// as it can, and tells within how much time all of them stopped. On an error,
	// which names the machines that did not stop by ctx's end, others may have.
	PauseAll(ctx context.Context, names []string) (time.Duration, error)
	// Save writes a machine's memory to a new file and ends the machine; its disk
	// holds everything that the guest had written. On an error the machine is as
	// it was, and there is no file. ErrAbsent.
	Save(ctx context.Context, name, memory string) error
	// Snapshot writes the memory of a paused machine to a new file and lets what
	// it writes from now on go to disk, an existing qcow2 file whose backing file
	// is the disk that the machine has now. The machine stays paused, the old disk
	// is not written any more. On an error the machine still has the disk that it
	// had, and there is no memory file. ErrAbsent.
	Snapshot(ctx context.Context, name, memory, disk string) error
	// Disk tells which file a machine writes to: its spec's, until a Snapshot moved
	// it on. A Snapshot that somebody else began, and may not wait for any more, is
	// waited for. ErrAbsent.
	Disk(ctx context.Context, name string) (string, error)
	// Restore starts a machine, paused, from a memory image of Save or Snapshot,
	// which is only read. The spec gives its name, UUID, run, disk, kernel
	// command line for later boots, console and taps; it must fit the image, see
	// Spec.Fits. A cable that was pulled is still pulled. The guest is told that it
	// is another one now where hardware can (vmgenid).
	// ErrForeign; any other error as Create. Nothing is left of a failed attempt.
	Restore(ctx context.Context, spec Spec, memory string) error
	// Plug gives a machine one more NIC while it runs or is paused. Its tap is
	// present on the lab machine afterwards. ErrAbsent.
	Plug(ctx context.Context, name string, nic NIC) error
}

// Throttle bounds what a disk does; zero means unbounded.
type Throttle struct {
	BytesPerSecond      int64 `json:"bytes_per_second,omitempty"`
	OperationsPerSecond int64 `json:"operations_per_second,omitempty"`
}

// Check refuses bounds below zero.
func (t Throttle) Check() error {
	if t.BytesPerSecond < 0 || t.OperationsPerSecond < 0 {
		return fmt.Errorf("throttle of %d bytes and %d operations a second: neither may be below zero", t.BytesPerSecond, t.OperationsPerSecond)
	}
	return nil
}

// Abuse is what a hypervisor can do to a running machine. All of it is gone
// when the machine ends, but for a pulled cable, which goes into a memory image.
// A machine whose disk is detached cannot be saved. Each is idempotent. Safe for
// concurrent use.
type Abuse interface {
	// Reset presses the reset button: the guest boots anew, nothing flushed. ErrAbsent.
	Reset(ctx context.Context, name string) error
	// Link pulls (up false) or puts back the cable of a NIC that it has. ErrAbsent.
	Link(ctx context.Context, name, mac string, up bool) error
	// Throttle slows a machine's disk; the zero Throttle ends that. ErrAbsent.
	Throttle(ctx context.Context, name string, t Throttle) error
	// Detach takes the disk away from a running guest; Attach gives it back. The
	// guest may let go late or never, so Detach returns when it has or ctx ends;
	// until Attach it may let go any time. ErrAbsent.
	Detach(ctx context.Context, name string) error
	Attach(ctx context.Context, name string) error
	// Screenshot is what a machine's display shows, in PNG. ErrAbsent; an error
	// for a machine without a display.
	Screenshot(ctx context.Context, name string) ([]byte, error)
	// Load is how much a machine has used since it was started. ErrAbsent.
	Load(ctx context.Context, name string) (Load, error)
}

// Load is what a machine has used and uses.
type Load struct {
	CPUSeconds    float64 `json:"cpu_seconds"`    // of the lab machine's processors, since its start
	ResidentBytes int64   `json:"resident_bytes"` // of the lab machine's memory, now
	ReadBytes     int64   `json:"read_bytes"`     // from its disk, since its start
	WrittenBytes  int64   `json:"written_bytes"`
}
