package libvirt_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mesh/lab/machine"
	"mesh/lab/machine/libvirt"
)

// Case L10: KVM counts only if a guest comes to its end under it. The emulator
// is a script, so that each machine of the case can be had on any.
func TestCaseL10AcceleratorIsFoundByTrying(t *testing.T) {
	const runs, hangs, refuses = "exit 33", "exec sleep 60", "echo 'qemu-system-x86_64: Could not access KVM kernel module: Permission denied' >&2; exit 1"
	tests := []struct {
		name, kvm, tcg, device string
		want                   machine.Accelerator
		says                   []string
	}{
		{"a guest runs under KVM", runs, runs, "-rw-rw---- 0:107", machine.KVM, []string{"ran under KVM"}},
		{"no device", runs, runs, "absent", machine.TCG, []string{"no /dev/kvm", "ran under emulation"}},
		{"KVM opens and does nothing, or crawls", hangs, runs, "-rw-rw---- 0:107", machine.TCG, []string{"did not come to its end within 3s", "ran under emulation"}},
		{"KVM is unreadable", refuses, runs, "-rw------- 0:0", machine.TCG, []string{"Permission denied", "chgrp kvm /dev/kvm"}},
		{"KVM ends without having run", "exit 0", runs, "-rw-rw---- 0:107", machine.TCG, []string{"KVM: the guest ended without having run"}},
		{"nothing runs", refuses, "exit 1", "-rw------- 0:0", "", []string{"no guest runs"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			emulator := filepath.Join(openDir(t), "qemu-system-x86_64")
			script := "#!/bin/sh\ncase \"$*\" in *'-accel kvm'*) " + tt.kvm + ";; *) " + tt.tcg + ";; esac\n"
			if err := os.WriteFile(emulator, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			got, reason, err := libvirt.Try(t.Context(), emulator, tt.device)
			if err != nil {
				reason = err.Error()
			}
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("%q, %q, %v", got, reason, err)
			}
			for _, part := range tt.says {
				if !strings.Contains(reason, part) {
					t.Errorf("%q does not say %q", reason, part)
				}
			}
			if strings.Contains(reason, "\n") {
				t.Errorf("%q has more than a line", reason)
			}
		})
	}
}

// openDir is a temporary directory that another user may enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mlt-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestDaemonIsKeptWhileAnotherLabNeedsIt(t *testing.T) {
	_ = real(t) // this process needs it, from here to its end
	other := libvirt.NewDaemon(runtimeDir, nil)
	if err := other.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := other.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := libvirt.New().Version(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestReleaseOfNothingMakesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := libvirt.NewDaemon(dir, nil).Release(t.Context()); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("made %v, %v", entries, err)
	}
}
