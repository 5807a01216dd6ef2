package main

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mesh/cmd/internal/cli"
	"mesh/host/identity"
)

// An enrolment that comes to nothing leaves nothing, and what was there before.
func TestEnrolThatFailsLeavesNothing(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("this changes the machine: run it as root")
	}
	pin, err := identity.ParsePin("pin:" + strings.Repeat("1", 64))
	if err != nil {
		t.Fatal(err)
	}
	token := identity.Token{
		Expires: time.Now().Add(time.Hour).Truncate(time.Second).UTC(), Pins: []identity.Pin{pin}, Secret: identity.SecretOf([16]byte{1}),
		Addresses: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")}, // nobody answers there
	}
	dir := t.TempDir()
	state, runtime := filepath.Join(dir, "state"), filepath.Join(dir, "run")
	enrol := func() {
		t.Helper()
		var out, errs bytes.Buffer
		s := cli.Streams{In: strings.NewReader(token.Encode()), Out: &out, Err: &errs}
		code := cli.Run(newRoot(s), s, []string{"--state", state, "--runtime", runtime, "enrol", "-"})
		if code != 1 || !strings.Contains(errs.String(), "no plane answers at the token's addresses") {
			t.Fatalf("exit code %d: %s", code, &errs)
		}
	}
	enrol()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}

	if err := os.MkdirAll(filepath.Join(state, "identity"), 0o700); err != nil {
		t.Fatal(err)
	}
	enrol()
	if left, err := os.ReadDir(filepath.Join(state, "identity")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
