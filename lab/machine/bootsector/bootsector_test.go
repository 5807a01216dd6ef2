package bootsector_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mesh/lab/machine/bootsector"
)

func TestEveryDiskCanBeBooted(t *testing.T) {
	for name, disk := range map[string][]byte{
		"exit":      bootsector.Exit(),
		"halt":      bootsector.Halt(),
		"panic":     bootsector.Panic(),
		"power off": bootsector.PowerOff(),
		"print":     bootsector.Print("hello"),
		"count":     bootsector.Count(),
		"too long":  bootsector.Print(strings.Repeat("x", 4096)),
	} {
		if len(disk) != bootsector.Size || !bytes.HasSuffix(disk[:512], []byte{0x55, 0xaa}) {
			t.Errorf("%s: %d bytes, the first sector ending in % x", name, len(disk), disk[510:512])
		}
	}
}

// The programs are judged by the processor that they are for.
func TestProgramsDoWhatTheySay(t *testing.T) {
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Skip("needs qemu-system-x86_64 (apt-get install qemu-system-x86)")
	}
	t.Run("exit", func(t *testing.T) {
		_, code := run(t, qemu, bootsector.Exit(), "-device", "isa-debug-exit,iobase=0xf4,iosize=1")
		if code != bootsector.ExitStatus {
			t.Errorf("exit status %d, want %d", code, bootsector.ExitStatus)
		}
	})
	t.Run("exit takes work", func(t *testing.T) {
		// A quarter of a microsecond an instruction, as if it were interpreted.
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		crawl := args(t, bootsector.Exit(), "-device", "isa-debug-exit,iobase=0xf4,iosize=1", "-icount", "shift=8,align=on")
		if out, err := exec.CommandContext(ctx, qemu, crawl...).CombinedOutput(); ctx.Err() == nil {
			t.Errorf("a processor that crawls came to the end all the same: %v %s", err, out)
		}
	})
	t.Run("power off", func(t *testing.T) {
		if _, code := run(t, qemu, bootsector.PowerOff()); code != 0 {
			t.Errorf("exit status %d, want 0", code)
		}
	})
	t.Run("panic", func(t *testing.T) {
		// What QEMU does by default on a reported panic is to end.
		if _, code := run(t, qemu, bootsector.Panic(), "-device", "pvpanic"); code != 0 {
			t.Errorf("exit status %d, want 0", code)
		}
	})
	for name, tt := range map[string]struct {
		disk []byte
		want string
	}{
		"print": {bootsector.Print("one\r\ntwo\r\n"), "one\r\ntwo\r\n"},
		"count": {bootsector.Count(), "0001\n0002\n0003\n0004\n0005\n0006\n0007\n0008\n0009\n000A\n000B\n"},
	} {
		t.Run(name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "serial")
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			cmd := exec.CommandContext(ctx, qemu, args(t, tt.disk, "-serial", "file:"+log)...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { cancel(); _ = cmd.Wait() }()
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for ; ; <-tick.C {
				got, _ := os.ReadFile(log)
				if strings.HasPrefix(string(got), tt.want) {
					return
				}
				if ctx.Err() != nil {
					t.Fatalf("serial port said %q", got)
				}
			}
		})
	}
}

func args(t *testing.T, disk []byte, more ...string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	return append([]string{
		"-machine", "q35", "-accel", "tcg", "-m", "16", "-display", "none", "-nodefaults", "-no-user-config",
		"-drive", "file=" + file + ",format=raw,if=none,id=d", "-device", "ide-hd,drive=d",
	}, more...)
}

func run(t *testing.T, qemu string, disk []byte, more ...string) (output string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, qemu, args(t, disk, more...)...).CombinedOutput()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatalf("still running after 20 s: %s", out)
	}
	if ended == nil {
		return string(out), 0
	}
	return string(out), ended.ExitCode()
}
