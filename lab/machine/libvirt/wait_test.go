package libvirt_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	rpc "github.com/digitalocean/go-libvirt"

	"mesh/lab/machine"
	"mesh/lab/machine/bootsector"
	"mesh/lab/machine/libvirt"
)

// Case L9: however a machine's process ends, whoever waits learns it by an event,
// with the cause and the command that it was started with.
func TestCaseL9EndIsSeenAtOnce(t *testing.T) {
	tests := []struct {
		name string
		disk []byte
		kill bool
		want machine.Cause
	}{
		{"killed", bootsector.Halt(), true, machine.Failed},
		{"panicked", bootsector.Panic(), false, machine.Panicked},
		{"off", bootsector.PowerOff(), false, machine.ShutDown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			k := real(t)
			s := k.Spec(t, tt.name, tt.disk)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := k.Hypervisor.Create(ctx, s); err != nil {
				t.Fatal(err)
			}
			pid := processOf(t, s.Name)
			gone := make(chan time.Time, 1)
			go func() { gone <- endOf(pid) }()
			if err := k.Hypervisor.Resume(ctx, s.Name); err != nil {
				t.Fatal(err)
			}
			if tt.kill {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			d, err := k.Hypervisor.Wait(ctx, s.Name)
			if err != nil {
				t.Fatal(err)
			}
			seen := time.Now()
			// It took milliseconds on a quiet machine; a busy one owes its processes nothing.
			if late := seen.Sub(<-gone); late > 5*time.Second {
				t.Errorf("seen %v after the process's end", late)
			}
			if d.Cause != tt.want {
				t.Errorf("cause %q, want %q (%+v)", d.Cause, tt.want, d)
			}
			if !strings.HasPrefix(d.Command, "/usr/bin/qemu-system-x86_64 ") || !strings.Contains(d.Command, "guest="+s.Name) {
				t.Errorf("command %q", d.Command)
			}
		})
	}
}

// Case L9: the cause is what the machine did, not how the daemon then ended its
// process: libvirt 11.3 announces a shutdown for a signal that it sends, libvirt
// 9.0 now and then. Each sequence was seen.
func TestCaseL9EventsTellTheCause(t *testing.T) {
	var (
		byGuest = [2]int32{int32(rpc.DomainEventShutdown), int32(rpc.DomainEventShutdownGuest)}
		byHost  = [2]int32{int32(rpc.DomainEventShutdown), int32(rpc.DomainEventShutdownHost)}
		crashed = [2]int32{int32(rpc.DomainEventCrashed), int32(rpc.DomainEventCrashedPanicked)}
		stopped = [2]int32{int32(rpc.DomainEventStopped), int32(rpc.DomainEventStoppedDestroyed)}
	)
	tests := []struct {
		name   string
		events [][2]int32
		want   machine.Cause
		end    bool
	}{
		{"off", [][2]int32{byGuest, stopped}, machine.ShutDown, true},
		{"panicked", [][2]int32{crashed, stopped}, machine.Panicked, true},
		{"panicked, and the process ended", [][2]int32{crashed, byHost, stopped}, machine.Panicked, true},
		{"destroyed", [][2]int32{stopped}, machine.Unknown, true},
		{"destroyed, and the process ended", [][2]int32{byHost, stopped}, machine.Unknown, true},
		{"not ended yet", [][2]int32{byHost}, machine.Unknown, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, end := libvirt.Heard(tt.events...); got != tt.want || end != tt.end {
				t.Errorf("cause %q, end %v; want %q, %v", got, end, tt.want, tt.end)
			}
		})
	}
}

// processOf is the number of a machine's QEMU.
func processOf(t *testing.T, name string) int {
	t.Helper()
	text, err := os.ReadFile("/run/libvirt/qemu/" + name + ".pid")
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// endOf returns when a process runs no more, whether or not its parent cares.
func endOf(pid int) time.Time {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			return time.Now()
		}
		<-tick.C
	}
}

