package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"mesh/lab/machine"
	"mesh/lab/machine/bootsector"
)

// memoryChecks are what warm starts and snapshots stand on, done with machines of
// one sector that count.
func (v *virt) memoryChecks() []check {
	const remedy = "use QEMU 7.2 and libvirt 9.0 or newer (Debian 12): apt-get install libvirt-daemon-system qemu-system-x86"
	return []check{
		{name: "save and clone", optional: true, do: v.clones, remedy: remedy + "; until then machines are raised cold"},
		{name: "snapshot", optional: true, do: v.snapshots, remedy: remedy + "; until then there are no snapshots"},
		{name: "hot-plug", optional: true, do: v.plugs, remedy: remedy + "; until then machines are raised cold"},
	}
}

// counting calls do with a machine that runs and counts, and ends it and its
// clones, which are to have its run, afterwards.
func (v *virt) counting(ctx context.Context, do func(spec machine.Spec) (string, error)) (string, error) {
	if v.accelerator == "" {
		return "", errNoGuest
	}
	return inTemp(func(dir string) (_ string, err error) {
		spec, err := v.sector(ctx, dir, bootsector.Count())
		if err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, v.endAll(context.WithoutCancel(ctx), spec)) }()
		err = v.hypervisor.Create(ctx, spec)
		if err == nil {
			err = v.hypervisor.Resume(ctx, spec.Name)
		}
		if err == nil {
			err = counts(ctx, spec, 0)
		}
		if err != nil {
			return "", err
		}
		return do(spec)
	})
}

// endAll ends a machine and its clones.
func (v *virt) endAll(ctx context.Context, spec machine.Spec) error {
	return end(ctx, v.hypervisor, spec.Name, cloneOf(spec, 1).Name, cloneOf(spec, 2).Name)
}

// cloneOf is another machine, on a disk over that of spec.
func cloneOf(spec machine.Spec, n int) machine.Spec {
	clone := spec
	clone.Name = fmt.Sprintf("%s-%d", spec.Name, n)
	clone.UUID = fmt.Sprintf("%s%d", spec.UUID[:len(spec.UUID)-1], n)
	clone.Disk = fmt.Sprintf("%s.%d.qcow2", spec.Disk, n)
	clone.ConsoleLog += strconv.Itoa(n)
	clone.ConsoleSock += strconv.Itoa(n)
	return clone
}

// overlay makes a disk over another one.
func overlay(ctx context.Context, base, disk string) error {
	_, err := run(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base, disk)
	return err
}

// clones saves a machine and lets two others go on from where it was.
func (v *virt) clones(ctx context.Context) (string, error) {
	return v.counting(ctx, func(spec machine.Spec) (string, error) {
		memory := filepath.Join(filepath.Dir(spec.Disk), "memory")
		if err := v.hypervisor.Save(ctx, spec.Name, memory); err != nil {
			return "", err
		}
		was := count(spec)
		begun := time.Now()
		for n := range 2 {
			clone := cloneOf(spec, n+1)
			if err := overlay(ctx, spec.Disk, clone.Disk); err != nil {
				return "", err
			}
			err := v.hypervisor.Restore(ctx, clone, memory)
			if err == nil {
				err = v.hypervisor.Resume(ctx, clone.Name)
			}
			if err == nil {
				err = counts(ctx, clone, was)
			}
			if err != nil {
				return "", err
			}
		}
		return fmt.Sprintf("two clones of a saved machine went on from its memory within %v", time.Since(begun).Round(time.Millisecond)), nil
	})
}

// snapshots takes the memory and the disk of a machine, which runs on.
func (v *virt) snapshots(ctx context.Context) (string, error) {
	return v.counting(ctx, func(spec machine.Spec) (string, error) {
		memory, next := filepath.Join(filepath.Dir(spec.Disk), "memory"), cloneOf(spec, 1).Disk
		if err := overlay(ctx, spec.Disk, next); err != nil {
			return "", err
		}
		begun := time.Now()
		err := v.hypervisor.Pause(ctx, spec.Name)
		if err == nil {
			err = v.hypervisor.Snapshot(ctx, spec.Name, memory, next)
		}
		if err == nil {
			err = v.hypervisor.Resume(ctx, spec.Name)
		}
		stood := time.Since(begun)
		if err == nil {
			err = counts(ctx, spec, count(spec))
		}
		var on string
		if err == nil {
			on, err = v.hypervisor.Disk(ctx, spec.Name)
		}
		if err == nil && on != next {
			err = fmt.Errorf("the machine writes to %s, not to %s", on, next)
		}
		return fmt.Sprintf("a machine stood for %v and ran on, on a new disk", stood.Round(time.Millisecond)), err
	})
}

// plugs gives a running machine a NIC.
func (v *virt) plugs(ctx context.Context) (string, error) {
	return v.counting(ctx, func(spec machine.Spec) (string, error) {
		nic := machine.NIC{MAC: "52:54:00:00:00:01", Tap: "mlv" + randomHex(4)}
		if err := v.hypervisor.Plug(ctx, spec.Name, nic); err != nil {
			return "", err
		}
		if _, err := net.InterfaceByName(nic.Tap); err != nil {
			return "", fmt.Errorf("the tap of the new NIC: %w", err)
		}
		return "a running machine got a NIC", counts(ctx, spec, count(spec))
	})
}

// counts waits until a machine has counted further than n.
func counts(ctx context.Context, spec machine.Spec, n int) error {
	for count(spec) <= n {
		select {
		case <-ctx.Done():
			return fmt.Errorf("machine %s has counted to %d only, not beyond %d: %w", spec.Name, count(spec), n, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// count is the last whole number on a console; 0 for none.
func count(spec machine.Spec) int {
	console, err := os.ReadFile(spec.ConsoleLog)
	if err != nil {
		return 0
	}
	whole := console[:bytes.LastIndexByte(console, '\n')+1]
	lines := strings.Fields(string(whole))
	if len(lines) == 0 {
		return 0
	}
	n, err := strconv.ParseUint(lines[len(lines)-1], 16, 16)
	if err != nil {
		return 0
	}
	return int(n)
}
