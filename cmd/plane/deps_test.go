package main

import (
	"testing"

	"mesh/cmd/internal/deptest"
)

func TestDependencies(t *testing.T) {
	deptest.Check(t, deptest.List(t, "mesh/plane/...", "mesh/cmd/plane/...", "mesh/nesting"), []deptest.Rule{
		{
			Of:      []string{"mesh/nesting"},
			Never:   []string{"mesh/...", "os", "os/exec", "net/http", "database/sql"},
			Because: "plane and lab stand on it: it is pure, and knows of neither",
		},
		{
			Of:      []string{"mesh/plane/...", "mesh/cmd/plane"},
			Never:   []string{"mesh/host/..."},
			But:     []string{"mesh/host/declaration", "mesh/host/identity", "mesh/host/inventory", "mesh/host/link"},
			Through: true,
			Because: "plane and host share the contract and nothing else",
		},
		{
			Of:      []string{"mesh/plane/...", "mesh/cmd/plane"},
			Never:   []string{"mesh/lab/..."},
			Through: true,
			Because: "the lab tries the plane; the plane never knows of it",
		},
		{
			Of:      []string{"mesh/plane/..."},
			Never:   []string{"mesh/cmd/..."},
			Because: "streams and exit codes belong to the programs",
		},
		{
			Of:      []string{"mesh/plane/config", "mesh/plane/debian", "mesh/plane/refusal", "mesh/plane/registry", "mesh/plane/module"},
			Never:   []string{"os", "os/exec", "net/http", "database/sql", "mesh/plane/store", "mesh/plane/gateway", "mesh/plane/api"},
			Because: "what is decided is decided by values alone",
		},
		{
			Of:      []string{"mesh/plane/..."},
			Except:  []string{"mesh/plane/store"},
			Never:   []string{"database/sql", "modernc.org/sqlite/..."},
			Because: "plane/store is the only package that knows there is a database",
		},
		{
			Of:      []string{"mesh/plane/...", "mesh/cmd/plane"},
			Except:  []string{"mesh/plane/planetest"},
			Never:   []string{"mesh/plane/planetest"},
			Because: "it makes planes for tests",
		},
	})
}
