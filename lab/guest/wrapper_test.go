package guest_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"mesh/lab/guest"
)

// The wrapper is a script for any machine, so any machine can try it.
func TestWrapper(t *testing.T) {
	perl, err := exec.LookPath("perl")
	if err != nil {
		t.Skip("needs perl, as every Debian has it")
	}
	full := strings.Repeat("x", guest.MaxOutput)
	tests := []struct {
		name          string
		args          []string
		stdin, parked string // given as standard input, or through a file
		code          int
		out, err      string
		left          map[string]string // files, by suffix
	}{
		{name: "nothing", args: []string{"true"}},
		{name: "both outputs and a code", args: []string{"sh", "-c", "echo o; echo e >&2; exit 7"}, code: 7, out: "o\n", err: "e\n"},
		{name: "outputs opened anew", args: []string{"sh", "-c", "echo a; echo b >/dev/stdout; echo c; echo d >/dev/stderr"}, out: "a\nb\nc\n", err: "d\n"},
		{name: "input", args: []string{"cat"}, stdin: "a b\n\x00c", out: "a b\n\x00c"},
		{name: "input through a file", args: []string{"cat"}, parked: full[1:], out: full[1:]},
		{name: "words stay whole", args: []string{"printf", "%s|", "a b", "", "$HOME", "*", "'\""}, out: "a b||$HOME|*|'\"|"},
		{name: "words like options", args: []string{"echo", "-e", "--", "x"}, out: "-- x\n"},
		{name: "killed", args: []string{"sh", "-c", "kill -KILL $$"}, code: 137},
		{name: "not found", args: []string{"no-such-program"}, code: 127, err: "no-such-program: No such file or directory\n"},
		{name: "not a program", args: []string{"/etc/passwd"}, code: 126, err: "/etc/passwd: Permission denied\n"},
		{name: "just less than fits", args: []string{"cat"}, parked: full[1:], out: full[1:]},
		{name: "just what fits", args: []string{"cat"}, parked: full, out: full, left: map[string]string{".o": ""}},
		{name: "more than fits", args: []string{"cat"}, parked: full + "and more", out: full, left: map[string]string{".o": "and more"}},
		{name: "more errors than fit", args: []string{"sh", "-c", "cat >&2; exit 1"}, parked: full + "and more", code: 1, err: full, left: map[string]string{".e": "and more"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			base := filepath.Join(t.TempDir(), "part")
			if tt.parked != "" {
				if err := os.WriteFile(base+".i", []byte(tt.parked), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out, complaint bytes.Buffer
			cmd := exec.CommandContext(t.Context(), perl, append([]string{"-e", guest.Wrapper, "--", base}, tt.args...)...)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(tt.stdin), &out, &complaint
			var exit *exec.ExitError
			if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if code := cmd.ProcessState.ExitCode(); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if out.String() != tt.out {
				t.Errorf("%d bytes of output, want %d; %.60q", out.Len(), len(tt.out), out.String())
			}
			if complaint.String() != tt.err {
				t.Errorf("%d bytes of error output, want %d; %.60q", complaint.Len(), len(tt.err), complaint.String())
			}
			left := map[string]string{}
			files, _ := filepath.Glob(base + "*")
			for _, f := range files {
				text, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				left[strings.TrimPrefix(f, base)] = string(text)
			}
			if diff := cmp.Diff(tt.left, left, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
		})
	}
}

// A program that goes on in the background keeps its outputs open; nobody
// waits for that.
func TestWrapperDoesNotWaitForTheBackground(t *testing.T) {
	base := filepath.Join(t.TempDir(), "part")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "perl", "-e", guest.Wrapper, "--", base, "sh", "-c", "sleep 60 & echo $!").Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.Command("kill", strings.TrimSpace(string(out))).Run(); err != nil {
		t.Errorf("end what was to go on, %q: %v", out, err)
	}
}
