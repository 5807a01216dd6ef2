package lifecycle

import (
	"context"
	"fmt"
	"strings"

	"mesh/lab/guest"
)

// script runs a shell script on a machine; it fails when the script does. What
// it says on stdout goes to keep and not into the error, if keep is set.
func (r *raise) script(ctx context.Context, m Machine, script string, stdin []byte, keep func([]byte)) error {
	out, err := r.cfg.Guest.Exec(ctx, m.Spec.Name, guest.Command{Args: []string{"/bin/sh", "-e", "-c", script}, Stdin: stdin})
	if err != nil {
		return fmt.Errorf("run on machine %s: %w", m.Name, err)
	}
	if out.ExitCode == 0 {
		if keep != nil {
			keep(out.Stdout)
		}
		return nil
	}
	said := string(out.Stderr)
	if keep == nil {
		said = string(out.Stdout) + said
	}
	return &Error{
		What:  fmt.Sprintf("a command on machine %s ended with exit code %d", m.Name, out.ExitCode),
		Where: "machine " + m.Name, Why: script + "\n" + lastLines(said, 20), Code: codeFailed,
	}
}

// lastLines keeps the end of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
