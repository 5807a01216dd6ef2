package guest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/guest"
	"mesh/lab/machine"
	"mesh/lab/machine/machinetest"
)

const one = "mesh-one"

// raised is a world with one running machine whose agent is a.
func raised(t *testing.T, a *agent) (*machinetest.Hypervisor, *guest.Guests) {
	t.Helper()
	h := machinetest.New()
	h.NewAgent = func(machine.Spec) machinetest.Agent { return a.answer }
	err := h.Create(t.Context(), machine.Spec{
		Name: one, UUID: "6ba7b810-9dad-41d1-80b4-00c04fd430c8", Run: "r", Accelerator: machine.TCG,
		MemoryBytes: 1 << 20, CPUs: 1, Disk: "/d", ConsoleLog: "/l", ConsoleSock: "/s",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Resume(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	return h, guest.New(h)
}

func TestWaitReturnsWhenTheAgentAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent()
		a.silent = 20
		_, g := raised(t, a)
		begun := time.Now()
		if err := g.Wait(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took < time.Second || took > 10*time.Second {
			t.Errorf("20 questions took %v", took)
		}
	})
}

func TestWaitSaysWhatTheAgentSaidLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent()
		a.silent = 1 << 30
		_, g := raised(t, a)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		err := g.Wait(ctx, one)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not connected") || !strings.Contains(err.Error(), one) {
			t.Errorf("%v", err)
		}
	})
}

// Case L9: a machine that dies while it is waited for ends the wait at once.
func TestCaseL9WaitEndsWithTheMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent()
		a.silent = 1 << 30
		h, g := raised(t, a)
		time.AfterFunc(2*time.Second, func() {
			h.End(one, machine.Death{Cause: machine.Failed, Stderr: "qemu: out of luck\n"})
		})
		begun := time.Now()
		err := g.Wait(t.Context(), one)
		if took := time.Since(begun); took != 2*time.Second {
			t.Errorf("seen after %v, it happened after 2s", took)
		}
		if !errors.Is(err, machine.ErrAbsent) || !strings.Contains(err.Error(), "failed") || !strings.Contains(err.Error(), "out of luck") {
			t.Errorf("%v", err)
		}
		if err := g.Wait(t.Context(), "mesh-nobody"); !errors.Is(err, machine.ErrAbsent) {
			t.Errorf("nobody: %v", err)
		}
	})
}

func TestExec(t *testing.T) {
	var got []string
	var stdin string
	result := process{}
	a := newAgent()
	a.run = func(args []string, in []byte) process {
		got, stdin = args, string(in)
		return result
	}
	_, g := raised(t, a)
	long := strings.Repeat("0123456789abcdef", 1<<16+99)
	tests := []struct {
		name      string
		ends      process
		command   guest.Command
		wantArgs  []string
		wantStdin string
		want      guest.Result
	}{
		{"plain", process{out: "out\n"}, guest.Command{Args: []string{"ls", "-l"}}, []string{"ls", "-l"}, "", guest.Result{Stdout: []byte("out\n")}},
		{"slow", process{polls: 5, code: 3, err: "no"}, guest.Shell("false"), []string{"/bin/sh", "-c", "false"}, "", guest.Result{ExitCode: 3, Stderr: []byte("no")}},
		{"signalled", process{code: 137}, guest.Shell("x"), []string{"/bin/sh", "-c", "x"}, "", guest.Result{ExitCode: 137}},
		{"not found", process{code: 127, err: "nosuch: No such file or directory\n"}, guest.Command{Args: []string{"nosuch"}}, []string{"nosuch"}, "", guest.Result{ExitCode: 127, Stderr: []byte("nosuch: No such file or directory\n")}},
		{"with more output than fits", process{out: long, err: "short"}, guest.Shell("x"), []string{"/bin/sh", "-c", "x"}, "", guest.Result{Stdout: []byte(long), Stderr: []byte("short")}},
		{"with just what fits of both", process{out: long[:1<<20], err: long[:1<<20]}, guest.Shell("x"), []string{"/bin/sh", "-c", "x"}, "", guest.Result{Stdout: []byte(long[:1<<20]), Stderr: []byte(long[:1<<20])}},
		{"with input", process{}, guest.Command{Args: []string{"cat"}, Stdin: []byte("a\x00b\xff")}, []string{"cat"}, "a\x00b\xff", guest.Result{}},
		{"with more input than fits", process{}, guest.Command{Args: []string{"cat", "-"}, Stdin: bytes.Repeat([]byte("x"), 1<<20)}, []string{"cat", "-"}, strings.Repeat("x", 1<<20), guest.Result{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			result = tt.ends
			r, err := g.Exec(t.Context(), one, tt.command)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, r, cmp.Comparer(bytes.Equal)); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.wantArgs, got); diff != "" || stdin != tt.wantStdin {
				t.Errorf("arguments (-want +got):\n%s\n%d bytes of input, want %d", diff, len(stdin), len(tt.wantStdin))
			}
			if left := a.String(); left != "" {
				t.Errorf("left on the machine:\n%s", left)
			}
		})
	}
}

