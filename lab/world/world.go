// Package world is the outside of one raised scenario: one process in its own
// network namespaces that builds bridges and routers and serves addresses,
// names, an ACME issuer and packages. Nothing else configures the inside.
//
// Only lab/lifecycle, lab/snapshot and cmd/lab import it.
package world

import "mesh/lab/underlay"

// Config is what a world needs; it is written as JSON into the run's directory
// and read by the child process.
type Config struct {
	Underlay underlay.Underlay `json:"underlay"`
	// Repositories maps a path of the artefacts server to a directory on the lab
	// machine that holds a flat apt repository: "debian-13" →
	// http://packages.world.test/debian-13/.
	Repositories map[string]string `json:"repositories"`
	Control      string            `json:"control"` // path of the control socket, ≤ 108 bytes
	Log          string            `json:"log"`     // path; JSON lines of slog
}

// Status is the answer of GET /status on the control socket.
type Status struct {
	Ready    bool              `json:"ready"`
	PID      int               `json:"pid"`
	Leases   map[string]string `json:"leases"` // MAC → address, as last acknowledged
	Services []ServiceStatus   `json:"services"`
}

// ServiceStatus is one part of the world.
type ServiceStatus struct {
	Name string `json:"name"` // dhcp, router-advertisement, dns, issuer, artefacts
	OK   bool   `json:"ok"`
	Why  string `json:"why,omitempty"`
}
