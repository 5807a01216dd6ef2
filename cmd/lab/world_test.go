package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mesh/cmd/internal/cli"
)

// TestWorldRefuses its configuration with the code for it, before it does anything.
func TestWorldRefuses(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "world.json")
	if err := os.WriteFile(bad, []byte(`{"contrl": "/run/x"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"no flag":     {[]string{"world"}, "--config is missing"},
		"no file":     {[]string{"world", "--config", bad + ".absent"}, "no such file"},
		"unknown key": {[]string{"world", "--config", bad}, "contrl"},
		"argument":    {[]string{"world", "one"}, "usage"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, said bytes.Buffer
			s := cli.Streams{In: strings.NewReader(""), Out: &out, Err: &said}
			if code := cli.Run(newRoot(s), s, c.args); code != cli.Usage {
				t.Errorf("exit code %d, want %d", code, cli.Usage)
			}
			if out.Len() > 0 || !strings.Contains(said.String(), c.says) {
				t.Errorf("stdout %q, stderr %q; want nothing and %q", out.String(), said.String(), c.says)
			}
		})
	}
}
