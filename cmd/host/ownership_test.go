package main

import (
	"bytes"
	"testing"
	"time"

	"mesh/cmd/internal/cli"
	"mesh/host/apply"
	"mesh/host/store"
)

func TestGoldenOwnership(t *testing.T) {
	orphans := []apply.Orphan{
		{ID: "demo/hosts", Kind: "file", Where: "/etc/demo/hosts", Declared: true, Why: "it was there before it was first declared", Adopts: true, Since: noon},
		{ID: "demo/old", Kind: "file", Where: "/etc/old.conf", Why: "it was left behind: it was changed by hand", Adopts: true, Since: noon.Add(-time.Hour)},
		{ID: "demo/package", Kind: "package", Where: "nginx", Declared: true, Why: "the record of it is older than a loss of the store", But: "nothing is there", Since: noon},
	}
	keys := []store.Key{{Kind: "file", Where: "/etc/demo.conf"}, {Kind: "service", Where: "nginx.service"}}
	write := func(name string, do func(*bytes.Buffer) error) {
		t.Helper()
		var text bytes.Buffer
		if err := do(&text); err != nil {
			t.Fatal(err)
		}
		golden(t, name, text.String())
	}
	write("orphans.txt", func(w *bytes.Buffer) error { return writeOrphans(w, orphans) })
	write("orphans-none.txt", func(w *bytes.Buffer) error { return writeOrphans(w, nil) })
	write("orphans.json", func(w *bytes.Buffer) error { return cli.JSON(w, map[string]any{"orphans": orphans}) })
	write("adopt.txt", func(w *bytes.Buffer) error { return writeAdopted(w, orphans[:2], false) })
	write("adopt.json", func(w *bytes.Buffer) error { return writeAdopted(w, orphans[:1], true) })
	write("release.txt", func(w *bytes.Buffer) error { return writeReleased(w, keys, false) })
	write("release.json", func(w *bytes.Buffer) error { return writeReleased(w, keys, true) })
}
