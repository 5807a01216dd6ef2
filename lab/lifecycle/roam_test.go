package lifecycle_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/fault"
	"mesh/lab/lifecycle"
	"mesh/lab/underlay"
)

// roaming raises the small scenario with machine one roaming to a café, and the
// router gate to another provider.
func roaming(t *testing.T, dir string) *bed {
	t.Helper()
	b := newBed(t, dir)
	u := smallUnderlay("61000000")
	nic := &u.Machines[0].NICs[0]
	nic.Stands = []underlay.Stand{
		{Segment: nic.Segment, IPv4: nic.IPv4, IPv6: nic.IPv6},
		{Segment: "cafe", IPv4: netip.MustParsePrefix("10.1.0.10/24")},
	}
	u.Routers[0].Outside.Segment = "public"
	u.Routers[0].Stands = []underlay.RouterStand{{Segment: "public"}, {Segment: "abroad"}}
	p, err := lifecycle.NewPlan(small(), u, lifecycle.Options{
		Name: "a", Source: "small.yaml", Run: "61000000", Images: builtImages(), Packages: "/dist",
		Directory: b.Directory("a"), Layers: b.Layers(), Runtime: b.RuntimeOf("61000000"),
	})
	must(t, err)
	if _, err := b.Raise(t.Context(), p, lifecycle.RaiseOptions{Files: files}); err != nil {
		t.Fatal(err)
	}
	return b
}

// begun is where all stand at first.
const begun = "gate in public, one in public, public 203.0.113.10/24 2001:db8::10/64"

// stands tells who stands where, by status and by the machine's addresses.
func (b *bed) stands(t *testing.T) string {
	t.Helper()
	s, err := b.Status(t.Context(), "a")
	must(t, err)
	var all []string
	for _, r := range s.Roamers {
		all = append(all, r.Name+" in "+r.At)
	}
	at := s.Machines[0].Addresses[0]
	return strings.Join(append(all, strings.TrimSpace(at.Segment+" "+at.IPv4+" "+at.IPv6)), ", ")
}

