package systemtest

import (
	"encoding/json"
	"os"

	"mesh/host/system"
)

// saved is what a machine has beside its disk, written down so that it outlives
// the process that plays it.
type saved struct {
	Offers    map[string]Offer
	Installed map[string]system.Package
	Units     []savedUnit
	Runs      int
	Boots     int
	Podman    savedPodman
	Restarts  map[string]int
}

type savedPodman struct {
	Lacks                  string
	Offered, Images, Asked map[string]bool
	Containers             map[string]*running
}

type savedUnit struct {
	Unit Unit
	Run  int
	Read map[string]string
}

// Save writes packages, services and containers of m to a file that is no part of it.
func (m *Machine) Save(file string) error {
	s := saved{
		Offers: m.offers, Installed: m.installed,
		Runs: m.runs, Boots: m.boots, Restarts: m.restarts,
		Podman: savedPodman{m.lacks, m.Podman.offered, m.images, m.asked, m.containers},
	}
	for _, u := range m.sorted() {
		s.Units = append(s.Units, savedUnit{*u, u.run, u.read})
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o600)
}

// Load is the machine with this disk whose packages, services and containers were saved.
func Load(d Storage, file string) (*Machine, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var s saved
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, err
	}
	units := newServices()
	units.runs, units.boots, units.restarts = s.Runs, s.Boots, s.Restarts
	for _, u := range s.Units {
		unit := u.Unit
		unit.run, unit.read = u.Run, u.Read
		units.units[unit.Name] = &unit
	}
	c := s.Podman
	podman := &Podman{lacks: c.Lacks, offered: c.Offered, images: c.Images, asked: c.Asked, containers: c.Containers}
	return assemble(d, &Packages{offers: s.Offers, installed: s.Installed}, units, podman), nil
}
