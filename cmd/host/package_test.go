package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// scriptRun runs one maintainer script in a root of its own, where every helper
// it may call only says that it was called.
type scriptRun struct {
	script, args string
	systemd      bool // systemd runs as PID 1
	mayRemove    int  // exit code of `mesh-host may-remove`
	force        bool
	disabled     bool // the machine's owner disabled the unit
}

func (r scriptRun) run(t *testing.T) (calls string, code int) {
	t.Helper()
	root := t.TempDir()
	log := filepath.Join(root, "calls")
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	say := "#!/bin/sh\necho $(basename $0) $* >>" + log + "\n"
	write("bin/systemctl", say)
	write("bin/deb-systemd-invoke", say)
	helper := say
	if r.disabled {
		helper += "case $* in *was-enabled*) exit 1;; esac\n"
	}
	write("bin/deb-systemd-helper", helper)
	write("usr/bin/mesh-host", say+"exit "+string(rune('0'+r.mayRemove))+"\n")
	write("var/lib/mesh-host/journal", "x")
	if r.systemd {
		write("run/systemd/system/.keep", "")
	}
	script, err := filepath.Abs("package/" + r.script)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", append([]string{script}, strings.Fields(r.args)...)...)
	cmd.Env = []string{"DPKG_ROOT=" + root, "PATH=" + root + "/bin:/usr/bin:/bin"}
	if r.force {
		cmd.Env = append(cmd.Env, "MESH_HOST_FORCE_REMOVE=1")
	}
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatalf("%v: %s", err, out)
	}
	b, _ := os.ReadFile(log)
	if _, err := os.Stat(filepath.Join(root, "var/lib/mesh-host")); err != nil {
		b = append(b, "state removed\n"...)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

const enabling = `deb-systemd-helper unmask mesh-host.service
deb-systemd-helper --quiet was-enabled mesh-host.service
deb-systemd-helper enable mesh-host.service
deb-systemd-helper update-state mesh-host.service
`

// Whatever dpkg does, a running host is neither stopped nor restarted by its own
// upgrade (case H4), and is not removed while it owns something.
func TestCaseH4MaintainerScripts(t *testing.T) {
	for _, tc := range []struct {
		name  string
		run   scriptRun
		calls string
		code  int
	}{
		{"first installation", scriptRun{script: "postinst", args: "configure", systemd: true},
			enabling + "systemctl --system daemon-reload\ndeb-systemd-invoke start mesh-host.service\n", 0},
		{"in an image, without systemd", scriptRun{script: "postinst", args: "configure"}, enabling, 0},
		{"disabled by the owner", scriptRun{script: "postinst", args: "configure 0.1", disabled: true},
			strings.Replace(enabling, "deb-systemd-helper enable mesh-host.service\n", "", 1), 0},
		{"removal given up", scriptRun{script: "postinst", args: "abort-remove", systemd: true}, "", 0},
		{"upgrade begins", scriptRun{script: "prerm", args: "upgrade 0.2", systemd: true, mayRemove: 1}, "", 0},
		{"upgrade goes on", scriptRun{script: "postrm", args: "upgrade 0.2", systemd: true}, "", 0},
		{"removal", scriptRun{script: "prerm", args: "remove", systemd: true},
			"mesh-host may-remove\ndeb-systemd-invoke stop mesh-host.service\n", 0},
		{"removal without systemd", scriptRun{script: "prerm", args: "remove"}, "mesh-host may-remove\n", 0},
		{"removal while it owns something", scriptRun{script: "prerm", args: "remove", systemd: true, mayRemove: 1}, "mesh-host may-remove\n", 1},
		{"removal by force", scriptRun{script: "prerm", args: "remove", systemd: true, mayRemove: 1, force: true},
			"deb-systemd-invoke stop mesh-host.service\n", 0},
		{"removed", scriptRun{script: "postrm", args: "remove", systemd: true}, "systemctl --system daemon-reload\n", 0},
		{"purged", scriptRun{script: "postrm", args: "purge", systemd: true}, "deb-systemd-helper purge mesh-host.service\nstate removed\n", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			calls, code := tc.run.run(t)
			if diff := cmp.Diff(tc.calls, calls); diff != "" || code != tc.code {
				t.Errorf("exit code %d, want %d; calls (-want +got):\n%s", code, tc.code, diff)
			}
			if strings.Contains(calls, "restart") {
				t.Error("the unit is restarted")
			}
		})
	}
}

// The unit is what the upgrade of the host relies on.
func TestUnit(t *testing.T) {
	b, err := os.ReadFile("package/mesh-host.service")
	if err != nil {
		t.Fatal(err)
	}
	const kept = "/var/lib/mesh-host/program/good"
	for _, line := range []string{
		"ExecStart=" + programPath + " run", "Restart=always", "StartLimitIntervalSec=0", "KillMode=mixed", "Type=notify", "TimeoutStartSec=2min",
		"ExecStartPre=-/bin/sh -c '[ ! -x " + kept + " ] || exec " + kept + " trial begin'",
		"ExecStopPost=-/bin/sh -c '[ ! -x " + kept + " ] || exec " + kept + " trial end'",
	} {
		if !strings.Contains(string(b), "\n"+line+"\n") {
			t.Errorf("the unit has no line %s", line)
		}
	}
	if strings.Contains(string(b), "network") && strings.Contains(string(b), "After=network") {
		t.Error("the unit waits for the network")
	}
}
