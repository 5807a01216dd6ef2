package lifecycle

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"mesh/lab/guest"
	"mesh/lab/images"
	"mesh/lab/machine"
)

// ReadyPoint is the version of readyScript, and so of what every warm image has
// come to. History:
//
//	1  first
//	2  waits until the machine is idle
//	3  holds the programs that settle a clone
const ReadyPoint = 3

// readyScript waits until a machine has booted and nothing is on its way, with
// its processors idle for most of a second; makes it hold what its clones need
// soon, and nothing that would be the same in all of them; and has its disk hold
// everything.
const readyScript = `systemctl is-system-running --wait >/dev/null || test $? = 1
modprobe virtio_net
udevadm settle
rm -f /var/lib/systemd/random-seed
idle() {
	read -r _ _ _ _ ticks _ </proc/stat
	echo "$ticks"
}
enough=$((85 * $(nproc)))
for try in $(seq 60); do
	before=$(idle)
	sleep 1
	[ $(($(idle) - before)) -lt $enough ] || break
done
sync
echo 3 >/proc/sys/vm/drop_caches
perl -e 1
ip -json address show >/dev/null
`

// warmRoom is what a warm image takes on disk beside its memory, at most.
const warmRoom = 128 << 20

// Size is what a machine has, as far as it decides which warm image fits it.
type Size struct {
	MemoryBytes int64
	CPUs        int
}

func (l *Lab) warmStore() images.WarmStore { return images.WarmStore{Dir: l.cfg.Store} }

// WarmUp makes, if there is none, the warm image that a raise of machines of that
// size made of image would be cloned from, here and now.
func (l *Lab) WarmUp(ctx context.Context, image images.Image, size Size) (images.Warm, error) {
	if err := l.needRoot("make a warm image"); err != nil {
		return images.Warm{}, err
	}
	if err := l.cfg.Daemon.Ensure(ctx); err != nil {
		return images.Warm{}, fmt.Errorf("hypervisor: %w", err)
	}
	a, _, err := l.cfg.Daemon.Accelerator(ctx)
	if err != nil {
		err = fmt.Errorf("find the accelerator: %w", err)
	}
	var w images.Warm
	if err == nil {
		w, err = l.warm(ctx, image, size, a)
	}
	return w, errors.Join(err, l.cfg.Daemon.Release(context.WithoutCancel(ctx)))
}

// warm gives the warm image of machines of that size made of image, making it if
// there is none: a machine without a NIC boots to its ready point and is saved.
// Of several that make the same one, the others wait. What an earlier maker left
// that is gone is removed.
func (l *Lab) warm(ctx context.Context, image images.Image, size Size, a machine.Accelerator) (images.Warm, error) {
	platform, err := l.cfg.Memory.Platform(ctx, a)
	if err != nil {
		return images.Warm{}, err
	}
	of := images.WarmOf{
		Image: image.Name, Content: image.Content, Cmdline: image.Cmdline, Platform: platform,
		MemoryBytes: size.MemoryBytes, CPUs: size.CPUs, ReadyPoint: ReadyPoint,
	}
	if w, err := l.warmStore().Get(of.Digest()); !errors.Is(err, images.ErrNotBuilt) {
		return w, err
	}
	held, err := l.holdWarm(ctx, of)
	if err != nil {
		return images.Warm{}, err
	}
	defer held.release()
	if w, err := l.warmStore().Get(of.Digest()); !errors.Is(err, images.ErrNotBuilt) {
		return w, err // made by whoever held it
	}
	if err := l.discardWarm(ctx, of.Digest()); err != nil {
		return images.Warm{}, err
	}
	begun, err := l.Turn(ctx, Beginning{Accelerator: of.Platform.Accelerator, Cold: true, What: of.String()})
	if err != nil {
		return images.Warm{}, err
	}
	defer begun()
	done := l.cfg.Progress.Step(of.String() + ": boot once, for all raises to come")
	w, err := l.makeWarm(ctx, image, of)
	done(err)
	return w, err
}

// warmLockPrefix begins the names of locks of warm images; no scenario's does.
const warmLockPrefix = "warm="

// warmLock is the lock of whoever makes or removes a warm image.
func (l *Lab) warmLock(digest string) string { return l.lockPath(warmLockPrefix + digest) }

// holdWarm waits until nobody else makes a warm image.
func (l *Lab) holdWarm(ctx context.Context, of images.WarmOf) (*lock, error) {
	held, err := tryLock(l.warmLock(of.Digest()))
	if !errors.Is(err, errLocked) {
		return held, err
	}
	done := l.cfg.Progress.Step("wait for another command that makes the " + of.String())
	again := time.NewTicker(l.cfg.Poll)
	defer again.Stop()
	for errors.Is(err, errLocked) {
		select {
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-again.C:
			held, err = tryLock(l.warmLock(of.Digest()))
		}
	}
	done(err)
	return held, err
}

