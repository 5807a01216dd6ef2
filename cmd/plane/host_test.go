package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mesh/host/declaration"
	"mesh/host/link"
	"mesh/plane/planetest"
)

// TestHostSet gives a fleet another version of its host, as an operator does, and
// looks at what a node is told and fetches; then it takes that back.
func TestHostSet(t *testing.T) {
	p := start(t, t.TempDir())
	ctx := timeout(t)
	web, granted := p.enrol(ctx, "web")
	file := filepath.Join(t.TempDir(), "mesh-host.deb")
	deb := planetest.Deb("mesh-host", "2.0", "amd64", strings.Repeat("a program that is long", 100_000))
	if err := os.WriteFile(file, deb, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := p.ok("host", "show"); got != "none is set: each node keeps the version that it has\n" {
		t.Errorf("%q", got)
	}
	if got := p.ok("host", "set", file, "--digest", strings.ToUpper(declaration.Digest(deb))); got != "mesh-host 2.0 for amd64 declared to 1 node\n" {
		t.Errorf("%q", got)
	}
	if got := p.ok("host", "set", file); got != "mesh-host 2.0 for amd64 is declared already\n" {
		t.Errorf("%q", got)
	}
	if got := p.ok("host", "show"); !strings.Contains(got, "amd64         2.0") || !strings.Contains(got, declaration.Digest(deb)) {
		t.Errorf("%s", got)
	}

	stream, err := web.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if !stream.Receive() || stream.Msg().Generation != 2 {
		t.Fatal(stream.Msg(), stream.Err())
	}
	declared, err := web.Fetch(ctx, stream.Msg().Digest, granted.DeclarationKey)
	if err != nil || len(declared.Resources) != 1 || declared.Resources[0].Package.Version != "2.0" {
		t.Fatalf("%+v, %v", declared, err)
	}
	var fetched []byte
	for len(fetched) < len(deb) {
		part, err := planetest.Call[link.BlobRequest, link.BlobResponse](ctx, web, link.ProcedureBlob,
			&link.BlobRequest{Digest: declared.Resources[0].Package.Blob.Digest, Offset: int64(len(fetched))})
		if err != nil || len(part.Data) == 0 {
			t.Fatalf("after %d bytes: %v", len(fetched), err)
		}
		fetched = append(fetched, part.Data...)
	}
	if declaration.Digest(fetched) != declaration.Digest(deb) {
		t.Error("something else was fetched")
	}

	lower := filepath.Join(t.TempDir(), "lower.deb")
	if err := os.WriteFile(lower, planetest.Deb("mesh-host", "0.9", "amd64", ""), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := command("host", "set", lower, "--socket", p.config.Socket); code != 2 || !strings.Contains(stderr, "web (1.0.0)") {
		t.Errorf("a lower version: %d %s", code, stderr)
	}
	if got := p.ok("host", "set", lower, "--downgrade"); got != "mesh-host 0.9 for amd64 declared to 1 node\n" {
		t.Errorf("%q", got)
	}
	if got := p.ok("host", "show"); !strings.Contains(got, "  true ") {
		t.Errorf("%s", got)
	}
	if got := p.ok("host", "unset"); got != "mesh-host declared no more to 1 node: each keeps the version that it has\n" {
		t.Errorf("%q", got)
	}
	if got := p.ok("host", "unset"); got != "none was set\n" {
		t.Errorf("%q", got)
	}

	p.ok("node", "remove", "web")
	p.ok("host", "set", lower)
	p.enrol(ctx, "late")
	if got := p.ok("node", "show", "late"); !strings.Contains(got, "mesh-host 1.0.0, which is higher than what is set (0.9) and is left alone\n") {
		t.Errorf("%s", got)
	}
}
