package main

import (
	"testing"

	"mesh/cmd/internal/deptest"
)

func TestDependencies(t *testing.T) {
	deptest.Check(t, deptest.List(t, "mesh/host/...", "mesh/cmd/host/...", "mesh/spelling"), []deptest.Rule{
		{
			Of:      []string{"mesh/spelling"},
			Never:   []string{"mesh/...", "os", "os/exec", "net/http", "database/sql"},
			Because: "host, plane and lab stand on it: it is pure, and knows of none of them",
		},
		{
			Of:      []string{"mesh/host/...", "mesh/cmd/host"},
			Never:   []string{"mesh/plane/...", "mesh/lab/..."},
			Through: true,
			Because: "the host works alone and is upgraded slowest",
		},
		{
			Of:      []string{"mesh/host/..."},
			Never:   []string{"mesh/cmd/..."},
			Because: "streams and exit codes belong to the programs",
		},
		{
			Of:      []string{"mesh/host/declaration", "mesh/host/identity", "mesh/host/inventory", "mesh/host/link"},
			Never:   []string{"os", "os/exec", "net/http", "database/sql", "mesh/host/..."},
			But:     []string{"mesh/host/declaration", "mesh/host/identity", "mesh/host/inventory"},
			Because: "the contract is pure: plane and host must read it the same way anywhere",
		},
		{
			Of:      []string{"mesh/host/...", "mesh/cmd/host"},
			Except:  []string{"mesh/host/system", "mesh/host/system/systemtest"},
			Never:   []string{"os/exec", "github.com/coreos/go-systemd/..."},
			Because: "host/system is the only package that touches systemd, apt and podman",
		},
		{
			Of:      []string{"mesh/host/...", "mesh/cmd/host"},
			Except:  []string{"mesh/host/system/systemtest", "mesh/host/apply/applytest"},
			Never:   []string{"mesh/host/system/systemtest", "mesh/host/apply/applytest", "testing"},
			Because: "only tests import what exists for tests",
		},
	})
}
