package main

import (
	"testing"

	"mesh/cmd/internal/deptest"
)

func TestDependencies(t *testing.T) {
	deptest.Check(t, deptest.List(t, "mesh/lab/...", "mesh/cmd/lab/...", "mesh/scenarios", "mesh/images"), []deptest.Rule{
		{
			Of:      []string{"mesh/lab/...", "mesh/cmd/lab", "mesh/scenarios", "mesh/images"},
			Never:   []string{"mesh/host/...", "mesh/plane/..."},
			Through: true,
			Because: "the lab places built packages on machines as an operator would",
		},
		{
			Of:      []string{"mesh/lab/..."},
			Never:   []string{"mesh/cmd/..."},
			Because: "streams and exit codes belong to the programs",
		},
		{
			Of:      []string{"mesh/lab/install", "mesh/lab/scenario", "mesh/lab/underlay", "mesh/lab/machine", "mesh/lab/machine/qcow2", "mesh/lab/machine/bootsector", "mesh/lab/graph", "mesh/lab/watch", "mesh/lab/fault", "mesh/lab/world/impairment"},
			Never:   []string{"os", "os/exec", "net/http", "database/sql", "github.com/vishvananda/...", "github.com/digitalocean/..."},
			Because: "what is raised, and what is drawn of it, is computed from values alone",
		},
		{
			Of:      []string{"mesh/lab/...", "mesh/cmd/lab"},
			Except:  []string{"mesh/lab/machine/libvirt"},
			Never:   []string{"github.com/digitalocean/go-libvirt/...", "libvirt.org/go/libvirtxml"},
			Because: "lab/machine is the port; libvirt stands behind it",
		},
		{
			Of:      []string{"mesh/lab/...", "mesh/cmd/lab"},
			Except:  []string{"mesh/lab/volatile"},
			Never:   []string{"github.com/hanwen/go-fuse/..."},
			Because: "lab/volatile alone serves files to the kernel",
		},
		{
			Of:     []string{"mesh/lab/...", "mesh/cmd/lab"},
			Except: []string{"mesh/lab/machine/machinetest", "mesh/lab/world/worldtest", "mesh/lab/lifecycle/lifecycletest", "mesh/lab/scenario/scenariotest"},
			Never: []string{"mesh/lab/machine/machinetest", "mesh/lab/world/worldtest", "mesh/lab/lifecycle/lifecycletest", "mesh/lab/scenario/scenariotest",
				"mesh/cmd/internal/deptest", "mesh/specs/...", "testing"},
			Because: "only tests import what exists for tests",
		},
	})
}
