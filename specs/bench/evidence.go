package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"mesh/lab/guest"
)

// Collect writes into dir what helps to understand a failure: the mesh's
// status, the world's log, and of each machine its console, its journal and what
// host and plane say of themselves. What cannot be had is written down as such;
// a machine that is off keeps nothing else from being collected.
func (m *Mesh) Collect(ctx context.Context, dir string, machines ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	keep := func(name string, r Result) {
		text := r.Stdout
		if r.Code != 0 {
			text = r.String()
		}
		// A file that cannot be written must not hide the failure it is about.
		_ = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)
	}
	keep("status.json", m.lab.Run(ctx, "", "status", m.Name, "--json"))
	keep("world.log", m.lab.Run(ctx, "", "logs", m.Name))
	for _, name := range machines {
		machine := m.Machine(name)
		keep(name+".console", machine.Console(ctx))
		keep(name+".journal", machine.Journal(ctx))
		keep(name+".host.json", machine.Sh(ctx, "mesh-host status --json"))
		keep(name+".plane.json", machine.Sh(ctx, "if command -v mesh-plane; then mesh-plane node list --json; fi"))
	}
	return nil
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
