package bench

import (
	"context"
	"strings"
	"time"
)

// HostStatus is the part of `mesh-host status --json` that specs look at.
type HostStatus struct {
	State  string `json:"state"` // "hosted", "enrolled", "disconnected"
	Reason string `json:"reason"`
	Member *struct {
		Mesh      string   `json:"mesh"`
		Node      string   `json:"node"`
		Addresses []string `json:"addresses"`
	} `json:"member"`
	Declaration *struct {
		Source     string `json:"source"`
		Epoch      uint64 `json:"epoch"`
		Generation uint64 `json:"generation"`
	} `json:"declaration"`
	Pass *struct {
		Finished *time.Time `json:"finished"`
		Activity *struct {
			ID string `json:"id"`
		} `json:"activity"`
	} `json:"pass"`
	Converged bool           `json:"converged"`
	Resources []HostResource `json:"resources"`
	Owed      []struct {
		Unit string `json:"unit"`
	} `json:"owed"`
	Left []struct {
		Where string `json:"where"`
		Why   string `json:"why"`
	} `json:"left"`
	Losses []struct {
		What string `json:"what"`
	} `json:"losses"`
	HostVersion string      `json:"host_version"`
	Program     HostProgram `json:"program"`
}

// HostProgram is what a host knows of its own versions.
type HostProgram struct {
	Kept struct {
		Version string `json:"version"`
		Package string `json:"package"`
	} `json:"kept"`
	Trial *struct {
		Version string `json:"version"`
		Starts  int    `json:"starts"`
	} `json:"trial"`
	Broken []struct {
		Version string `json:"version"`
		Reason  string `json:"reason"`
	} `json:"broken"`
}

// HostResource is one resource of a HostStatus.
type HostResource struct {
	ID     string `json:"id"`
	Where  string `json:"where"`
	Status string `json:"status"`
	Reason string `json:"reason"`
	Owned  *struct {
		Found bool `json:"found"`
	} `json:"owned"`
}

// Statuses maps each resource's ID to its status; what a resource brought, and what
// was declared by the same ID before, are listed behind it and left out.
func (s HostStatus) Statuses() map[string]string {
	all := map[string]string{}
	for _, r := range s.Resources {
		if _, declared := all[r.ID]; !declared {
			all[r.ID] = r.Status
		}
	}
	return all
}

// Host asks the machine's host for its status.
func (m *Machine) Host(ctx context.Context) (HostStatus, error) {
	var s HostStatus
	err := m.JSON(ctx, "mesh-host status --json", &s)
	return s, err
}

// PlaneNode is the part of `mesh-plane node list --json` and `node show --json`
// that specs look at.
type PlaneNode struct {
	Name        string   `json:"name"`
	State       string   `json:"state"` // "connected", "disconnected"
	HostVersion string   `json:"host_version"`
	Addresses   []string `json:"addresses"`
	Modules     []string `json:"modules"`
	Declared    struct {
		Generation uint64 `json:"generation"`
	} `json:"declared"`
	Acknowledged *struct {
		Generation uint64 `json:"generation"`
	} `json:"acknowledged"`
	Results []HostResource `json:"results"` // of its last report; not in a list
}

// Nodes asks the plane on this machine for its nodes, by name.
func (m *Machine) Nodes(ctx context.Context) (map[string]PlaneNode, error) {
	var list struct {
		Nodes []PlaneNode `json:"nodes"`
	}
	err := m.JSON(ctx, "mesh-plane node list --json", &list)
	nodes := map[string]PlaneNode{}
	for _, n := range list.Nodes {
		nodes[n.Name] = n
	}
	return nodes, err
}

// Node asks the plane on this machine for all it knows of one node.
func (m *Machine) Node(ctx context.Context, name string) (PlaneNode, error) {
	var n PlaneNode
	err := m.JSON(ctx, "mesh-plane node show "+name+" --json", &n)
	return n, err
}

// Token asks the plane on this machine for a token; args are those of
// `mesh-plane token issue`.
func (m *Machine) Token(ctx context.Context, args string) (string, error) {
	r := m.Sh(ctx, "mesh-plane token issue "+args)
	return strings.TrimSpace(r.Stdout), r.Err()
}
