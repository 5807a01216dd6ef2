package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"mesh/lab/guest"
	"mesh/lab/images"
	"mesh/lab/machine"
)

// clockSlack is how far off a clock may be after it was set. An emulated machine
// that shares its processors takes long to answer when it is asked the time.
var clockSlack = map[machine.Accelerator]time.Duration{
	machine.KVM: 100 * time.Millisecond,
	machine.TCG: time.Second,
}

// guestChecks need a whole guest: a clone of a warm image, without a NIC. None is
// booted for them.
func (v *virt) guestChecks() []check {
	const remedy = "have the image made anew: lab image remove IMAGE, lab image build IMAGE, lab image warm IMAGE"
	return []check{
		{name: "agent", do: v.agent, remedy: remedy},
		{name: "clock set", do: v.clock, remedy: remedy},
	}
}

// agent asks a clone whether it is there.
func (v *virt) agent(ctx context.Context) (string, error) {
	return v.clone(ctx, func(name, of string) (string, error) {
		begun := time.Now()
		err := guest.New(v.hypervisor).Wait(ctx, name)
		return fmt.Sprintf("the agent of a clone of %s answered within %v", of, time.Since(begun).Round(time.Millisecond)), err
	})
}

// clock sets a clone's clock as raises do, and reads it.
func (v *virt) clock(ctx context.Context) (string, error) {
	return v.clone(ctx, func(name, of string) (string, error) {
		guests := guest.New(v.hypervisor)
		if err := guests.Wait(ctx, name); err != nil {
			return "", err
		}
		facts, err := guests.Settle(ctx, name, guest.Identity{Silent: true})
		if err != nil {
			return "", err
		}
		off, err := guests.Behind(ctx, name)
		if err != nil {
			return "", err
		}
		seen := fmt.Sprintf("the clock of a clone of %s was %v behind, and %v once it was set",
			of, facts.Clock.Round(time.Millisecond), off.Round(time.Microsecond))
		if slack := clockSlack[v.accelerator]; off.Abs() > slack {
			return "", fmt.Errorf("%s: more than %v", seen, slack)
		}
		return seen, nil
	})
}

// clone calls do with the name of a machine that runs on from a warm image, and
// the image's name, and ends the machine afterwards. Where there is no such
// machine nothing was checked.
func (v *virt) clone(ctx context.Context, do func(name, of string) (string, error)) (string, error) {
	if v.accelerator == "" {
		return "", errNoGuest
	}
	w, image, err := v.warm(ctx)
	if err != nil {
		return "", unchecked{err}
	}
	return inTemp(func(dir string) (_ string, err error) {
		spec, err := v.spec(dir)
		if err != nil {
			return "", err
		}
		spec.MemoryBytes, spec.CPUs = w.Of.MemoryBytes, w.Of.CPUs
		spec.Kernel, spec.Initrd, spec.Cmdline = image.Kernel, image.Initrd, image.Cmdline
		spec.Disk = filepath.Join(dir, "disk.qcow2")
		defer func() { err = errors.Join(err, end(context.WithoutCancel(ctx), v.hypervisor, spec.Name)) }()
		err = overlay(ctx, v.layer(w.Layer), spec.Disk)
		if err == nil {
			err = v.hypervisor.Restore(ctx, spec, w.Memory)
		}
		if err == nil {
			err = v.hypervisor.Resume(ctx, spec.Name)
		}
		if err != nil {
			return "", unchecked{fmt.Errorf("no clone of %s: %w", image.Name, err)}
		}
		return do(spec.Name, image.Name)
	})
}

// warm finds a warm image that can be restored here, and the image it is of.
func (v *virt) warm(ctx context.Context) (images.Warm, images.Image, error) {
	here, err := v.hypervisor.Platform(ctx, v.accelerator)
	if err != nil {
		return images.Warm{}, images.Image{}, err
	}
	warm, err := images.WarmStore{Dir: v.store}.List()
	if err != nil {
		return images.Warm{}, images.Image{}, err
	}
	built, err := images.Store{Dir: v.store}.List()
	if err != nil {
		return images.Warm{}, images.Image{}, err
	}
	return smallest(here, warm, built)
}

// smallest chooses the warm image of the least memory among those of a platform
// whose images stand.
func smallest(here machine.Platform, warm []images.Warm, built []images.Image) (images.Warm, images.Image, error) {
	warm = slices.SortedStableFunc(slices.Values(warm), func(a, b images.Warm) int {
		return cmp.Compare(a.Of.MemoryBytes, b.Of.MemoryBytes)
	})
	for _, w := range warm {
		of := func(i images.Image) bool { return i.Content != "" && i.Content == w.Of.Content }
		if i := slices.IndexFunc(built, of); i >= 0 && w.Of.Platform == here {
			return w, built[i], nil
		}
	}
	return images.Warm{}, images.Image{}, errors.New("no warm image stands for this machine, and none is booted for this")
}
