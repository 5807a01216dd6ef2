package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/host/declaration"
	"mesh/plane/module"
)

// said is what a test reads of `mesh-host status --json`.
type said struct {
	State       string `json:"state"`
	Running     bool   `json:"running"`
	Converged   bool   `json:"converged"`
	Declaration struct {
		Source     string `json:"source"`
		Generation int    `json:"generation"`
	} `json:"declaration"`
	Resources []struct {
		Where  string `json:"where"`
		Status string `json:"status"`
		Owned  *struct {
			Found bool `json:"found"`
		} `json:"owned"`
	} `json:"resources"`
	Losses []struct {
		What  string `json:"what"`
		Grave bool   `json:"grave"`
	} `json:"losses"`
}

func (h *hostProcess) status() (s said) {
	h.t.Helper()
	out, err := h.command("status", "--json").Output()
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	if err != nil {
		h.t.Fatalf("status: %v\n%s", err, out)
	}
	return s
}

// resources is a line for each resource: below dir, its status, whether the host
// found it so or made it.
func (s said) resources(dir string) (lines []string) {
	for _, r := range s.Resources {
		owned := "not owned"
		switch {
		case r.Owned != nil && r.Owned.Found:
			owned = "found"
		case r.Owned != nil:
			owned = "made"
		}
		lines = append(lines, fmt.Sprintf("%s %s %s", strings.TrimPrefix(r.Where, dir), r.Status, owned))
	}
	return lines
}

// settled tells whether n resources are as declared, and owned.
func (s said) settled(n int) bool {
	for _, r := range s.Resources {
		if r.Owned == nil {
			return false
		}
	}
	return s.Converged && len(s.Resources) == n
}

// run runs a command of the host that ends with code, and returns all it said.
func (h *hostProcess) run(code int, args ...string) string {
	h.t.Helper()
	cmd := h.command(args...)
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		h.t.Fatalf("mesh-host %v: %v, wanted exit code %d\n%s", args, cmd.ProcessState, code, out)
	}
	return string(out)
}

// stamps says what was last written where: files that are written anew have
// another number.
func stamps(t *testing.T, dir string, names ...string) (lines []string) {
	t.Helper()
	for _, name := range names {
		st, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			lines = append(lines, name+" is not there")
			continue
		}
		lines = append(lines, fmt.Sprintf("%s %s %s", name, st.ModTime(), st.Mode()))
	}
	return lines
}

// life is a machine and its mesh.
type life struct {
	*hostProcess
	p   *plane
	dir string // of what is declared
	log *syncBuffer
}

// resourcesIn is a directory, a file in it that is made, and one that stands as
// declared before anybody comes.
func resourcesIn(dir string) []declaration.Resource {
	return []declaration.Resource{
		{ID: "demo/srv", Directory: &declaration.Directory{Path: dir + "/srv"}},
		{ID: "demo/made", File: &declaration.File{Path: dir + "/srv/made", Content: "made\n"}},
		{ID: "demo/there", File: &declaration.File{Path: dir + "/there", Content: "there\n"}},
	}
}

func (l *life) eventually(what string, done func(said) bool) {
	l.t.Helper()
	l.p.eventually(what, func() bool { return done(l.status()) }, l.log)
}

func (l *life) expect(when string, want, got []string) {
	l.t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		l.t.Errorf("%s (-want +got):\n%s\n%s", when, d, l.log)
	}
}

