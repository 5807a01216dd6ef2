package apply_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mesh/host/apply"
	"mesh/host/apply/applytest"
	"mesh/host/declaration"
	"mesh/host/resource"
	"mesh/host/store"
	"mesh/host/system"
	"mesh/host/system/systemtest"
)

// ground is a machine with real files and nothing else.
type ground struct {
	*system.Files
	rest
}

// rest is a machine but for its files.
type rest interface {
	resource.Packages
	resource.Services
	resource.Containers
	resource.Accounts
	resource.Contents
	resource.Programs
}

// onDisk is an Applier for a new directory of this machine, and n files in it.
func onDisk(tb testing.TB, n int) (*apply.Applier, func(generation uint64) apply.Desired) {
	tb.Helper()
	if os.Getuid() != 0 {
		tb.Skip("the files it makes belong to root")
	}
	dir, err := filepath.EvalSymlinks(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	files := system.New(system.Config{}).Files
	s, _, err := store.Open(store.Config{Directory: system.NewStateDirectory(files, filepath.Join(dir, "state")), Now: applytest.Clock})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return apply.New(apply.Config{Machine: ground{files, systemtest.New()}, Store: s, Now: applytest.Clock}), func(generation uint64) apply.Desired {
		var all []declaration.Resource
		for i := range n {
			if i%100 == 0 {
				all = append(all, applytest.Directory(fmt.Sprintf("b/d%d", i/100), fmt.Sprintf("%s/d%d", dir, i/100), ""))
			}
			content := strings.Repeat(fmt.Sprintf("%d %d\n", generation, i), 4096/10)
			all = append(all, applytest.File(fmt.Sprintf("b/f%d", i), fmt.Sprintf("%s/d%d/f%d", dir, i/100, i), content))
		}
		return applytest.Desired(generation, all...)
	}
}

func reconcile(tb testing.TB, a *apply.Applier, d apply.Desired) {
	tb.Helper()
	out, err := a.Reconcile(context.Background(), d)
	if err != nil || strings.Contains(summary(out), "failed") {
		tb.Fatal(err, summary(out))
	}
}

// TestOnARealDisk brings real files to a declaration, to the next, and away.
func TestOnARealDisk(t *testing.T) {
	a, d := onDisk(t, 250)
	for generation := range uint64(2) {
		reconcile(t, a, d(generation+1))
		if p, err := a.Plan(context.Background(), d(generation+1)); err != nil || p.Changes() != 0 {
			t.Errorf("%v\n%s", err, p)
		}
	}
	last := d(2).Resources
	reconcile(t, a, applytest.Desired(3))
	for _, r := range last {
		if _, err := os.Lstat(r.Where()); !os.IsNotExist(err) {
			t.Fatalf("%s is left: %v", r.Where(), err)
		}
	}
}

func BenchmarkCold1000Files(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		a, d := onDisk(b, 1000)
		first := d(1)
		b.StartTimer()
		reconcile(b, a, first)
	}
}

func BenchmarkNoChange(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			a, d := onDisk(b, n)
			first := d(1)
			reconcile(b, a, first)
			for b.Loop() {
				reconcile(b, a, first)
			}
		})
	}
}
