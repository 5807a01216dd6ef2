package libvirt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"mesh/lab/machine"
	"mesh/lab/machine/bootsector"
)

const (
	// emulatorName is the program that a guest is tried under.
	emulatorName = "qemu-system-x86_64"
	// tryTime is long enough for a guest of one sector: under emulation it takes
	// a quarter of a second.
	tryTime = 3 * time.Second
	// qemuUser is who libvirt runs machines as on Debian.
	qemuUser = "libvirt-qemu"
)

// verdict is what was found, kept as long as what it was found with stays.
type verdict struct {
	Boot        string              `json:"boot"` // id of the lab machine's boot
	QEMU        string              `json:"qemu"` // version and build
	Device      string              `json:"device"`
	Accelerator machine.Accelerator `json:"accelerator"`
	Reason      string              `json:"reason"`
}

// Accelerator finds how guests can be run, by running one: KVM counts only if a
// guest under it, as the user that libvirt runs machines as, comes to its end in
// good time: there are KVMs that run guests far slower than emulation does.
// The reason says what was seen, in one line. The answer is kept until the lab
// machine boots, or QEMU or the device changes. An error means that no guest
// runs at all; it carries the exit code of a missing prerequisite.
func (d *Daemon) Accelerator(ctx context.Context) (machine.Accelerator, string, error) {
	emulator, err := lookPath(emulatorName)
	if err != nil {
		return "", "", missing{fmt.Errorf("%w; install it: apt-get install --no-install-recommends qemu-system-x86", err)}
	}
	version, err := exec.CommandContext(ctx, emulator, "--version").Output()
	if err != nil {
		return "", "", fmt.Errorf("ask %s for its version: %w", emulator, err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", "", fmt.Errorf("read the boot's id: %w", err)
	}
	now := verdict{
		Boot:   strings.TrimSpace(string(boot)),
		QEMU:   strings.SplitN(string(version), "\n", 2)[0],
		Device: deviceState(kvmDev),
	}
	file := d.path("accelerator.json")
	if kept, ok := readVerdict(file); ok && kept.Boot == now.Boot && kept.QEMU == now.QEMU && kept.Device == now.Device {
		return kept.Accelerator, kept.Reason, nil
	}
	if now.Accelerator, now.Reason, err = try(ctx, emulator, now.Device); err != nil {
		return "", "", err
	}
	text, err := json.Marshal(now)
	if err == nil {
		err = writeFile(file, text)
	}
	if err != nil { // only slower the next time
		d.log.Warn("cannot keep what was found of the accelerator", "file", file, "err", err)
	}
	return now.Accelerator, now.Reason, nil
}

// try runs a guest under KVM, and if that fails under emulation.
func try(ctx context.Context, emulator, device string) (machine.Accelerator, string, error) {
	dir, err := os.MkdirTemp("", "mesh-lab-")
	if err != nil {
		return "", "", fmt.Errorf("try a guest: %w", err)
	}
	defer os.RemoveAll(dir)
	disk := filepath.Join(dir, "disk")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(disk, bootsector.Exit(), 0o644)); err != nil {
		return "", "", fmt.Errorf("try a guest: %w", err)
	}
	why := "there is no " + kvmDev
	if device != "absent" {
		took, err := tryGuest(ctx, emulator, machine.KVM, disk)
		if err == nil {
			return machine.KVM, fmt.Sprintf("a guest ran under KVM in %v", took.Round(time.Millisecond)), nil
		}
		why = "KVM: " + err.Error()
	}
	took, err := tryGuest(ctx, emulator, machine.TCG, disk)
	if ctx.Err() != nil {
		return "", "", fmt.Errorf("try a guest: %w", context.Cause(ctx))
	}
	if err != nil {
		return "", "", missing{fmt.Errorf("no guest runs: %s; emulation: %w", why, err)}
	}
	return machine.TCG, fmt.Sprintf("%s; a guest ran under emulation in %v", why, took.Round(time.Millisecond)), nil
}

// tryGuest runs a guest that ends by itself with a status that nothing else has.
func tryGuest(ctx context.Context, emulator string, a machine.Accelerator, disk string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, emulator,
		"-machine", "q35", "-accel", string(a), "-m", "16", "-nodefaults", "-no-user-config", "-display", "none",
		"-drive", "file="+disk+",format=raw,if=none,id=disk,read-only=on", "-device", "virtio-blk-pci,drive=disk",
		"-device", fmt.Sprintf("isa-debug-exit,iobase=%#x,iosize=1", bootsector.ExitPort))
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: machineUser(), Pdeathsig: syscall.SIGKILL}
	begun := time.Now()
	err := cmd.Run()
	took := time.Since(begun)
	switch {
	case cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == bootsector.ExitStatus:
		return took, nil
	case ctx.Err() != nil:
		return took, fmt.Errorf("a guest was started and did not come to its end within %v", tryTime)
	}
	said, _, _ := strings.Cut(strings.TrimSpace(output.String()), "\n")
	if strings.Contains(said, "Permission denied") {
		said += fmt.Sprintf(" (for user %s; if it should work: chgrp kvm %s && chmod 660 %s)", qemuUser, kvmDev, kvmDev)
	}
	if said != "" {
		return took, errors.New(strings.TrimPrefix(said, emulatorName+": "))
	}
	if err == nil {
		err = errors.New("the guest ended without having run")
	}
	return took, err
}

// machineUser is who libvirt runs machines as, or nil for the caller where that
// user is unknown or the caller may not become it.
func machineUser() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup(qemuUser)
	if err != nil {
		return nil
	}
	uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
	gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
	if errUID != nil || errGID != nil {
		return nil
	}
	c := &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	ids, _ := u.GroupIds()
	for _, id := range ids {
		if n, err := strconv.ParseUint(id, 10, 32); err == nil {
			c.Groups = append(c.Groups, uint32(n))
		}
	}
	return c
}

// deviceState tells one state of a device from another: "absent", or its mode
// and owner.
func deviceState(path string) string {
	o, err := ownerOf(path)
	if err != nil {
		return "absent"
	}
	return fmt.Sprintf("%v %d:%d", o.Mode, o.UID, o.GID)
}

// readVerdict takes a file that is absent or unreadable for no verdict.
func readVerdict(file string) (verdict, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return verdict{}, false
	}
	var v verdict
	err = json.Unmarshal(text, &v)
	return v, err == nil && (v.Accelerator == machine.KVM || v.Accelerator == machine.TCG)
}