func TestExecRefusals(t *testing.T) {
	_, g := raised(t, newAgent())
	for want, c := range map[string]guest.Command{
		"is empty":            {},
		"not UTF-8, or holds": {Args: []string{"echo", "\xff"}},
		"a NUL":               {Args: []string{"echo", "a\x00b"}},
	} {
		if _, err := g.Exec(t.Context(), one, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", c.Args, err)
		}
	}
}

func TestACommandThatIsGivenUpIsAskedToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent()
		a.run = func([]string, []byte) process { return process{polls: 1 << 30} }
		_, g := raised(t, a)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := g.Exec(ctx, one, guest.Shell("sleep 1d")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if len(a.killed) != 1 || a.processes[a.killed[0]] == nil {
			t.Errorf("asked to end: %v", a.killed)
		}
	})
}

func TestCopyThereAndBack(t *testing.T) {
	for _, size := range []int{0, 1, 96 << 10, 96<<10 + 1, 300 << 10} {
		for _, short := range []bool{false, true} {
			a := newAgent()
			a.short = short
			_, g := raised(t, a)
			content := strings.Repeat("0123456789abcde\n", size/16+1)[:size]
			// One byte at a time, to see that chunks are filled.
			if err := g.CopyIn(t.Context(), one, iotest.DataErrReader(strings.NewReader(content)), "/etc/x", 0o600); err != nil {
				t.Fatal(err)
			}
			if got, want := a.String(), fmt.Sprintf("/etc/x 0600 %d bytes\n", size); got != want {
				t.Errorf("on the machine: %q, want %q", got, want)
			}
			var back strings.Builder
			if err := g.CopyOut(t.Context(), one, "/etc/x", &back); err != nil {
				t.Fatal(err)
			}
			if back.String() != content {
				t.Errorf("%d bytes came back of %d", back.Len(), size)
			}
			if strings.Contains(a.String(), "open") {
				t.Error(a)
			}
		}
	}
}

func TestACopyThatFailsLeavesNothing(t *testing.T) {
	broken := io.MultiReader(strings.NewReader("beginning"), iotest.ErrReader(errors.New("the disk is gone")))
	a := newAgent()
	_, g := raised(t, a)
	for want, copyIn := range map[string]func() error{
		"the disk is gone":         func() error { return g.CopyIn(t.Context(), one, broken, "/etc/x", 0o600) },
		"not the absolute path":    func() error { return g.CopyIn(t.Context(), one, strings.NewReader(""), "etc/x", 0o600) },
		"path of a file":           func() error { return g.CopyIn(t.Context(), one, strings.NewReader(""), "/etc/", 0o600) },
		"No such file":             func() error { return g.CopyIn(t.Context(), one, strings.NewReader(""), "/no/x", 0o600) },
		"copy /etc/y from machine": func() error { return g.CopyOut(t.Context(), one, "/etc/y", io.Discard) },
	} {
		if err := copyIn(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if left := a.String(); left != "" {
			t.Errorf("%s: left on the machine:\n%s", want, left)
		}
	}
}

func TestACancelledCopyClosesItsFileAndLeavesNothing(t *testing.T) {
	a := newAgent()
	_, g := raised(t, a)
	ctx, cancel := context.WithCancel(t.Context())
	content := io.MultiReader(strings.NewReader(strings.Repeat("x", 200<<10)), readerFunc(func([]byte) (int, error) {
		cancel()
		return 0, io.EOF
	}))
	if err := g.CopyIn(ctx, one, content, "/etc/x", 0o600); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if left := a.String(); left != "" {
		t.Errorf("left on the machine:\n%s", left)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
