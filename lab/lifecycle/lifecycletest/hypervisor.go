package lifecycletest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"mesh/lab/lifecycle"
	"mesh/lab/machine"
	"mesh/lab/world"
)

type daemon struct{ *Fake }

func (d daemon) Ensure(ctx context.Context) error {
	if d.runs() {
		return nil
	}
	return d.change(ctx, "start daemon", func() error { return d.put("daemon", "lab", true) })
}

func (d daemon) Release(ctx context.Context) error {
	if !d.runs() {
		return nil
	}
	return d.change(ctx, "end daemon", func() error {
		if left := d.names("domain"); len(left) > 0 {
			return nil // somebody's
		}
		d.drop("daemon", "lab")
		return nil
	})
}

func (d daemon) runs() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.has("daemon", "lab")
}

func (d daemon) Accelerator(context.Context) (machine.Accelerator, string, error) {
	if !d.runs() {
		return "", "", errors.New("no daemon")
	}
	if d.KVM {
		return machine.KVM, "a probe ran under KVM", nil
	}
	return machine.TCG, "a probe did not run under KVM", nil
}

type hypervisor struct{ *Fake }

var _ machine.Hypervisor = hypervisor{}

func (h hypervisor) Create(ctx context.Context, s machine.Spec) error {
	return h.change(ctx, "create "+s.Name, func() error {
		return h.place(s, map[string]string{heldCmdline: s.Cmdline})
	})
}

// place makes a machine, paused, whose guest holds that; nothing on an error.
func (h hypervisor) place(s machine.Spec, held map[string]string) error {
	if err := s.Check(); err != nil {
		return err
	}
	if !h.has("daemon", "lab") {
		return errors.New("no daemon")
	}
	if h.has("domain", s.Name) {
		return fmt.Errorf("domain %s exists", s.Name)
	}
	if readDisk(s.Disk) == nil {
		return fmt.Errorf("%s is no disk", s.Disk)
	}
	if err := h.served(s.Run); err != nil {
		return err
	}
	if err := h.failing(s.Disk); err != nil {
		return err
	}
	for _, nic := range s.NICs {
		if h.has("link", nic.Tap) {
			return fmt.Errorf("link %s exists", nic.Tap)
		}
	}
	for _, nic := range s.NICs {
		if err := h.put("link", nic.Tap, ""); err != nil {
			return err
		}
	}
	h.drop("dead", s.Name)
	return h.put("domain", s.Name, domain{Spec: s, State: machine.Paused, Held: held})
}

// on does something to one machine between the calls of the hook.
func (h hypervisor) on(ctx context.Context, what, name string, do func(d *domain) error) error {
	return h.change(ctx, what+" "+name, func() error {
		var d domain
		if err := h.get("domain", name, &d); err != nil {
			return machine.ErrAbsent
		}
		if err := do(&d); err != nil {
			return err
		}
		if !h.has("domain", name) {
			return nil // do ended it
		}
		return h.put("domain", name, d)
	})
}

func (h hypervisor) Resume(ctx context.Context, name string) error {
	return h.on(ctx, "resume", name, func(d *domain) error {
		if d.State == machine.Running {
			return nil
		}
		d.State = machine.Running
		if d.Booted {
			return d.say("runs on")
		}
		return d.boot()
	})
}

// boot is what the guest does first.
func (d *domain) boot() error {
	d.Booted = true
	return d.say("boots")
}

