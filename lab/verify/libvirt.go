package verify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"mesh/lab/machine"
	"mesh/lab/machine/bootsector"
	"mesh/lab/machine/libvirt"
)

// hypervisor is what the checks need of libvirt's.
type hypervisor interface {
	machine.Hypervisor
	machine.Memory
	Version(ctx context.Context) (string, error)
}

// virt is the part that needs a hypervisor.
type virt struct {
	daemon      *libvirt.Daemon
	hypervisor  hypervisor
	store       string
	layer       func(id string) string
	asked       bool                // for the daemon
	answered    bool                // by the hypervisor
	accelerator machine.Accelerator // once it was found
}

func newLibvirt(cfg Config) *virt {
	return &virt{
		daemon: libvirt.NewKeptDaemon(cfg.Runtime, cfg.Keeper, nil), hypervisor: libvirt.New(),
		store: cfg.Store, layer: cfg.Layer,
	}
}

func (v *virt) checks() []check {
	return []check{
		{
			name: "libvirt", do: v.answers,
			remedy: "apt-get install --no-install-recommends libvirt-daemon-system libvirt-daemon-driver-qemu libvirt-clients",
		},
		{
			name: "accelerator", do: v.accelerates,
			remedy: "apt-get install --no-install-recommends qemu-system-x86",
		},
		{
			name: "tiny machine", do: v.starts,
			remedy: "apt-get install --no-install-recommends libvirt-daemon-system libvirt-daemon-driver-qemu qemu-system-x86 qemu-utils",
		},
	}
}

// release ends the daemon if only this verification needed it.
func (v *virt) release(ctx context.Context) error {
	if !v.asked {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	return v.daemon.Release(ctx)
}

func (v *virt) answers(ctx context.Context) (string, error) {
	v.asked = true
	if err := v.daemon.Ensure(ctx); err != nil {
		return "", err
	}
	version, err := v.hypervisor.Version(ctx)
	if err != nil {
		return "", err
	}
	v.answered = true
	if v.daemon.Own() {
		return version + " answers, started by the lab", nil
	}
	return version + " answers, started by this machine", nil
}

func (v *virt) accelerates(ctx context.Context) (string, error) {
	found, why, err := v.daemon.Accelerator(ctx)
	if err != nil {
		return "", err
	}
	v.accelerator = found
	return fmt.Sprintf("%s: %s", found, why), nil
}

// starts makes a machine of one sector, paused, and destroys it.
func (v *virt) starts(ctx context.Context) (string, error) {
	if v.accelerator == "" {
		return "", errNoGuest
	}
	return inTemp(func(dir string) (_ string, err error) {
		spec, err := v.sector(ctx, dir, bootsector.Halt())
		if err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, end(context.WithoutCancel(ctx), v.hypervisor, spec.Name)) }()
		begun := time.Now()
		if err := v.hypervisor.Create(ctx, spec); err != nil {
			return "", err
		}
		created := time.Since(begun)
		if state, err := v.hypervisor.State(ctx, spec.Name); err != nil || state != machine.Paused {
			return "", fmt.Errorf("the machine was made, and is %q: %w", state, err)
		}
		return fmt.Sprintf("a machine stood paused after %v, and was destroyed", created.Round(time.Millisecond)), nil
	})
}

// sector is a machine that boots one sector.
func (v *virt) sector(ctx context.Context, dir string, boot []byte) (machine.Spec, error) {
	raw, disk := filepath.Join(dir, "disk"), filepath.Join(dir, "disk.qcow2")
	if err := os.WriteFile(raw, boot, 0o644); err != nil {
		return machine.Spec{}, err
	}
	if _, err := run(ctx, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, disk); err != nil {
		return machine.Spec{}, err
	}
	spec, err := v.spec(dir)
	spec.MemoryBytes, spec.CPUs, spec.Disk = 16<<20, 1, disk
	return spec, err
}

// spec is what all machines have that are made here.
func (v *virt) spec(dir string) (machine.Spec, error) {
	begins, err := prefix()
	id := randomHex(16)
	name := begins + id[:8]
	return machine.Spec{
		Name:        name,
		UUID:        fmt.Sprintf("%s-%s-4%s-8%s-%s", id[0:8], id[8:12], id[13:16], id[17:20], id[20:32]),
		Run:         strings.TrimPrefix(name, "mesh-"),
		Accelerator: v.accelerator,
		ConsoleLog:  filepath.Join(dir, "console"),
		ConsoleSock: filepath.Join(dir, "sock"),
	}, err
}

// end ends machines, and has the hypervisor forget them.
func end(ctx context.Context, h machine.Hypervisor, names ...string) error {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	var problems []error
	for _, name := range names {
		problems = append(problems, h.Destroy(ctx, name), h.Forget(ctx, name))
	}
	return errors.Join(problems...)
}
