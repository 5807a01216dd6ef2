package apply_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"mesh/host/apply/applytest"
	"mesh/host/declaration"
	"mesh/host/system/systemtest"
)

// TestL5Errors lets every call of the scenario fail once, with each error a disk
// knows. Every path holds old or new, the store stays whole, the failure is
// reported, and the next passes converge alone.
func TestL5Errors(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EIO, unix.ENOSPC, unix.EROFS} {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			t.Parallel()
			r := &row{Level: "L5", What: "every call fails once with " + unix.ErrnoName(errno)}
			defer tried(t, r)()
			p := newProof(t, nil)
			for k := 1; ; k += stride {
				m, fired := p.scenario.Machine(), false
				fail := systemtest.FailAt(k, errno)
				m.Hook(func(op systemtest.Op) error {
					if !op.Changes && errno != unix.EIO {
						return nil // looking needs neither space nor leave to write
					}
					err := fail(op)
					fired = fired || err != nil
					return err
				})
				pass := 0
				for pass = 0; pass < len(p.scenario.Passes) && !fired; pass++ {
					out, err := applytest.Pass(context.Background(), m, p.scenario.Passes[pass])
					if err := truthful(m, p, pass, out, err); err != nil {
						t.Fatalf("call %d fails, in pass %d: %v", k, pass+1, err)
					}
				}
				if !fired {
					return
				}
				r.Points++
				m.Hook(nil)
				if err := p.afterwards(m, pass-1); err != nil {
					t.Fatalf("call %d fails, in pass %d: %v", k, pass, err)
				}
			}
		})
	}
}

// truthful checks that a pass that says that all is well is right.
func truthful(m *systemtest.Machine, p *proof, pass int, out declaration.Outcome, err error) error {
	if err != nil {
		return nil
	}
	for _, r := range out.Results {
		if r.Status == declaration.StatusFailed || r.Status == declaration.StatusWaiting {
			return nil
		}
	}
	m.Hook(nil)
	return p.check.Cut(m, pass)
}

// afterwards checks a machine on which something failed: it goes on, and so it
// does when the power is cut first.
func (p *proof) afterwards(m *systemtest.Machine, pass int) error {
	cut := m.PowerCut(systemtest.Loss{Keeps: func(int, int) bool { return false }})
	if err := errors.Join(p.check.Cut(m, pass), p.check.Cut(cut, pass)); err != nil {
		return err
	}
	if err := p.check.Recovered(cut, pass); err != nil {
		return err
	}
	return p.check.Recovered(m, pass)
}

// TestCaseH8FullDisk: from any call on the disk is full, for a whole pass; then
// there is room again.
func TestCaseH8FullDisk(t *testing.T) {
	t.Parallel()
	r := &row{Level: "L5", What: "the disk is full from every call on"}
	defer tried(t, r)()
	p := newProof(t, nil)
	first := p.scenario.Passes[0]
	for k := 1; ; k += stride {
		m, n, full := p.scenario.Machine(), 0, false
		m.Hook(func(op systemtest.Op) error {
			n++
			grows := op.Name == "write" || op.Name == "create" || op.Name == "mkdir"
			if n >= k && grows {
				full = true
				return unix.ENOSPC
			}
			return nil
		})
		out, err := applytest.Pass(context.Background(), m, first)
		if !full {
			return
		}
		r.Points++
		if err == nil && !failed(out, "no space left") {
			t.Fatalf("full from call %d: nobody says so: %+v", k, out)
		}
		m.Hook(nil)
		if err := errors.Join(p.check.Cut(m, 0), p.check.Recovered(m, 0)); err != nil {
			t.Fatalf("full from call %d: %v", k, err)
		}
	}
}

func failed(out declaration.Outcome, why string) bool {
	for _, r := range out.Results {
		if r.Status == declaration.StatusFailed && strings.Contains(r.Reason, why) {
			return true
		}
	}
	return false
}
