package guest_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"mesh/lab/guest"
)

// The wrapper is a script for any machine, so any machine can try it.
func TestWrapper(t *testing.T) {
	long := strings.Repeat("x", guest.MaxOutput+1)
	tests := []struct {
		name          string
		args          []string
		stdin, parked string // given as standard input, or through a file
		code          int
		out, err      string
		left          []string
	}{
		{name: "nothing", args: []string{"true"}},
		{name: "both outputs and a code", args: []string{"sh", "-c", "echo o; echo e >&2; exit 7"}, code: 7, out: "o\n", err: "e\n"},
		{name: "input", args: []string{"cat"}, stdin: "a b\n c", out: "a b\n c"},
		{name: "input through a file", args: []string{"cat"}, parked: long[1:], out: long[1:], left: []string{".e", ".o"}},
		{name: "words stay whole", args: []string{"printf", "%s|", "a b", "", "$HOME", "*", "'\""}, out: "a b||$HOME|*|'\"|"},
		{name: "killed", args: []string{"sh", "-c", "kill -KILL $$"}, code: 137},
		{name: "not found", args: []string{"no-such-program"}, code: 127, err: "exec: no-such-program: not found"},
		{name: "a word of the shell's own is no program", args: []string{"exit", "3"}, code: 127, err: "exec: exit: not found"},
		{name: "just less than fits", args: []string{"head", "-c", "1048575", "/dev/zero"}, out: strings.Repeat("\x00", guest.MaxOutput-1)},
		{name: "more than fits", args: []string{"head", "-c", "1048577", "/dev/zero"}, out: strings.Repeat("\x00", guest.MaxOutput), left: []string{".e", ".o"}},
		{name: "what goes on behind is not waited for", args: []string{"sh", "-c", "sleep 60 & echo $!"}, out: ""},
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
			cmd := exec.CommandContext(t.Context(), "/bin/sh", append([]string{"-c", guest.Wrapper, base}, tt.args...)...)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(tt.stdin), &out, &complaint
			var exit *exec.ExitError
			if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if strings.Contains(tt.name, "behind") {
				if err := exec.Command("kill", strings.TrimSpace(out.String())).Run(); err != nil {
					t.Errorf("what was to go on: %v", err)
				}
				return
			}
			if code := cmd.ProcessState.ExitCode(); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if out.String() != tt.out {
				t.Errorf("%d bytes of output, want %d; %.60q", out.Len(), len(tt.out), out.String())
			}
			if !strings.HasSuffix(strings.TrimSpace(complaint.String()), strings.TrimSpace(tt.err)) || tt.err == "" && complaint.Len() > 0 {
				t.Errorf("error output %q, want %q", complaint.String(), tt.err)
			}
			var left []string
			files, _ := filepath.Glob(base + "*")
			for _, f := range files {
				left = append(left, strings.TrimPrefix(f, base))
			}
			if strings.Join(left, " ") != strings.Join(tt.left, " ") {
				t.Errorf("left: %q, want %q", left, tt.left)
			}
		})
	}
}
