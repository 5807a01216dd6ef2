package system_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"mesh/host/system"
	"mesh/host/system/systemtest"
)

var onSystemd = flag.Bool("systemd", false, "make, start and stop units of this machine's systemd")

// unitFiles are units in the words of systemd.unit(5).
var unitFiles = map[systemtest.UnitBehaviour]string{
	systemtest.UnitGood:      "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n",
	systemtest.UnitFails:     "[Service]\nType=exec\nExecStart=/nowhere/program\n",
	systemtest.UnitCondition: "[Unit]\nConditionPathExists=/nowhere\n[Service]\nExecStart=/bin/sleep infinity\n",
	systemtest.UnitRude:      "[Service]\nType=exec\nExecStart=/bin/sh -c 'trap \"exit 2\" TERM; sleep infinity & wait'\n",
	systemtest.UnitStatic:    "[Service]\nExecStart=/bin/sleep infinity\n",
	systemtest.UnitSlow:      "[Service]\nType=oneshot\nExecStart=/bin/sleep infinity\n",
}

func TestConformanceOfSystemd(t *testing.T) {
	if !*onSystemd {
		t.Skip("it changes this machine's units: run it with -systemd, as root, where systemd runs")
	}
	services := system.New(system.Config{}).Services
	services.Wait = 10 * time.Second
	systemtest.ServiceConformance(t, services, func(t *testing.T, b systemtest.UnitBehaviour) string {
		name := "mesh-conformance-" + string(b) + ".service"
		path := filepath.Join("/etc/systemd/system", name)
		if err := os.WriteFile(path, []byte(unitFiles[b]), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx := context.WithoutCancel(t.Context())
			if err := errors.Join(services.Stop(ctx, name), services.Disable(ctx, name), os.Remove(path)); err != nil {
				t.Error(err)
			}
		})
		return name
	})
}

// TestTransientRun runs what changes packages: in a unit of its own, with its
// output and its exit status coming back.
func TestTransientRun(t *testing.T) {
	if !*onSystemd {
		t.Skip("it runs a unit of this machine's systemd: run it with -systemd, as root, where systemd runs")
	}
	run := system.Transient(t.TempDir(), 0)
	out, err := run.Run(t.Context(), "sh", "-c", "cat /proc/self/cgroup; echo $DEBIAN_FRONTEND; echo to stderr >&2; exit 3")
	if code := exitCode(err); code != 3 {
		t.Errorf("exit status %d: %v", code, err)
	}
	for _, want := range []string{"/system.slice/mesh-host-packages.service", "noninteractive", "to stderr"} {
		if !contains(out, want) {
			t.Errorf("%q is not in %q", want, out)
		}
	}
	_, err = system.Transient(t.TempDir(), 2*time.Second).Run(t.Context(), "sleep", "infinity")
	if !errors.Is(err, system.ErrGoesOn) {
		t.Errorf("one that does not come to its end: %v", err)
	}
	services := system.New(system.Config{}).Services
	const unit = "mesh-host-packages.service"
	if units, err := services.Units(t.Context(), []string{unit}); err != nil || units[unit].Active != "active" {
		t.Errorf("%+v, %v", units, err)
	}
	if err := services.Stop(t.Context(), unit); err != nil {
		t.Error(err)
	}
}

func TestWithoutSystemd(t *testing.T) {
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		t.Skip("systemd runs here")
	}
	services := system.New(system.Config{}).Services
	if _, err := services.Units(t.Context(), []string{"x.service"}); !errors.Is(err, system.ErrNoSystemd) {
		t.Errorf("%v", err)
	}
	if found, err := services.Units(t.Context(), nil); err != nil || len(found) != 0 {
		t.Errorf("nothing was asked: %v %v", found, err)
	}
	out, err := system.Transient(t.TempDir(), 0).Run(t.Context(), "sh", "-c", "echo $DEBIAN_FRONTEND; exit 4")
	if exitCode(err) != 4 || out != "noninteractive\n" {
		t.Errorf("%q %v", out, err)
	}
}
