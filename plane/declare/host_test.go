package declare_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"mesh/host/declaration"
	"mesh/plane/declare"
	"mesh/plane/enrolment"
	"mesh/plane/module"
	"mesh/plane/planetest"
	"mesh/plane/refusal"
	"mesh/plane/registry"
)

// hostOf is the package of mesh-host that the newest declaration of a node names.
func hostOf(t *testing.T, p *planetest.Plane, name string) *declaration.Package {
	t.Helper()
	d := newest(t, p, name)
	for _, r := range d.Resources {
		if r.Package != nil && r.Package.Name == "mesh-host" {
			return r.Package
		}
	}
	return nil
}

// expectHost checks which version is declared to a node, and that it may fetch it.
func expectHost(t *testing.T, p *planetest.Plane, name, version string, deb []byte) {
	t.Helper()
	got := hostOf(t, p, name)
	if version == "" {
		if got != nil {
			t.Errorf("version %s is declared to %s", got.Version, name)
		}
		return
	}
	if got == nil || got.Version != version || got.Blob == nil || got.Blob.Digest != declaration.Digest(deb) {
		t.Errorf("%+v is declared to %s, want version %s", got, name, version)
		return
	}
	b, err := p.Store.Content(t.Context(), p.Node(t, name).Key, got.Blob.Digest, 0)
	if err != nil || string(b) != string(deb) {
		t.Errorf("%s fetches %d bytes of it: %v", name, len(b), err)
	}
}

// enrolLike enrols a machine with another profile.
func enrolLike(t *testing.T, p *planetest.Plane, name, architecture, version string, formats ...int) {
	t.Helper()
	m := planetest.NewMachine(name)
	m.Profile.Architecture, m.Profile.HostVersion = architecture, version
	if formats != nil {
		m.Profile.Formats = formats
	}
	if _, err := p.Enrolments.Enrol(t.Context(), m.With(p.Token(t, enrolment.TokenRequest{}))); err != nil {
		t.Fatal(err)
	}
}

// TestSetHost gives one package to the whole fleet: to the nodes there are, to
// those that come, to the plane that is started anew; until it is unset.
func TestSetHost(t *testing.T) {
	dir := t.TempDir()
	p := planetest.New(t, planetest.Options{Dir: dir, PlaneMachine: planetest.MachineID("one")})
	p.Enrol(t, "one")
	p.Enrol(t, "web", "welcome")
	enrolLike(t, p, "board", "arm64", "1.0.0")
	enrolLike(t, p, "old", "amd64", "0.0.1", 1)
	deb := planetest.Deb("mesh-host", "2.0", "amd64", strings.Repeat("x", 1000))

	done, err := p.Declarer.SetHost(t.Context(), deb, false)
	if err != nil || !done.Changed || !slices.Equal(done.Nodes, []string{"one", "web"}) {
		t.Fatalf("%+v, %v", done, err)
	}
	if notes := strings.Join(done.Notes, "\n"); !strings.Contains(notes, "board (arm64)") || !strings.Contains(notes, "old (0.0.1)") {
		t.Errorf("who is not reached is not said: %s", notes)
	}
	expectHost(t, p, "one", "2.0", deb)
	expectHost(t, p, "web", "2.0", deb)
	expectHost(t, p, "board", "", nil)
	expectHost(t, p, "old", "", nil)
	if again, err := p.Declarer.SetHost(t.Context(), deb, false); err != nil || again.Changed || p.Node(t, "web").Declared.Generation != 2 {
		t.Errorf("once more: %+v, %v", again, err)
	}

	p.Enrol(t, "late")
	expectHost(t, p, "late", "2.0", deb)
	if _, err := p.Declarer.Unassign(t.Context(), "web", "welcome"); err != nil {
		t.Fatal(err)
	}
	expectHost(t, p, "web", "2.0", deb)
	restarted := declare.New(declare.Config{Mesh: p.Mesh, Catalogue: module.NewCatalogue(module.Facts{}, module.All()...), Store: p.Store, Now: p.Now})
	if err := restarted.Refresh(t.Context()); err != nil || p.Node(t, "late").Declared.Generation != 1 {
		t.Errorf("a restart declares anew: %v", err)
	}

	arm := planetest.Deb("mesh-host", "1.5", "arm64", "y")
	if done, err := p.Declarer.SetHost(t.Context(), arm, false); err != nil || !slices.Equal(done.Nodes, []string{"board"}) || len(done.Notes) != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	expectHost(t, p, "board", "1.5", arm)
	expectHost(t, p, "late", "2.0", deb)

	if _, err := p.Enrolments.Retire(t.Context(), "late"); err != nil {
		t.Fatal(err)
	}
	if hostOf(t, p, "late") != nil {
		t.Error("something is declared beside the end")
	}
	gone, err := p.Declarer.UnsetHost(t.Context())
	if err != nil || !gone.Changed || !slices.Equal(gone.Nodes, []string{"board", "one", "web"}) {
		t.Errorf("%+v, %v", gone, err)
	}
	expectHost(t, p, "web", "", nil)
	if gone, err := p.Declarer.UnsetHost(t.Context()); err != nil || gone.Changed {
		t.Errorf("once more: %+v, %v", gone, err)
	}
}

