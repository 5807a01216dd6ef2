// Package inventory is the contract for what a machine can run (Profile) and
// what it has (Inventory). Both are reported before the plane decides anything,
// because they are inputs to that decision.
//
// It is pure: files come from an fs.FS rooted at "/", addresses as values.
package inventory

import "net/netip"

// Profile is what a machine can run.
type Profile struct {
	HostVersion  string   `json:"host_version"`           // version of mesh-host
	Formats      []int    `json:"formats"`                // declaration formats it reads
	Kinds        []string `json:"kinds"`                  // resource kinds it applies
	OS           string   `json:"os"`                     // ID of os-release: "debian"
	OSVersion    string   `json:"os_version"`             // VERSION_ID of os-release: "13"
	Architecture string   `json:"architecture"`           // GOARCH: "amd64"
	Kernel       string   `json:"kernel"`                 // release: "6.12.48+deb13-cloud-amd64"
	Systemd      bool     `json:"systemd"`                // systemd is running as PID 1
	Capabilities []string `json:"capabilities,omitempty"` // sorted; the constants below
}

// CapabilityContainers says that containers run: there is a podman that makes
// services of unit files (4.4 or newer). Without it a machine applies the kind
// container only once a package brought one.
const CapabilityContainers = "containers"

// Inventory is what a machine has.
type Inventory struct {
	MachineID   string      `json:"machine_id"` // machine-id(5), 32 hex digits
	Hostname    string      `json:"hostname"`
	CPUs        int         `json:"cpus"`
	MemoryBytes int64       `json:"memory_bytes"`
	Interfaces  []Interface `json:"interfaces"` // sorted by name; loopback left out
}

// Interface is one network interface and the networks it stands in.
type Interface struct {
	Name      string         `json:"name"`
	MAC       string         `json:"mac,omitempty"`
	Addresses []netip.Prefix `json:"addresses,omitempty"` // address with prefix length, IPv4 before IPv6, sorted; link-local left out
}