// Case L9: what cannot start says why, in the words of whoever knows, and
// leaves nothing.
func TestCaseL9WhatCannotStartSaysWhy(t *testing.T) {
	tests := []struct {
		name   string
		change func(t *testing.T, s *machine.Spec)
		want   string
	}{
		{"no kernel", func(_ *testing.T, s *machine.Spec) { s.Kernel = s.Disk + ".kernel" }, ".kernel: no such file or directory"},
		{"no disk", func(t *testing.T, s *machine.Spec) { _ = os.Remove(s.Disk) }, "no such file or directory"},
		{"broken disk", func(t *testing.T, s *machine.Spec) {
			if err := os.WriteFile(s.Disk, bytes.Repeat([]byte("no disk "), 1024), 0o644); err != nil {
				t.Fatal(err)
			}
		}, "not in qcow2 format"},
		{"too much memory", func(_ *testing.T, s *machine.Spec) { s.MemoryBytes = 1 << 50 }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			k := real(t)
			s := k.Spec(t, "stillborn", bootsector.Halt())
			tt.change(t, &s)
			err := k.Hypervisor.Create(t.Context(), s)
			if err == nil {
				t.Fatal("it was made")
			}
			t.Log(err)
			if !strings.Contains(strings.ToLower(err.Error()), tt.want) || !strings.Contains(err.Error(), s.Name) {
				t.Errorf("error %q does not name the machine and %q", err, tt.want)
			}
			if names, err := k.Hypervisor.List(t.Context(), s.Run); err != nil || len(names) != 0 {
				t.Errorf("left: %q, %v", names, err)
			}
			if _, err := os.Lstat(s.ConsoleSock); err == nil {
				t.Error("its socket is left")
			}
		})
	}
}

func TestConsoleIsRecordedAndServed(t *testing.T) {
	t.Parallel()
	k := real(t)
	s := k.Spec(t, "speaker", bootsector.Print("hello from inside\r\n"))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := k.Hypervisor.Create(ctx, s); err != nil {
		t.Fatal(err)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", s.ConsoleSock)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := k.Hypervisor.Resume(ctx, s.Name); err != nil {
		t.Fatal(err)
	}
	deadline, _ := ctx.Deadline()
	_ = conn.SetReadDeadline(deadline)
	var heard []byte
	for buf := make([]byte, 256); !bytes.Contains(heard, []byte("inside\r\n")); {
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatalf("the socket gave %q, then %v", heard, err)
		}
		heard = append(heard, buf[:n]...)
	}
	for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
		log, err := os.ReadFile(s.ConsoleLog)
		if err == nil && bytes.Contains(log, []byte("hello from inside\r\n")) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the log holds %q, %v", log, err)
		}
	}
}

func TestTapIsMadeAndGoesWithTheMachine(t *testing.T) {
	t.Parallel()
	k := real(t)
	s := k.Spec(t, "wired", bootsector.Halt())
	s.NICs = []machine.NIC{{MAC: "52:54:00:00:00:01", Tap: "m" + k.Run + "a"}, {MAC: "52:54:00:00:00:02", Tap: "m" + k.Run + "b"}}
	if err := k.Hypervisor.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for _, n := range s.NICs {
		if _, err := net.InterfaceByName(n.Tap); err != nil {
			t.Errorf("%s: %v", n.Tap, err)
		}
	}
	if err := k.Hypervisor.Destroy(t.Context(), s.Name); err != nil {
		t.Fatal(err)
	}
	for _, n := range s.NICs {
		if _, err := net.InterfaceByName(n.Tap); err == nil {
			t.Errorf("%s is left", n.Tap)
		}
	}
}

// Two machines share an image; the end of one must take nothing from the other.
func TestSharedBaseOutlivesItsFirstUser(t *testing.T) {
	t.Parallel()
	k := real(t)
	base := filepath.Join(k.Dir, "base.qcow2")
	writeDisk(t, bootsector.Print("booted\r\n"), base)
	if err := os.Chmod(base, 0o444); err != nil {
		t.Fatal(err)
	}
	boot := func(name string) {
		t.Helper()
		s := k.Spec(t, name, nil)
		_ = os.Remove(s.Disk)
		out, err := exec.CommandContext(t.Context(), "qemu-img", "create", "-f", "qcow2", "-b", base, "-F", "qcow2", s.Disk).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err := k.Hypervisor.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if err := k.Hypervisor.Resume(t.Context(), s.Name); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for tick := time.NewTicker(10 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			if log, _ := os.ReadFile(s.ConsoleLog); bytes.Contains(log, []byte("booted\r\n")) {
				return
			}
		}
		t.Errorf("%s does not boot", name)
	}
	boot("one")
	boot("two")
	info, err := os.Stat(base)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Hypervisor.Destroy(t.Context(), "mesh-test-"+k.Run+"-one"); err != nil {
		t.Fatal(err)
	}
	boot("three")
	if info.Mode() != 0o444 {
		t.Errorf("the base's mode became %v", info.Mode())
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 0 {
		t.Errorf("the base's owner became %d", owner)
	}
}
