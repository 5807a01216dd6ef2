package apply_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"mesh/host/apply/applytest"
	"mesh/host/system/systemtest"
)

// victimEnv makes the test program a host that kills itself.
const victimEnv = "MESH_TEST_VICTIM"

// errand is what a victim is told.
type errand struct {
	Root   string // the machine's disk
	Beside string // file with what the machine has beside its disk
	Pass   int    // with which it begins
	Kill   int    // before which change it dies; 0 means never
}

// victim brings a machine on a real disk through the scenario and dies on the
// way, as hard as a process can. Nothing of it is in the program that is shipped.
func victim(plan string) int {
	var e errand
	if err := json.Unmarshal([]byte(plan), &e); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	m, err := systemtest.Load(systemtest.NewTree(e.Root), e.Beside)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	left := e.Kill
	m.Hook(func(op systemtest.Op) error {
		if op.Changes {
			left--
		}
		if op.Changes && left == 0 {
			if err := m.Save(e.Beside); err != nil {
				return err
			}
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {} // it takes a moment to arrive
		}
		return nil
	})
	passes := applytest.Demo().Passes
	for i := e.Pass; i < len(passes); i++ {
		if err := os.WriteFile(e.Beside+".pass", fmt.Append(nil, i), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if _, err := applytest.Pass(context.Background(), m, passes[i]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	if err := m.Save(e.Beside); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// send runs a victim and says in which pass it was killed, or that it was not.
func send(t *testing.T, e errand) (pass int, killed bool) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), victimEnv+"="+string(plan))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		text, err := os.ReadFile(e.Beside + ".pass")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(string(text), &pass); err != nil {
			t.Fatal(err)
		}
		return pass, true
	}
	if err != nil {
		t.Fatalf("the host ended by itself: %v: %s", err, out)
	}
	return 0, false
}

// realMachine furnishes an empty directory as the machine of the scenario.
func realMachine(t *testing.T, s applytest.Scenario, root string) *systemtest.Machine {
	t.Helper()
	tree := systemtest.NewTree(root)
	tree.Furnish()
	m := systemtest.On(tree)
	s.Prepare(m)
	return m
}

// needsRoot skips where files cannot be given to others.
func needsRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("the files it makes belong to root and to others: run it as root")
	}
}

// TestL1Kill kills a real process on real files before every change, and again
// while it recovers. What a kill leaves is what the process told the kernel;
// the same checker judges it.
func TestL1Kill(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	r := &row{Level: "L1", What: "a process killed before every change"}
	defer tried(t, r)()
	p := newProof(t, nil)
	dir := quickDir(t)
	for k := 1; ; k += sparse() {
		root := filepath.Join(dir, "root")
		if err := os.Mkdir(root, 0o755); err != nil {
			t.Fatal(err)
		}
		e := errand{Root: root, Beside: filepath.Join(filepath.Dir(root), "beside"), Kill: k}
		if err := realMachine(t, p.scenario, root).Save(e.Beside); err != nil {
			t.Fatal(err)
		}
		pass, killed := send(t, e)
		if !killed {
			if r.Points < 200/sparse() {
				t.Errorf("%d points: the scenario has become too small to show anything", r.Points)
			}
			return
		}
		r.Points++
		load := func() *systemtest.Machine {
			m, err := systemtest.Load(systemtest.NewTree(root), e.Beside)
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		if err := p.check.Cut(load(), pass); err != nil {
			t.Fatalf("killed before change %d, in pass %d: %v", k, pass+1, err)
		}
		e.Pass, e.Kill = pass, 1+k%17
		if again, killed := send(t, e); killed {
			pass = again
		} else {
			pass = len(p.scenario.Passes) - 1
		}
		m := load()
		var err error
		if k%3 == 0 {
			err = p.check.Abandoned(m, pass)
		} else {
			err = errors.Join(p.check.Recovered(m, pass), p.check.RestartedMore(m, len(p.scenario.Passes), 0))
		}
		if err != nil {
			t.Fatalf("killed before change %d, and before change %d then, in pass %d: %v", k, e.Kill, pass+1, err)
		}
		if err := os.RemoveAll(root); err != nil {
			t.Fatal(err)
		}
	}
}