// A version goes up, and down only where that was said.
func TestSetHostUpAndDown(t *testing.T) {
	p := planetest.New(t, planetest.Options{})
	enrolLike(t, p, "web", "amd64", "2.0")
	one, two := planetest.Deb("mesh-host", "2.0~rc1", "amd64", ""), planetest.Deb("mesh-host", "2.0+1", "amd64", "")
	_, err := p.Declarer.SetHost(t.Context(), one, false)
	if r := refusal.Of(err); r == nil || r.Kind != refusal.Invalid || !strings.Contains(r.Error(), "a higher one runs on web (2.0)") || !strings.Contains(r.Do, "--downgrade") {
		t.Errorf("%v", err)
	}
	expectHost(t, p, "web", "", nil)
	for _, step := range []struct {
		deb       []byte
		version   string
		downgrade bool
	}{{two, "2.0+1", false}, {one, "2.0~rc1", true}, {two, "2.0+1", false}} {
		if _, err := p.Declarer.SetHost(t.Context(), step.deb, step.downgrade); err != nil {
			t.Fatal(err)
		}
		expectHost(t, p, "web", step.version, step.deb)
	}
}

// A node that comes with a higher version than the one that is declared keeps it,
// and that is said; unless it was said that nodes are to go down to that one.
func TestEnrolWithAHigherHost(t *testing.T) {
	p := planetest.New(t, planetest.Options{})
	deb := planetest.Deb("mesh-host", "2.0", "amd64", "")
	set := func(downgrade, changed bool, nodes ...string) declare.HostSetting {
		t.Helper()
		done, err := p.Declarer.SetHost(t.Context(), deb, downgrade)
		if err != nil || done.Changed != changed || !slices.Equal(done.Nodes, nodes) {
			t.Fatalf("%+v, %v", done, err)
		}
		return done
	}
	set(false, true)
	enrolLike(t, p, "high", "amd64", "2.0+1")
	enrolLike(t, p, "same", "amd64", "2.0")
	enrolLike(t, p, "low", "amd64", "2.0~rc1")
	expectHost(t, p, "high", "", nil)
	expectHost(t, p, "same", "2.0", deb)
	expectHost(t, p, "low", "2.0", deb)
	if notes := set(false, false).Notes; len(notes) != 1 || !strings.HasSuffix(notes[0], "--downgrade: high (2.0+1)") {
		t.Errorf("who is spared is not said: %q", notes)
	}
	if _, err := p.Declarer.Assign(t.Context(), "high", "welcome"); err != nil {
		t.Fatal(err)
	}
	expectHost(t, p, "high", "", nil)

	if notes := set(true, true, "high").Notes; len(notes) != 0 {
		t.Errorf("somebody is spared: %q", notes)
	}
	expectHost(t, p, "high", "2.0", deb)
	enrolLike(t, p, "late", "amd64", "3.0")
	expectHost(t, p, "late", "2.0", deb)
	for _, downgrade := range []bool{true, false} { // what was said stays said
		if done := set(downgrade, false); !done.Package.Downgrade || len(done.Notes) != 0 {
			t.Errorf("%+v", done)
		}
	}
	if _, err := p.Declarer.SetHost(t.Context(), planetest.Deb("mesh-host", "3.0", "amd64", ""), false); err != nil {
		t.Fatal(err)
	}
	enrolLike(t, p, "latest", "amd64", "4.0")
	expectHost(t, p, "latest", "", nil) // until another version is set
}

func TestSetHostRefuses(t *testing.T) {
	p := planetest.New(t, planetest.Options{})
	p.Enrol(t, "web")
	stands := planetest.Deb("mesh-host", "2.0", "amd64", "")
	if _, err := p.Declarer.SetHost(t.Context(), stands, false); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		deb  []byte
		says string
	}{
		"nothing":                   {nil, "not a Debian package"},
		"half of it":                {stands[:100], "cut short"},
		"another package":           {planetest.Deb("mesh-plane", "2.0", "amd64", ""), `"mesh-plane", not mesh-host`},
		"for everybody":             {planetest.Deb("mesh-host", "2.0", "all", ""), `the architecture "all"`},
		"a version that is none":    {planetest.Deb("mesh-host", "v2 x", "amd64", ""), "version"},
		"another one of its number": {planetest.Deb("mesh-host", "2.0", "amd64", "z"), "version of its own"},
		"too long":                  {make([]byte, declaration.MaxBlob+1), "at most"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.Declarer.SetHost(t.Context(), tt.deb, true)
			if r := refusal.Of(err); r == nil || r.ExitCode() != 2 || !strings.Contains(r.Error(), tt.says) || strings.Contains(r.Error(), "\n") {
				t.Errorf("got %v, want %q in one line", err, tt.says)
			}
		})
	}
	expectHost(t, p, "web", "2.0", stands)
	p.View(t, func(ctx context.Context, v registry.View) error {
		all, err := v.HostPackages(ctx)
		if len(all) != 1 {
			t.Errorf("what was refused was kept: %+v", all)
		}
		return err
	})
	if got := p.Node(t, "web").Declared.Generation; got != 2 {
		t.Errorf("what was refused made generation %d", got)
	}
}