// say writes on the machine's console.
func (d *domain) say(what string) error {
	log, err := os.OpenFile(d.Spec.ConsoleLog, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	fmt.Fprintf(log, "%s %s\r\n", d.Spec.Name, what)
	return log.Close()
}

func (h hypervisor) Destroy(ctx context.Context, name string) error {
	return h.change(ctx, "destroy "+name, func() error {
		var d domain
		if h.get("domain", name, &d) != nil {
			return nil
		}
		return errors.Join(h.dropDomain(d), h.put("dead", name, machine.Death{Cause: machine.Destroyed}))
	})
}

// dropDomain removes a machine and, as the kernel does, its taps.
func (f *Fake) dropDomain(d domain) error {
	for _, nic := range d.Spec.NICs {
		f.drop("link", nic.Tap)
	}
	f.drop("domain", d.Spec.Name)
	return nil
}

func (h hypervisor) State(_ context.Context, name string) (machine.State, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.has("daemon", "lab") {
		return "", errors.New("no daemon")
	}
	var d domain
	if h.get("domain", name, &d) != nil {
		return "", machine.ErrAbsent
	}
	return d.State, nil
}

func (h hypervisor) List(_ context.Context, run string) ([]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.has("daemon", "lab") {
		return nil, errors.New("no daemon")
	}
	var all []string
	for _, name := range h.names("domain") {
		var d domain
		if err := h.get("domain", name, &d); err != nil {
			return nil, err
		}
		if run == "" || d.Spec.Run == run {
			all = append(all, name)
		}
	}
	return all, nil
}

func (h hypervisor) Agent(context.Context, string, string) (string, error) {
	return "", errors.New("the fake's guests are asked through Guest")
}

func (h hypervisor) Diagnosis(ctx context.Context, name string) (string, error) {
	death, err := h.ended(name)
	if err != nil {
		return "", err
	}
	return death.Stderr, nil
}

func (h hypervisor) Wait(ctx context.Context, name string) (machine.Death, error) {
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for {
		if death, err := h.ended(name); err == nil {
			return death, nil
		}
		select {
		case <-ctx.Done():
			return machine.Death{}, ctx.Err()
		case <-look.C:
		}
	}
}

// ended is how a machine ended; an error while it lives.
func (h hypervisor) ended(name string) (machine.Death, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.has("domain", name) {
		return machine.Death{}, errors.New("it lives")
	}
	death := machine.Death{Cause: machine.Unknown}
	_ = h.get("dead", name, &death)
	return death, nil
}

func (h hypervisor) Forget(ctx context.Context, name string) error {
	return h.change(ctx, "forget "+name, func() error {
		h.drop("dead", name)
		return nil
	})
}

type disks struct{ *Fake }

func (d disks) Overlay(ctx context.Context, base, path string) error {
	return d.change(ctx, "overlay "+path, func() error {
		if base == "" {
			return errors.New("no base")
		}
		from, err := filepath.Rel(filepath.Dir(path), base)
		if err != nil {
			return err
		}
		data, err := json.Marshal(map[string][]byte{baseKey: []byte(from)})
		if err != nil {
			return err
		}
		return os.WriteFile(path, data, 0o644)
	})
}

func (d disks) Flatten(ctx context.Context, top, base, path string) error {
	return d.change(ctx, "flatten "+path, func() error {
		if filepath.Dir(top) != filepath.Dir(path) || filepath.Dir(base) != filepath.Dir(path) {
			return errors.New("they lie in several directories")
		}
		files := map[string][]byte{}
		for at := top; at != base; {
			own := readLayer(at)
			if own == nil || len(own[baseKey]) == 0 {
				return fmt.Errorf("%s does not stand on %s", top, base)
			}
			at = filepath.Join(filepath.Dir(at), string(own[baseKey]))
			maps.Copy(own, files)
			files = own
		}
		files[baseKey] = []byte(filepath.Base(base))
		data, err := json.Marshal(files)
		if err != nil {
			return err
		}
		return os.WriteFile(path, data, 0o644)
	})
}

func (d disks) Repository(ctx context.Context, debs, dir string) error {
	return d.change(ctx, "repository "+dir, func() error { return os.Mkdir(dir, 0o755) })
}

type computer struct{ *Fake }

// firstFake is above every process number that Linux gives: proc_sys_kernel(5), pid_max.
const firstFake = 1 << 23

func (c computer) Root() bool             { return !c.NotRoot }
func (c computer) Cores() int             { return 2 }
func (c computer) Memory() (int64, error) { return cmp.Or(c.MemoryBytes, 64<<30), nil }
func (c computer) FreeMemory() (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	free := cmp.Or(c.MemoryBytes, 64<<30)
	for _, name := range c.names("domain") {
		var d domain
		if err := c.get("domain", name, &d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		free -= d.Spec.MemoryBytes
	}
	return free, nil
}
func (c computer) FreeSpace(string) (int64, error) {
	if c.SpaceBytes == 0 {
		return 1 << 40, nil
	}
	return c.SpaceBytes, nil
}
func (c computer) Self() (world.Process, error) { return lifecycle.Linux{}.Self() }
func (c computer) Alive(p world.Process) bool {
	if p.PID < firstFake {
		return lifecycle.Linux{}.Alive(p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.has("process", fmt.Sprint(p.PID)) || c.has("server", fmt.Sprint(p.PID))
}
