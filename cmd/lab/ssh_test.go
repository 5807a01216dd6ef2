package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"mesh/cmd/internal/cli"
	"mesh/lab/lifecycle"
)

// TestSSHOptionsOfOddPaths: OpenSSH and the shell read paths as they are, whatever
// is in them.
func TestSSHOptionsOfOddPaths(t *testing.T) {
	program, err := exec.LookPath("ssh")
	if err != nil {
		t.Skip("ssh is not installed")
	}
	const odd = `/store of "it"/100%d 'x'`
	a := &app{Streams: cli.Streams{}, store: odd, runtime: "/run"}
	r := lifecycle.Record{Plan: lifecycle.Plan{Name: "pair", SSH: lifecycle.SSH{Key: odd + "/key", KnownHosts: odd + "/known"}}}
	options, err := a.sshOptions(r, "one")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(config, []byte("Host one\n  "+strings.Join(options, "\n  ")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := exec.Command(program, "-G", "-F", config, "one").Output()
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]string{}
	for line := range strings.Lines(string(said)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		read[key] = strings.ReplaceAll(value, "%%", "%") // some of them it has expanded
	}
	if got := read["identityfile"]; got != odd+"/key" {
		t.Errorf("identityfile %q", got)
	}
	if got := read["userknownhostsfile"]; got != odd+"/known" {
		t.Errorf("userknownhostsfile %q", got)
	}
	words, err := exec.Command("/bin/sh", "-c", "printf '%s\n' "+read["proxycommand"]).Output()
	if err != nil || !strings.Contains(string(words), "--store\n"+odd+"\n--runtime\n/run\nforward\n") {
		t.Errorf("%v: the shell reads %q", err, words)
	}
}

func TestSSHWithoutKey(t *testing.T) {
	a := &app{}
	if _, err := a.sshOptions(lifecycle.Record{Plan: lifecycle.Plan{Name: "pair"}}, "one"); err == nil || !strings.Contains(err.Error(), "earlier lab") {
		t.Errorf("got %v", err)
	}
}