// TestRoam: whoever is moved stands there, has what waits for it there, also
// after its power was cut, and its cable is in; home again all is as it was.
func TestRoam(t *testing.T) {
	b := roaming(t, t.TempDir())
	home, before := b.Conditions(), b.recordText(t, "a")
	if got := b.stands(t); got != begun {
		t.Fatalf("at first: %s", got)
	}
	for _, c := range [][3]string{
		{"one", "cafe", "gate in public, one in cafe, cafe 10.1.0.10/24"},
		{"gate", "abroad", "gate in abroad, one in cafe, cafe 10.1.0.10/24"},
		{"one", "cafe", "gate in abroad, one in cafe, cafe 10.1.0.10/24"},
	} {
		must(t, b.Roam(t.Context(), "a", c[0], c[1]))
		if got := b.stands(t); got != c[2] {
			t.Errorf("%s to %s: %s", c[0], c[1], got)
		}
	}
	if conditions := b.Conditions(); !strings.Contains(conditions, "pulled []") {
		t.Errorf("a cable is not in:\n%s", conditions)
	}
	must(t, b.Cut(t.Context(), "a", "one"))
	must(t, b.PowerOn(t.Context(), "a", "one"))
	must(t, b.Cut(t.Context(), "a", "one"))
	must(t, b.Roam(t.Context(), "a", "one", "public")) // it is off, and wakes up elsewhere
	must(t, b.PowerOn(t.Context(), "a", "one"))
	must(t, b.Roam(t.Context(), "a", "gate", "public"))
	if got := b.stands(t); got != begun {
		t.Errorf("home again: %s", got)
	}
	if diff := cmp.Diff(home, b.Conditions()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(planOf(t, before), planOf(t, b.recordText(t, "a"))); diff != "" {
		t.Errorf("the record's plan (-before +after):\n%s", diff)
	}
}

// planOf is the plan in a record, as text.
func planOf(t *testing.T, record string) string {
	t.Helper()
	var r struct{ Plan json.RawMessage }
	must(t, json.Unmarshal([]byte(record), &r))
	if len(r.Plan) == 0 {
		t.Fatal("the record has no plan")
	}
	return string(r.Plan)
}

// TestRoamRefused: who does not roam, or not there, is refused and told; where
// the world cannot follow, all is as it was, and every cable in.
func TestRoamRefused(t *testing.T) {
	b := roaming(t, t.TempDir())
	home, before := b.Conditions(), b.recordText(t, "a")
	for _, c := range [][3]string{
		{"two", "public", `"two" does not roam: of this scenario only gate, one can be moved`},
		{"one", "abroad", `one does not roam to "abroad": its segments are public, cafe`},
	} {
		if err := b.Roam(t.Context(), "a", c[0], c[1]); exitCode(err) != 2 || !strings.Contains(err.Error(), c[2]) {
			t.Errorf("%s to %s: %v", c[0], c[1], err)
		}
	}
	if err := b.Roam(t.Context(), "b", "one", "cafe"); !errors.Is(err, lifecycle.ErrAbsent) {
		t.Errorf("a scenario that is none: %v", err)
	}
	broken := errors.New("the bridge is out")
	for _, at := range []string{"state of world", "link mesh-a.one"} {
		b.Hook = func(op string, after bool) error {
			if strings.HasPrefix(op, at) && !after {
				b.Hook = nil
				return broken
			}
			return nil
		}
		if err := b.Roam(t.Context(), "a", "one", "cafe"); !errors.Is(err, broken) {
			t.Errorf("%s fails: %v", at, err)
		}
	}
	if diff := cmp.Diff(home, b.Conditions()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(before, b.recordText(t, "a")); diff != "" {
		t.Errorf("the record (-before +after):\n%s", diff)
	}
}

// TestRoamWithoutCable: a cable that a fault has pulled stays so wherever its
// machine is taken, unless the fault is of the segment that it leaves.
func TestRoamWithoutCable(t *testing.T) {
	for segment, pulled := range map[string]bool{"": true, "public": false} {
		b := roaming(t, t.TempDir())
		_, err := b.AddFault(t.Context(), "a", fault.Fault{
			Name: "cut", Kind: fault.LinkDown, On: []fault.Target{{Kind: fault.Machine, Name: "one", Segment: segment}},
		})
		must(t, err)
		must(t, b.Roam(t.Context(), "a", "one", "cafe"))
		if got := !strings.Contains(b.Conditions(), "mesh-a.one: running, detached false, pulled []"); got != pulled {
			t.Errorf("with a fault in segment %q the cable is pulled: %v, want %v\n%s", segment, got, pulled, b.Conditions())
		}
	}
}

// TestRoamChild is no test: it is the process that TestRoamKilled kills.
func TestRoamChild(t *testing.T) {
	dir := os.Getenv(childRoams)
	if dir == "" {
		t.Skip("only run by TestRoamKilled, in a process of its own")
	}
	at, err := strconv.Atoi(os.Getenv(childKill))
	must(t, err)
	b := newBed(t, dir)
	points := 0
	b.Hook = func(string, bool) error {
		if points++; points == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	}
	must(t, b.Roam(t.Context(), "a", "one", "cafe"))
}

// childRoams tells the test binary, which is also the process that is killed, in
// which directory to move machine one.
const childRoams = "LIFECYCLE_TEST_ROAMS"

// TestRoamKilled: a move that was killed at any point is finished by the same
// again, or undone by moving back.
func TestRoamKilled(t *testing.T) {
	for at := 1; ; at++ {
		dir := t.TempDir()
		b := roaming(t, dir)
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRoamChild$", "-test.count=1")
		cmd.Env = append(os.Environ(), childRoams+"="+dir, childKill+"="+strconv.Itoa(at))
		if cmd.Run() == nil { // it got by every point
			if at < 6 {
				t.Fatalf("only %d points to be killed at", at-1)
			}
			return
		}
		to, want := "cafe", "gate in public, one in cafe, cafe 10.1.0.10/24"
		if at%2 == 0 {
			to, want = "public", begun
		}
		must(t, b.Roam(t.Context(), "a", "one", to))
		if got := b.stands(t); got != want || !strings.Contains(b.Conditions(), "mesh-a.one: running, detached false, pulled []") {
			t.Errorf("killed at point %d, then moved to %s: %s\n%s", at, to, got, b.Conditions())
		}
	}
}
