package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"mesh/lab/guest"
)

// Collect writes into dir, which is not there yet, everything that helps to
// understand a failure, by `lab collect`: it begins with dir/index.md.
func (m *Mesh) Collect(ctx context.Context, dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("make the place of %s: %w", dir, err)
	}
	return m.lab.Run(ctx, "", "collect", m.Name, "--output", dir).Err()
}

// Fatal lists what no machine may ever say, whatever a spec asserts: panics,
// oopses, emergency shells, on its console or in its journal. A machine that is
// off is judged by its console alone. The journal is read from where the last
// call ended.
func (m *Machine) Fatal(ctx context.Context) []string {
	var lines []string
	for source, r := range map[string]Result{"console": m.Console(ctx), "journal": m.Sh(ctx, "journalctl --no-pager --cursor-file=/run/bench-cursor")} {
		for _, f := range guest.Scan(strings.NewReader(r.Stdout)) {
			lines = append(lines, fmt.Sprintf("%s of %s: %v", source, m.Name, f))
		}
	}
	return lines
}