// warmRun is the run of the machine that becomes a warm image; nothing else has it.
func warmRun(digest string) string { return "warm-" + digest[:16] }

// makeWarm boots a machine and saves it, the lock being held. On an error
// nothing of it is left.
func (l *Lab) makeWarm(ctx context.Context, image images.Image, of images.WarmOf) (w images.Warm, err error) {
	if err := l.warmSpace(of); err != nil {
		return w, err
	}
	layer := make([]byte, 16)
	rand.Read(layer)
	making, err := l.warmStore().Begin(of.Digest(), hex.EncodeToString(layer))
	if err != nil {
		return w, err
	}
	defer func() {
		if err != nil {
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
			defer cancel()
			err = errors.Join(err, l.discardWarm(undo, of.Digest()))
		}
	}()
	m := l.warmMachine(image, of, l.Layer(hex.EncodeToString(layer)), filepath.Dir(making.Memory))
	for _, dir := range []string{l.Layers(), filepath.Dir(m.Spec.ConsoleSock)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return w, fmt.Errorf("make directory: %w", err)
		}
	}
	if err := l.cfg.Disks.Overlay(ctx, image.Disk, m.Spec.Disk); err != nil {
		return w, err
	}
	begun := l.cfg.Now()
	var seconds float64
	err = l.watched(ctx, Plan{Name: of.String(), Machines: []Machine{m}}, func(ctx context.Context, watch *watch) error {
		err := l.bootWarm(ctx, m, watch)
		seconds = l.since(begun)
		return err
	})
	if err != nil {
		return w, err
	}
	if err := l.cfg.Memory.Save(ctx, m.Spec.Name, making.Memory); err != nil {
		return w, fmt.Errorf("save machine %s: %w", m.Spec.Name, err)
	}
	if err := l.cfg.Hypervisor.Forget(ctx, m.Spec.Name); err != nil {
		return w, fmt.Errorf("forget machine %s: %w", m.Spec.Name, err)
	}
	return making.Finish(of, m.Spec.Disk, seconds, l.cfg.Now())
}

// warmMachine is the machine that becomes a warm image. Its name is no domain's
// of a scenario.
func (l *Lab) warmMachine(image images.Image, of images.WarmOf, disk, dir string) Machine {
	run := warmRun(of.Digest())
	return Machine{Name: run, Image: image.Name, Base: image.Disk, Spec: machine.Spec{
		Name: "mesh." + run, UUID: uuid(run, filepath.Base(disk)), Run: run,
		Accelerator: of.Platform.Accelerator, MemoryBytes: of.MemoryBytes, CPUs: of.CPUs,
		Disk: disk, Kernel: image.Kernel, Initrd: image.Initrd, Cmdline: image.Cmdline,
		ConsoleLog:  filepath.Join(dir, "console"),
		ConsoleSock: filepath.Join(l.cfg.Runtime, run+".sock"),
	}}
}

// bootWarm lets a machine come to its ready point.
func (l *Lab) bootWarm(ctx context.Context, m Machine, w *watch) error {
	limit := l.bootLimit(m.Spec.Accelerator)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w after %s", errTimeout, limit))
	defer cancel()
	if err := l.cfg.Hypervisor.Create(ctx, m.Spec); err != nil {
		return fmt.Errorf("create machine %s: %w", m.Name, err)
	}
	if err := l.cfg.Hypervisor.Resume(ctx, m.Spec.Name); err != nil {
		return fmt.Errorf("resume machine %s: %w", m.Name, err)
	}
	w.add(m)
	if err := l.cfg.Guest.Wait(ctx, m.Spec.Name); err != nil {
		return fmt.Errorf("wait for machine %s: %w", m.Name, err)
	}
	out, err := l.cfg.Guest.Exec(ctx, m.Spec.Name, guest.Command{Args: []string{"/bin/sh", "-e", "-c", readyScript}})
	if err == nil && out.ExitCode != 0 {
		err = fmt.Errorf("exit code %d: %s", out.ExitCode, lastLines(string(out.Stderr), 5))
	}
	if err != nil {
		return fmt.Errorf("come to the ready point: %w", err)
	}
	return nil
}

// warmSpace refuses to begin what would fill the file system.
func (l *Lab) warmSpace(of images.WarmOf) error {
	free, err := l.cfg.Computer.FreeSpace(l.cfg.Store)
	if err != nil {
		return fmt.Errorf("measure disk space: %w", err)
	}
	if need := of.MemoryBytes + warmRoom; free < need {
		return &Error{
			What: "not enough disk space for a " + of.String(), Where: l.cfg.Store,
			Why:  fmt.Sprintf("it may need %d MiB, %d MiB are free", need>>20, free>>20),
			Next: "free some there, or keep the store elsewhere with --store", Code: codePrerequisite,
		}
	}
	return nil
}
