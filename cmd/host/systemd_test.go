package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// underSystemd runs in namespaces of its own, with a service manager of its own,
// in a directory that holds mesh-host.service and the programs one, two and those
// that do not work. It says what became of each.
const underSystemd = `set -eu
cd "$1"
mount -t tmpfs none /run || { echo no manager; exit 0; }
mkdir -p /run/systemd/system /run/mine
export XDG_RUNTIME_DIR=/run/mine SYSTEMD_UNIT_PATH="$1/units" HOME="$1"
/lib/systemd/systemd --user >"$1/manager" 2>&1 &
for i in $(seq 50); do
	! systemctl --user is-system-running --quiet 2>/dev/null || break
	sleep 0.1
done
systemctl --user is-system-running --quiet || { echo no manager; exit 0; }

wait_for() { # until CONDITION holds
	until=$(($(date +%s) + 90))
	while [ "$(date +%s)" -lt $until ]; do
		! eval "$1" || return 0
		sleep 0.2
	done
	echo "never: $1"
	systemctl --user status mesh-host --no-pager || true
	bin/mesh-host $FLAGS status --json || true
	exit 0
}
install() { ln "$1" bin/new && mv bin/new bin/mesh-host; }
kept() { cmp -s "$1" state/program/good && ! bin/mesh-host $FLAGS status --json | grep -q '"trial"'; }

install one
systemctl --user start mesh-host
echo "one: $(systemctl --user is-active mesh-host)"
wait_for 'kept one'
for program in crashes exits ends cannot-be-started hangs; do
	install $program
	if [ $program = hangs ]; then
		mkdir units/mesh-host.service.d
		printf '[Service]\nTimeoutStartSec=2s\n' >units/mesh-host.service.d/short.conf
		systemctl --user daemon-reload
	fi
	systemctl --user restart --no-block mesh-host
	wait_for 'cmp -s one bin/mesh-host'
	rm -rf units/mesh-host.service.d
	systemctl --user daemon-reload
	wait_for 'systemctl --user is-active --quiet mesh-host'
	echo "$program: $(bin/mesh-host $FLAGS status --json | sed -n 's/ *"reason": //p' | tail -n 1)"
done
install two
began=$(date +%s%N)
systemctl --user restart mesh-host
[ $(($(date +%s%N) - began)) -lt 1000000000 ] || echo "two: $(systemctl --user is-active mesh-host), once it is healthy"
wait_for 'kept two'
install one
wait_for 'kept one' # the agent sees it, and ends by itself
echo "one again: $(systemctl --user is-active mesh-host)"
systemctl --user stop mesh-host
`

// TestUnitUnderSystemd runs the unit as it is shipped, but for its directories and
// times, under a real systemd.
func TestUnitUnderSystemd(t *testing.T) {
	if _, err := os.Stat("/lib/systemd/systemd"); err != nil || os.Geteuid() != 0 {
		t.Skip("this needs systemd's program, and root")
	}
	t.Parallel()                                        // it waits nearly all the time
	root, err := os.MkdirTemp("/dev/shm", "mesh-unit-") // not below /run, which is covered
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	flags := "--state " + root + "/state --runtime " + root + "/runtime --program " + root + "/bin/mesh-host"
	unitUnder(t, root, flags)

	// What is started by itself as PID 1 takes all others with it.
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", underSystemd, "sh", root)
	cmd.Env = append(os.Environ(), "FLAGS="+flags)
	cmd.WaitDelay = time.Second
	before := scopes()
	out, err := cmd.CombinedOutput()
	for _, dir := range slices.Backward(scopes()) {
		if !slices.Contains(before, dir) {
			_ = os.Remove(dir)
		}
	}
	if strings.Contains(string(out), "unshare:") || strings.HasSuffix(string(out), "no manager\n") {
		t.Skipf("no service manager can be had here: %v: %s", err, out)
	}
	if ctx.Err() != nil {
		t.Skipf("this machine is too busy for it: after 4 minutes it came to\n%s", out)
	}
	want := `one: active
crashes: "it was killed by SIGSEGV"
exits: "it ended with status 1"
ends: "it ended by itself before it was healthy"
cannot-be-started: "it could not be executed"
hangs: "it did not become healthy in time"
two: active, once it is healthy
one again: active
`
	if diff := cmp.Diff(want, string(out)); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// scopes are what a service manager leaves of itself in the control groups, the
// innermost last.
func scopes() []string {
	var all []string
	for _, name := range []string{"init.scope", "app.slice", "app.slice/*.service"} {
		for _, below := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
			found, _ := filepath.Glob(filepath.Join(below, name))
			all = append(all, found...)
		}
	}
	return all
}

// unitUnder puts the unit and the programs into root.
func unitUnder(t *testing.T, root, flags string) {
	t.Helper()
	text, err := os.ReadFile("package/mesh-host.service")
	if err != nil {
		t.Fatal(err)
	}
	program, err := builtProgram()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"units/mesh-host.service": strings.NewReplacer(
			"exec /var/lib/mesh-host/program/good", "exec "+root+"/state/program/good "+flags,
			"/var/lib/mesh-host", root+"/state",
			"/usr/bin/mesh-host run", root+"/bin/mesh-host "+flags+" run --trial 1s --interval 1s",
			"TimeoutStartSec=2min", "TimeoutStartSec=20s", "RestartSec=1", "RestartSec=100ms",
			"StateDirectory=", "#", "RuntimeDirectory=", "#",
		).Replace(string(text)),
		"one": string(program), "two": string(program) + "2",
		"crashes": "#!/bin/sh\nkill -SEGV $$\n", "exits": "#!/bin/sh\nexit 1\n", "ends": "#!/bin/sh\n",
		"hangs": "#!/bin/sh\nexec sleep 1000\n", "cannot-be-started": "\x7fELF",
	}
	for _, target := range []string{"default", "basic", "sysinit", "shutdown"} {
		files["units/"+target+".target"] = "[Unit]\nDescription=nothing\nDefaultDependencies=no\n"
	}
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"bin", "state", "runtime"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