// TestLifeOfAMachine takes a machine through every state there is, with the host as
// a process and a whole plane: hosted, raised from a bundle, enrolled, away from
// its plane, its record lost, its whole state lost and enrolled anew, retired,
// purged. At every step what is not to change does not, and `status` says what is.
func TestLifeOfAMachine(t *testing.T) {
	l := &life{hostProcess: newHostProcess(t), dir: t.TempDir()}
	catalogue := func(run *program) {
		run.modules = append(run.modules, module.Module{
			Name: "demo", Presence: module.Anywhere, Instantiation: module.Any,
			Resources: func(module.Facts) []declaration.Resource { return resourcesIn(l.dir) },
		})
	}
	store := t.TempDir()
	l.p = start(t, store, catalogue)
	if err := os.WriteFile(filepath.Join(l.dir, "there"), []byte("there\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	l.hosted()
	kill := l.enrolled()
	l.secondMesh()
	kill = l.away(kill, store, catalogue)
	kill = l.recordLost(kill)
	kill = l.stateLost(kill)
	l.retired()
	kill()
	l.purged()
}

// hosted: nothing is known; then a bundle raises what is in it.
func (l *life) hosted() {
	if s := l.status(); s.State != "hosted" || s.Running || len(s.Resources) != 0 {
		l.t.Errorf("at first: %+v", s)
	}
	b, err := declaration.Bundle{Format: 1, Resources: resourcesIn(l.dir)}.Encode()
	file := filepath.Join(l.hostProcess.dir, "bundle.json")
	if err == nil {
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	l.run(0, "reconcile", file)
	s := l.status()
	if s.State != "hosted" || s.Declaration.Source != "bundle" {
		l.t.Errorf("by its bundle: %+v", s)
	}
	l.expect("by its bundle", []string{"/srv changed made", "/srv/made changed made", "/there in_sync found"}, s.resources(l.dir))
	if said := l.run(1, "purge"); !strings.Contains(said, "it owns file "+l.dir+"/srv/made (demo/made)") {
		l.t.Errorf("purge while something is owned: %s", said)
	}
}

// enrolled: the plane declares the same, and nothing is changed by that.
func (l *life) enrolled() (kill func()) {
	before := stamps(l.t, l.dir, "srv", "srv/made", "there")
	l.run(0, "enrol", strings.TrimSpace(l.p.ok("token", "issue", "--name", "web", "--module", "demo")))
	l.log, kill = l.up("--interval", "1s")
	l.eventually("it is enrolled and as declared", func(s said) bool { return s.State == "enrolled" && s.Declaration.Source == "plane" && s.Converged })
	l.expect("enrolled", []string{"/srv in_sync made", "/srv/made in_sync made", "/there in_sync found"}, l.status().resources(l.dir))
	l.expect("what the bundle raised", before, stamps(l.t, l.dir, "srv", "srv/made", "there"))
	return kill
}

// secondMesh: a member of one mesh is refused another's token.
func (l *life) secondMesh() {
	other := start(l.t, l.t.TempDir())
	defer other.stop()
	said := l.run(1, "enrol", strings.TrimSpace(other.ok("token", "issue")))
	if !strings.Contains(said, "this machine is node web of mesh home already") {
		l.t.Errorf("a second mesh: %s", said)
	}
	if list := other.ok("node", "list"); strings.Contains(list, "connected") {
		l.t.Errorf("the second mesh has a node:\n%s", list)
	}
	if s := l.status(); s.State != "enrolled" {
		l.t.Errorf("behind a refused enrolment: %+v", s)
	}
}

// away: without its plane it goes on by itself, and is a node again when the plane
// is back.
func (l *life) away(kill func(), store string, change ...func(*program)) func() {
	address := l.p.address
	l.p.stop()
	l.eventually("it is disconnected", func(s said) bool { return s.State == "disconnected" })
	if err := os.WriteFile(filepath.Join(l.dir, "srv/made"), []byte("by hand\n"), 0o644); err != nil {
		l.t.Fatal(err)
	}
	l.eventually("what was changed by hand is put right", func(said) bool {
		b, err := os.ReadFile(filepath.Join(l.dir, "srv/made"))
		return err == nil && string(b) == "made\n"
	})
	kill()
	if s := l.status(); s.State != "disconnected" || s.Running {
		l.t.Errorf("while nothing runs: %+v", s)
	}
	l.p = start(l.t, store, append(change, func(run *program) { // where it was before
		run.listener.Close()
		run.config.Addresses = []netip.AddrPort{netip.MustParseAddrPort(address)}
		var err error
		if run.listener, err = net.Listen("tcp", address); err != nil {
			l.t.Fatal(err)
		}
	})...)
	l.log, kill = l.up("--interval", "1s")
	l.eventually("it is enrolled again", func(s said) bool { return s.State == "enrolled" && s.Converged })
	return kill
}

// recordLost: it stays a node, changes nothing that is as declared, removes nothing
// it does not know to own, and says so until somebody has taken note.
func (l *life) recordLost(kill func()) func() {
	kill()
	for _, name := range []string{"journal", "snapshot"} {
		if err := os.Remove(filepath.Join(l.hostProcess.dir, "state", name)); err != nil && !os.IsNotExist(err) {
			l.t.Fatal(err)
		}
	}
	before := stamps(l.t, l.dir, "srv", "srv/made", "there")
	l.log, kill = l.up("--interval", "1s")
	l.eventually("it is as declared again, by its record", func(s said) bool { return s.State == "enrolled" && s.settled(3) })
	s := l.status()
	if len(s.Losses) != 1 || !s.Losses[0].Grave || !strings.Contains(s.Losses[0].What, "this machine is node web of mesh home") {
		l.t.Errorf("what is lost: %+v", s.Losses)
	}
	l.expect("its record lost", []string{"/srv in_sync found", "/srv/made in_sync found", "/there in_sync found"}, s.resources(l.dir))
	l.expect("its record lost", before, stamps(l.t, l.dir, "srv", "srv/made", "there"))
	l.p.ok("unassign", "web", "demo")
	l.eventually("nothing is declared", func(s said) bool { return s.Converged && len(s.Resources) == 0 })
	l.expect("nothing is declared", before[1:], stamps(l.t, l.dir, "srv/made", "there"))
	if orphans := l.run(0, "orphans"); strings.Count(orphans, "it was there before it was first declared") != 3 {
		l.t.Errorf("orphans:\n%s", orphans)
	}
	l.run(0, "acknowledge")
	if s := l.status(); len(s.Losses) != 0 {
		l.t.Errorf("acknowledged, and yet: %+v", s.Losses)
	}
	l.p.ok("assign", "web", "demo")
	l.eventually("it is declared again", func(s said) bool { return s.settled(3) })
	return kill
}

// stateLost: with all it had lost, its identity too, it enrols as the same node
// anew. Nothing that is as declared is touched; what it made once is taken back.
func (l *life) stateLost(kill func()) func() {
	kill()
	if err := os.RemoveAll(filepath.Join(l.hostProcess.dir, "state")); err != nil {
		l.t.Fatal(err)
	}
	before := stamps(l.t, l.dir, "srv", "srv/made", "there")
	if s := l.status(); s.State != "hosted" {
		l.t.Errorf("with nothing left: %+v", s)
	}
	l.run(0, "enrol", strings.TrimSpace(l.p.ok("token", "issue", "--name", "web")))
	l.log, kill = l.up("--interval", "1s")
	l.eventually("it is a node again, by its record", func(s said) bool { return s.State == "enrolled" && s.settled(3) })
	l.expect("enrolled anew", []string{"/srv in_sync found", "/srv/made in_sync found", "/there in_sync found"}, l.status().resources(l.dir))
	l.expect("enrolled anew", before, stamps(l.t, l.dir, "srv", "srv/made", "there"))
	l.adopt("/srv", "/srv/made")
	l.expect("taken back", []string{"/srv in_sync made", "/srv/made in_sync made", "/there in_sync found"}, l.status().resources(l.dir))
	return kill
}

// adopt takes places; a pass may be in its way.
func (l *life) adopt(names ...string) {
	l.t.Helper()
	args := []string{"adopt"}
	for _, name := range names {
		args = append(args, l.dir+name)
	}
	l.p.eventually("they are adopted", func() bool { return l.command(args...).Run() == nil }, l.log)
}

// retired: what it made goes, in the other order, each said; what it found stays.
func (l *life) retired() {
	l.p.ok("node", "retire", "web")
	l.eventually("it is hosted again", func(s said) bool { return s.State == "hosted" })
	l.expect("retired", []string{"srv is not there", "srv/made is not there"}, stamps(l.t, l.dir, "srv", "srv/made"))
	if b, err := os.ReadFile(filepath.Join(l.dir, "there")); err != nil || string(b) != "there\n" {
		l.t.Errorf("what it found: %q, %v", b, err)
	}
	var removed []string
	for line := range strings.Lines(l.log.String()) {
		if _, rest, found := strings.Cut(line, " resource="); found && strings.Contains(line, "msg=removed") {
			removed = append(removed, strings.Fields(rest)[0])
		}
	}
	if i, j := slices.Index(removed, "demo/made"), slices.Index(removed, "demo/srv"); i < 0 || j < i {
		l.t.Errorf("removed in the order %v\n%s", removed, l.log)
	}
	if list := l.p.ok("node", "list"); strings.Contains(list, "web") {
		l.t.Errorf("it is a node still:\n%s", list)
	}
}

// purged: nothing is left of the host.
func (l *life) purged() {
	l.run(0, "purge")
	if left, err := os.ReadDir(l.hostProcess.dir); err != nil || len(left) != 1 || left[0].Name() != "bundle.json" {
		l.t.Errorf("left: %v, %v", left, err)
	}
}
