// Package lifecycletest is a lab machine that exists in a directory only: every
// port of lab/lifecycle, strict about the order in which things may be done, and
// shared by any number of processes, so that one of them can be killed and
// another one asked to clean up. Only tests import it.
package lifecycletest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"

	"mesh/lab/lifecycle"
	"mesh/lab/machine"
	"mesh/lab/world"
)

// Fake is the lab machine in Dir, an existing directory. The zero values of the
// others are: root, KVM absent, plenty of memory and space.
type Fake struct {
	Dir string
	// Hook, if set, is called before and after each operation that changes the
	// machine; an error before it keeps it from happening. It may be called from
	// several goroutines, one at a time.
	Hook func(op string, after bool) error

	NotRoot     bool
	NoFUSE      bool // disks cannot be served
	KVM         bool
	MemoryBytes int64  // zero: 64 GiB
	SpaceBytes  int64  // zero: 1 TiB
	Emulator    string // that machines are run by; empty: machinetest.FakePlatform's

	mu sync.Mutex // one operation at a time
}

// Ports are the fake as every port that lifecycle needs.
func (f *Fake) Ports(cfg lifecycle.Config) lifecycle.Config {
	cfg.Daemon, cfg.Hypervisor, cfg.World = daemon{f}, hypervisor{f}, outside{f}
	cfg.Memory, cfg.Abuse, cfg.DiskFaults = hypervisor{f}, hypervisor{f}, diskFaults{f}
	cfg.Guest, cfg.Disks, cfg.Volatile, cfg.Computer = guests{f}, disks{f}, servers{f}, computer{f}
	return cfg
}

// domain is one machine as the fake keeps it.
type domain struct {
	Spec  machine.Spec  `json:"spec"`
	State machine.State `json:"state"`
	// Booted tells that the guest has run, here or before its memory was saved.
	Booted bool `json:"booted,omitempty"`
	// Held is what the guest has in memory: under heldCmdline what its kernel was
	// booted with, which is another machine's in a clone.
	Held     map[string]string `json:"held"`
	Pulled   []string          `json:"pulled,omitempty"` // MACs of NICs without a cable
	Throttle machine.Throttle  `json:"throttle"`
	Detached bool              `json:"detached,omitempty"` // the disk
	Resets   int               `json:"resets,omitempty"`   // how often the reset button was pressed
	Lost     bool              `json:"lost,omitempty"`     // nobody serves its disk any more, nor will
}

const heldCmdline = "cmdline"

// outsideState is one scenario's world as the fake keeps it.
type outsideState struct {
	PID    int             `json:"pid"`
	Config world.Config    `json:"config"`
	State  json.RawMessage `json:"state,omitempty"`
}

// String lists everything that stands, a line each, sorted; empty when nothing does.
func (f *Fake) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var lines []string
	for _, kind := range []string{"daemon", "domain", "dead", "mount", "server", "namespace", "link", "process"} {
		for _, name := range f.names(kind) {
			lines = append(lines, kind+" "+name)
		}
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

// KillMachine ends a machine's process, as if it crashed.
func (f *Fake) KillMachine(name, stderr string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var d domain
	if err := f.get("domain", name, &d); err != nil {
		return err
	}
	return errors.Join(f.dropDomain(d), f.put("dead", name, machine.Death{
		Cause: machine.Failed, Stderr: stderr, Command: "qemu-fake -name " + name,
	}))
}

// KillWorlds ends every world's process and leaves the rest, as a crash does.
func (f *Fake) KillWorlds() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range f.names("process") {
		f.drop("process", name)
	}
}

// File reads what a machine has at path; empty if nothing.
func (f *Fake) File(name, path string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var d domain
	if f.get("domain", name, &d) != nil {
		return ""
	}
	return string(readDisk(d.Spec.Disk)[path])
}

// change does one operation between the calls of the hook; none once ctx is done.
func (f *Fake) change(ctx context.Context, op string, do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", op, context.Cause(ctx))
	}
	if f.Hook != nil {
		if err := f.Hook(op, false); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if f.Hook != nil {
		return f.Hook(op, true)
	}
	return nil
}

// The fake's objects are files Dir/KIND=NAME.
func (f *Fake) path(kind, name string) string { return filepath.Join(f.Dir, kind+"="+name) }

func (f *Fake) put(kind, name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	path := f.path(kind, name)
	if err := os.WriteFile(path+".new", data, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (f *Fake) get(kind, name string, v any) error {
	data, err := os.ReadFile(f.path(kind, name))
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

func (f *Fake) has(kind, name string) bool {
	_, err := os.Stat(f.path(kind, name))
	return err == nil
}

func (f *Fake) drop(kind, name string) {
	if err := os.Remove(f.path(kind, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		panic(err)
	}
}

func (f *Fake) names(kind string) (names []string) {
	entries, err := os.ReadDir(f.Dir)
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		if name, ok := strings.CutPrefix(e.Name(), kind+"="); ok && !strings.HasSuffix(name, ".new") {
			names = append(names, name)
		}
	}
	return names
}

// baseKey is where an overlay names the disk that it stands on, relative to its
// own directory; no file has that path.
const baseKey = ""

// readDisk reads the files on a disk, those of what it stands on too; nil where
// it is none.
func readDisk(path string) map[string][]byte {
	own := readLayer(path)
	if own == nil {
		return nil
	}
	files := map[string][]byte{}
	if base := string(own[baseKey]); base != "" {
		maps.Copy(files, readDisk(filepath.Join(filepath.Dir(path), base))) // an image's disk holds nothing here
	}
	maps.Copy(files, own)
	delete(files, baseKey)
	return files
}

// readLayer is readDisk of that file alone, with baseKey.
func readLayer(path string) map[string][]byte {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	files := map[string][]byte{}
	if json.Unmarshal(data, &files) != nil {
		return nil
	}
	return files
}
