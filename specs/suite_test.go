// Package specs proves the whole system on real virtual machines. It is run by
// `make specs`; without -lab nothing runs, because it raises machines.
package specs_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"mesh/specs/bench"
)

var (
	labBin      = flag.String("lab", "", "path of the lab program; empty skips the suite")
	packagesDir = flag.String("packages", "", "directory of the project's .debs")
	evidenceDir = flag.String("evidence", "", "directory in which evidence of failures is kept")
)

func TestSpecs(t *testing.T) {
	if *labBin == "" {
		t.Skip("specs raise virtual machines; run them with `make specs`")
	}
	RegisterFailHandler(Fail)
	RunSpecs(t, "Mesh on real machines")
}

// lab is the program under test. Its narration is part of each spec's report.
func lab() bench.Lab {
	return bench.Lab{Bin: *labBin, Packages: *packagesDir, Log: GinkgoWriter}
}

// runID tells this run's scenarios from everybody else's; a run touches and
// destroys only what carries it.
var runID = fmt.Sprintf("s%d", os.Getpid())

// raised is every mesh of this run that still stands, with its machines.
var raised struct {
	sync.Mutex
	meshes map[*bench.Mesh][]string
}

// raiseOne raises the scenario of one machine as runID-suffix until the spec ends.
func raiseOne(ctx context.Context, suffix string) (*bench.Mesh, *bench.Machine) {
	GinkgoHelper()
	mesh, raised := lab().Raise(ctx, "single", runID+"-"+suffix)
	keep(mesh, []string{"one"})
	DeferCleanup(func(ctx SpecContext) {
		forget(mesh)
		Expect(mesh.Destroy(ctx).Err()).To(Succeed())
	}, NodeTimeout(2*time.Minute))
	Expect(raised.Err()).To(Succeed())
	return mesh, mesh.Machine("one")
}

func keep(mesh *bench.Mesh, machines []string) {
	raised.Lock()
	defer raised.Unlock()
	if raised.meshes == nil {
		raised.meshes = map[*bench.Mesh][]string{}
	}
	raised.meshes[mesh] = machines
}

func forget(mesh *bench.Mesh) {
	raised.Lock()
	defer raised.Unlock()
	delete(raised.meshes, mesh)
}

func standing() map[*bench.Mesh][]string {
	raised.Lock()
	defer raised.Unlock()
	meshes := make(map[*bench.Mesh][]string, len(raised.meshes))
	for mesh, machines := range raised.meshes {
		meshes[mesh] = machines
	}
	return meshes
}

// After every spec, whatever it asserted: no machine may have panicked; and
// where the spec failed, everything that may explain it is kept.
var _ = JustAfterEach(func(ctx SpecContext) {
	for mesh, machines := range standing() {
		if CurrentSpecReport().Failed() {
			dir := filepath.Join(*evidenceDir, fmt.Sprintf("%s-%03d", mesh.Name, CurrentSpecReport().LeafNodeLocation.LineNumber))
			// What cannot be kept must not hide the failure that it is about.
			if err := mesh.Collect(ctx, dir); err != nil {
				dir = fmt.Sprintf("could not be kept: %v", err)
			}
			AddReportEntry("evidence", dir)
			GinkgoWriter.Printf("evidence of this failure: %s\n", dir)
		}
		for _, name := range machines {
			Expect(mesh.Machine(name).Fatal(ctx)).To(BeEmpty())
		}
	}
}, NodeTimeout(3*time.Minute))
