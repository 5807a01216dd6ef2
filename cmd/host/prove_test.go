package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"mesh/host/agent"
	"mesh/host/bundle"
	"mesh/host/declaration"
	"mesh/host/store"
	"mesh/host/system"
)

// The package of a version is found where it was declared, or else where apt has
// it; then it is kept.
func TestPackageOfThisVersion(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("what the host writes is root's")
	}
	root := t.TempDir()
	files := system.NewFiles(&system.Linux{}, 1)
	record := store.Config{Directory: system.NewStateDirectory(files, filepath.Join(root, "state")), Now: time.Now}
	p := &proving{
		machine: machine{System: &system.System{
			Files: files, Contents: system.NewContents(files, filepath.Join(root, "content")),
			Packages: system.NewPackages(system.PackagesConfig{Archives: root}),
		}},
		hand: &agent.Hand{Store: record},
	}
	found := func(want string) {
		t.Helper()
		if got, err := p.cameIn(); err != nil || got != want {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
	}
	found("")
	fetched := []byte("fetched by apt")
	if err := os.WriteFile(filepath.Join(root, packageName+"_"+version+"_amd64.deb"), fetched, 0o644); err != nil {
		t.Fatal(err)
	}
	found(declaration.Digest(fetched))
	if !p.machine.HasContent(declaration.Digest(fetched)) {
		t.Error("it is not kept")
	}

	declared := []byte("declared")
	digest := declaration.Digest(declared)
	accept(t, record, `{"format":2,"resources":[{"id":"host/package","package":{"name":"mesh-host","version":"`+version+
		`","blob":{"digest":"`+digest+`","bytes":8}}}]}`)
	found(declaration.Digest(fetched)) // what is declared is not there
	if _, err := p.machine.KeepContent(declared); err != nil {
		t.Fatal(err)
	}
	found(digest)
}

func accept(t *testing.T, record store.Config, text string) {
	t.Helper()
	accepted, err := bundle.Accept([]byte(text), noon)
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := store.Open(record)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Append(accepted); err != nil {
		t.Fatal(err)
	}
}
