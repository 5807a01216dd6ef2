package main

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/cmd/internal/cli"
	"mesh/lab/verify"
)

func TestVerifyShowsATableAndOneRemedyALine(t *testing.T) {
	results := []verify.Result{
		{Check: "root", Verdict: verify.OK, Seen: "running as root", Took: 0.01},
		{Check: "libvirt", Verdict: verify.Missing, Seen: "libvirtd is not installed", Remedy: "apt-get install libvirt-daemon-system", Took: 0.2},
		{Check: "bells", Verdict: verify.Optional, Seen: "no such file", Remedy: "modprobe bells"},
	}
	var out, errs bytes.Buffer
	a := &app{Streams: cli.Streams{Out: &out, Err: &errs}}
	err := a.showVerified(results, false)
	if code := cli.Code(err); code != cli.Prerequisite {
		t.Errorf("exit code %d", code)
	}
	const wantTable = `CHECK    VERDICT   TOOK   SEEN
root     ok        0.0 s  running as root
libvirt  missing   0.2 s  libvirtd is not installed
bells    optional  0.0 s  no such file
`
	if diff := cmp.Diff(wantTable, out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	const wantError = `this machine cannot do what a scenario needs, missing: libvirt
  libvirt: apt-get install libvirt-daemon-system
  bells: modprobe bells
  ` + "`lab install` installs all packages that are lacking"
	if err == nil || err.Error() != wantError {
		t.Errorf("error %v", err)
	}

	out.Reset()
	if err := a.showVerified(append(results[:1:1], results[2]), true); err != nil {
		t.Error(err)
	}
	const wantJSON = `{
  "ok": true,
  "checks": [
    {
      "check": "root",
      "verdict": "ok",
      "seen": "running as root",
      "took_seconds": 0.01
    },
    {
      "check": "bells",
      "verdict": "optional",
      "seen": "no such file",
      "remedy": "modprobe bells",
      "took_seconds": 0
    }
  ]
}
`
	if diff := cmp.Diff(wantJSON, out.String()); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
	if errs.Len() > 0 {
		t.Errorf("narrated beside JSON: %q", errs.String())
	}
}
