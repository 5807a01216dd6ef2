package store_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mesh/host/declaration"
	"mesh/host/link"
	"mesh/plane/planetest"
	"mesh/plane/registry"
)

// declared keeps the next generation of node web, which names contents.
func declared(t *testing.T, p *planetest.Plane, contents ...registry.Content) error {
	t.Helper()
	n := p.Node(t, "web")
	next := registry.Declared{Epoch: n.Declared.Epoch, Generation: n.Declared.Generation + 1, Digest: "d", Content: "c"}
	return p.Store.Update(t.Context(), func(context.Context, registry.View) (registry.Change, error) {
		return registry.Change{At: time.Unix(1, 0), Declare: []registry.Declaration{{
			Node: n.Ref(), Declared: next, Signed: []byte("signed"), Contents: contents,
		}}}, nil
	})
}

func contentOf(data string) registry.Content {
	return registry.Content{Blob: declaration.Blob{Digest: declaration.Digest([]byte(data)), Bytes: int64(len(data))}, Data: data}
}

// TestContentsGoWithTheirDeclarations: each is there for as long as one of the two
// newest declarations of a node names it, also for a plane that is started anew.
func TestContentsGoWithTheirDeclarations(t *testing.T) {
	dir := t.TempDir()
	p := planetest.New(t, planetest.Options{Dir: dir})
	web := p.Enrol(t, "web")
	key, ctx := web.Key.Public(), t.Context()
	a, b := contentOf("aaa"), contentOf(strings.Repeat("b", 2*link.MaxBlobPart+5))
	there := func(c registry.Content) bool {
		t.Helper()
		var all []byte
		for {
			part, err := p.Store.Content(ctx, key, c.Digest, int64(len(all)))
			if errors.Is(err, registry.ErrUnknown) {
				return false
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(part) == 0 {
				break
			}
			all = append(all, part...)
		}
		if declaration.Digest(all) != c.Digest {
			t.Errorf("content %.12s is something else now: %d bytes", c.Digest, len(all))
		}
		return true
	}
	expect := func(when string, wantA, wantB bool) {
		t.Helper()
		if gotA, gotB := there(a), there(b); gotA != wantA || gotB != wantB {
			t.Errorf("%s: a is there: %t, b is there: %t", when, gotA, gotB)
		}
	}
	expect("at first", false, false)
	for _, step := range []struct {
		names []registry.Content
		a, b  bool
	}{
		{[]registry.Content{a, b}, true, true},
		{[]registry.Content{{Blob: a.Blob}}, true, true}, // kept already; b is named by the generation before
		{nil, true, false},
		{nil, false, false},
		{[]registry.Content{b}, false, true},
	} {
		if err := declared(t, p, step.names...); err != nil {
			t.Fatal(err)
		}
		expect("later", step.a, step.b)
	}

	for name, bad := range map[string]registry.Content{
		"not there":         {Blob: a.Blob},
		"something else":    {Blob: a.Blob, Data: "aab"},
		"of another length": {Blob: declaration.Blob{Digest: b.Digest, Bytes: 3}},
	} {
		if err := declared(t, p, bad); err == nil || !strings.Contains(err.Error(), "keep content") {
			t.Errorf("%s: %v", name, err)
		}
		expect("after a refusal", false, true)
	}

	if err := p.Enrolments.Remove(ctx, "web"); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "plane.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var rows int
	if err := db.QueryRow(`SELECT (SELECT count(*) FROM contents) + (SELECT count(*) FROM content_parts)`).Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows are left of a node that was removed: %v", rows, err)
	}
}

// TestHostPackagesKeepTheirContent: it is there from the moment it is given, with
// no node to declare it to, until another takes its place.
func TestHostPackagesKeepTheirContent(t *testing.T) {
	dir := t.TempDir()
	p := planetest.New(t, planetest.Options{Dir: dir})
	db, err := sql.Open("sqlite", filepath.Join(dir, "plane.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	first, second, other := contentOf(strings.Repeat("1", link.MaxBlobPart+1)), contentOf("2"), contentOf("3")
	host := func(architecture string, c registry.Content) *registry.HostPackage {
		return &registry.HostPackage{Architecture: architecture, Version: "2.0", Content: c, Downgrade: c == other}
	}
	for i, step := range []struct {
		change registry.Change
		keeps  []registry.Content // in the order of architectures
		fails  bool
	}{
		{registry.Change{SetHost: host("amd64", first)}, []registry.Content{first}, false},
		{registry.Change{SetHost: host("arm64", other)}, []registry.Content{first, other}, false},
		{registry.Change{SetHost: host("amd64", second)}, []registry.Content{second, other}, false},
		{registry.Change{SetHost: host("amd64", registry.Content{Blob: first.Blob})}, []registry.Content{second, other}, true},
		{registry.Change{UnsetHost: true}, nil, false},
	} {
		step.change.At = time.Unix(1, 0)
		err := p.Store.Update(t.Context(), func(context.Context, registry.View) (registry.Change, error) { return step.change, nil })
		if (err != nil) != step.fails {
			t.Errorf("step %d: %v", i, err)
		}
		all, err := p.Store.HostPackages(t.Context())
		if err != nil || len(all) != len(step.keeps) {
			t.Fatalf("step %d: %+v, %v", i, all, err)
		}
		for j, c := range step.keeps {
			if all[j].Content.Blob != c.Blob || !all[j].Since.Equal(step.change.At) || all[j].Downgrade != (c == other) {
				t.Errorf("step %d: %+v, want %+v", i, all[j], c.Blob)
			}
		}
		var contents, bytes int
		if err := db.QueryRow(`SELECT (SELECT count(*) FROM contents), (SELECT coalesce(sum(length(data)), 0) FROM content_parts)`).Scan(&contents, &bytes); err != nil {
			t.Fatal(err)
		}
		for _, c := range step.keeps {
			bytes -= int(c.Bytes)
		}
		if contents != len(step.keeps) || bytes != 0 {
			t.Errorf("step %d: %d contents are kept, %d bytes too many", i, contents, bytes)
		}
	}
}
