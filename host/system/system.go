// Package system is the only one that touches the machine: its files, systemd,
// its packages and its containers.
//
// Files are written by one durable replace and reached without following a
// link; nothing is removed recursively or across a mount. Packages change, and
// images are fetched, outside the host's own control group. Nothing here decides: what shall be is
// told, what is is reported.
//
// host/resource, host/apply, host/upgrade and cmd/host may import it.
package system

// Config is what a System needs.
type Config struct {
	Runtime string // directory for what need not last; empty means /run/mesh-host
	Content string // directory for what is named by its digest; empty means /var/lib/mesh-host/content
	Workers int    // files prepared at once; 0 means 16
}

// System is this machine.
type System struct {
	*Files
	*Contents
	*Packages
	*Services
	*Podman
	passwd
	programs
}

// New makes a System; it touches nothing.
func New(cfg Config) *System {
	if cfg.Runtime == "" {
		cfg.Runtime = "/run/mesh-host"
	}
	if cfg.Workers == 0 {
		cfg.Workers = 16
	}
	if cfg.Content == "" {
		cfg.Content = "/var/lib/mesh-host/content"
	}
	files := NewFiles(&Linux{}, cfg.Workers)
	return &System{
		Files:    files,
		Contents: NewContents(files, cfg.Content),
		Packages: NewPackages(PackagesConfig{
			Query:  &remembering{runner: bounded{direct{}, asking}, state: func() string { return stateOf(packageFiles...) }},
			Change: transient{cfg.Runtime, packagesUnit, changing}, Holder: lockHolder, Broken: dpkgInterrupted,
			Sources: func() string { return stateOf("/etc/apt") },
		}),
		Services: &Services{},
		Podman: NewPodman(PodmanConfig{
			List:  &remembering{runner: bounded{answers{}, asking}, state: func() string { return podmanState(podmanStorage) }},
			Query: bounded{answers{}, asking}, Change: func(unit string) Runner { return transient{cfg.Runtime, unit, 0} }, Generator: hasGenerator,
			Sync: syncStorage, Room: roomForImage,
		}),
	}
}

// StateDirectory is where the host keeps its record.
func (s *System) StateDirectory(path string) *StateDirectory { return NewStateDirectory(s.Files, path) }
