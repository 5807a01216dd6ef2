package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	rpc "github.com/digitalocean/go-libvirt"

	"mesh/lab/machine"
)

// emulatorPrefix stands before QEMU's version in a platform.
const emulatorPrefix = "qemu "

// cloneSuffix is that of the copy of a memory image that a machine is restored
// from, beside its console's log. It exists while the machine is being restored.
const cloneSuffix = ".memory"

// Restore is machine.Memory's. It restores from a copy of the image, whose
// document it has made the spec's: libvirt does not restore under another name.
func (h *Hypervisor) Restore(ctx context.Context, spec machine.Spec, memory string) error {
	ctx, cancel := context.WithTimeout(ctx, memoryTime)
	defer cancel()
	what := "restore machine " + spec.Name
	chain, err := checkFiles(spec)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	f, err := os.Open(memory)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer f.Close()
	err = h.call(ctx, what, func(c *rpc.Libvirt) error {
		image, sealed, err := openMemory(f, spec)
		if err != nil {
			return fmt.Errorf("%s: %w", memory, err)
		}
		host, here, err := platform(c, spec.Accelerator, sealed.Platform.MachineType)
		if is(err, rpc.ErrInvalidArg) || is(err, rpc.ErrConfigUnsupported) {
			err = foreign("its machine type %s: %v", sealed.Platform.MachineType, err)
		}
		if err == nil {
			err = restorable(sealed.Platform, here)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", memory, err)
		}
		host.backing, host.genid = chain, newUUID()
		if image.xml, err = cloneXML(image.xml, spec, host); err != nil {
			return err
		}
		clone := spec.ConsoleLog + cloneSuffix
		defer os.Remove(clone)
		if err := writeClone(clone, image, f, sealed.Bytes); err != nil {
			return fmt.Errorf("copy %s: %w", memory, err)
		}
		return c.DomainRestoreFlags(clone, nil, uint32(rpc.DomainSavePaused))
	})
	if err == nil || errors.Is(err, machine.ErrForeign) {
		return err
	}
	h.sweep(ctx, spec)
	return refused(explained(err, logFile(spec.Name), stillborn(ctx, spec.Name)))
}

// refused makes ErrForeign of what QEMU says of a state that it cannot load.
func refused(err error) error {
	if strings.Contains(err.Error(), "load of migration failed") {
		return fmt.Errorf("%w: %w", machine.ErrForeign, err)
	}
	return err
}

// openMemory reads what stands before and after the state of an image, and
// checks it against the spec.
func openMemory(f *os.File, spec machine.Spec) (saveImage, seal, error) {
	info, err := f.Stat()
	if err != nil {
		return saveImage{}, seal{}, err
	}
	image, err := readSaveImage(f)
	if err != nil {
		return image, seal{}, err
	}
	sealed, err := readSeal(f, info.Size())
	if err != nil {
		return image, sealed, err
	}
	if image.state > sealed.Bytes {
		return image, sealed, foreign("its document ends behind its state")
	}
	domain, err := parseDomain(image.xml)
	if err != nil {
		return image, sealed, err
	}
	of, err := specOf(domain)
	if err != nil {
		return image, sealed, foreign("%v", err)
	}
	return image, sealed, spec.Fits(of)
}

// restorable reports why an image of one platform cannot be restored on another:
// QEMU reads what it or an older QEMU wrote. ErrForeign.
func restorable(of, here machine.Platform) error {
	var was, is [2]int
	_, errWas := fmt.Sscanf(of.Emulator, emulatorPrefix+"%d.%d.", &was[0], &was[1])
	_, errIs := fmt.Sscanf(here.Emulator, emulatorPrefix+"%d.%d.", &is[0], &is[1])
	switch {
	case errWas != nil || errIs != nil:
		return foreign("it was written by %q, here is %q", of.Emulator, here.Emulator)
	case was[0] > is[0] || was[0] == is[0] && was[1] > is[1]:
		return foreign("it was written by %s, here is only %s", of.Emulator, here.Emulator)
	case of.MachineType != here.MachineType:
		return foreign("it is of machine type %s, here is %s", of.MachineType, here.MachineType)
	case of.CPU != here.CPU:
		return foreign("it is of processor %s, here is %s", of.CPU, here.CPU)
	case of.Accelerator != here.Accelerator:
		return foreign("it ran under %s, here is %s", of.Accelerator, here.Accelerator)
	}
	return nil
}

// writeClone writes image with the state of from, which ends at end.
func writeClone(file string, image saveImage, from *os.File, end int64) error {
	to, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = to.Write(image.header())
	if err == nil {
		_, err = from.Seek(image.state, io.SeekStart)
	}
	if err == nil {
		_, err = io.CopyN(to, from, end-image.state) // within the kernel
	}
	return errors.Join(err, to.Close())
}
