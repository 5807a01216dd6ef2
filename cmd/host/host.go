package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"mesh/cmd/internal/cli"
	"mesh/host/agent"
	"mesh/host/inventory"
	"mesh/host/store"
	"mesh/host/system"
)

// host puts the parts of the program together for its commands.
type host struct {
	cli.Streams
	state   string // directories, as the flags say
	runtime string
	program string // path of this program, where it is replaced and put back
}

// identityBelow is where in the state directory the identity lies. It is a
// directory of its own: whoever locks one may clear its temporary files.
const identityBelow = "identity"

func (h *host) system() *system.System {
	return system.New(system.Config{Runtime: h.runtime, Content: h.content()})
}

// content is where lies what is named by its digest.
func (h *host) content() string { return filepath.Join(h.state, "content") }

func (h *host) identity(s *system.System) folder {
	return folder{s.StateDirectory(filepath.Join(h.state, identityBelow)), s.Files, filepath.Join(h.state, identityBelow)}
}

func (h *host) runtimeFolder(s *system.System) folder {
	return folder{s.StateDirectory(h.runtime), s.Files, h.runtime}
}

// prepare makes the directories of an installation that has none yet.
func (h *host) prepare() error {
	if os.Geteuid() != 0 {
		return cli.WithCode(cli.Prerequisite, errors.New("this changes the machine and has to be run as root"))
	}
	files := h.system().Files
	for _, dir := range h.directories() {
		_, err := os.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			err = files.MakeDirectory(dir, system.Access{Mode: 0o700})
		}
		if err != nil {
			return fmt.Errorf("prepare the host's directories: %w", err)
		}
	}
	return nil
}

// directories lists those of an installation, each behind the one it is in.
func (h *host) directories() []string {
	return []string{h.state, filepath.Join(h.state, identityBelow), filepath.Join(h.state, programBelow), h.runtime}
}

// restorer takes away again, as far as nothing is in them, the directories that
// are not there now.
func (h *host) restorer() (restore func() error) {
	var dirs []string
	for _, dir := range h.directories() {
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			dirs = append(dirs, dir)
		}
	}
	return func() error {
		files := h.system().Files
		for _, dir := range slices.Backward(dirs) {
			if err := files.RemoveDirectory(dir); err != nil && !errors.Is(err, system.ErrNotEmpty) {
				return err
			}
		}
		return nil
	}
}

func (h *host) hand(s *system.System, log *slog.Logger) (*agent.Hand, error) {
	self, err := agent.FindProcess(os.DirFS("/"), os.Getpid())
	if err != nil {
		return nil, err
	}
	m := h.machine(s)
	return &agent.Hand{
		Store:   h.record(s, log),
		Machine: m,
		Runtime: h.runtimeFolder(s),
		Process: self,
		Prune:   m.prune,
		Now:     time.Now,
		Log:     log,
	}, nil
}

// record is what this machine keeps of what it does.
func (h *host) record(s *system.System, log *slog.Logger) store.Config {
	return store.Config{Directory: s.StateDirectory(h.state), Now: time.Now, Log: log, Expected: agent.RecordExpected(h.identity(s))}
}

func (h *host) inspection() agent.Inspection {
	s := h.system()
	return agent.Inspection{
		Identity: h.identity(s), Runtime: h.runtimeFolder(s), Store: s.StateDirectory(h.state),
		Version: version, Content: h.content(), Program: h.keeper(s).Read,
		Alive: func(p agent.Process) bool {
			found, err := agent.FindProcess(os.DirFS("/"), p.PID)
			return err == nil && found == p
		},
	}
}

// folder adds to a state directory what the record of the store has no use for.
type folder struct {
	*system.StateDirectory
	files *system.Files
	path  string
}

// Remove implements agent.Folder.
func (f folder) Remove(name string) error {
	b, err := f.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	sum := sha256.Sum256(b)
	return f.files.Remove([]system.Removal{{Path: filepath.Join(f.path, name), Digest: hex.EncodeToString(sum[:])}})[0]
}

// facts collects what the plane is told about this machine.
func facts() agent.Facts {
	root := os.DirFS("/")
	return agent.Facts{
		Profile: func() (inventory.Profile, error) {
			return inventory.CollectProfile(root, version, runtime.GOARCH)
		},
		Inventory: func() (inventory.Inventory, error) {
			interfaces, err := interfaces()
			if err != nil {
				return inventory.Inventory{}, fmt.Errorf("collect inventory: %v", err)
			}
			return inventory.Collect(root, interfaces)
		},
	}
}

func interfaces() ([]inventory.Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var out []inventory.Interface
	for _, i := range all {
		if i.Flags&net.FlagLoopback != 0 {
			continue
		}
		kept := inventory.Interface{Name: i.Name, MAC: i.HardwareAddr.String()}
		addresses, err := i.Addrs()
		if err != nil {
			return nil, err
		}
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				kept.Addresses = append(kept.Addresses, p)
			}
		}
		out = append(out, kept)
	}
	return out, nil
}

// replaced tells from now on whether another program lies where this one was
// started from.
func replaced() func() bool {
	path, err := os.Executable()
	if err != nil {
		return nil
	}
	mine, err := os.Stat("/proc/self/exe")
	if err != nil {
		return nil
	}
	return func() bool {
		there, err := os.Stat(path)
		return err == nil && !os.SameFile(mine, there)
	}
}
