package guest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/guest"
)

func TestScanFindsWhatIsFatal(t *testing.T) {
	tests := []struct{ kind, line string }{
		{"kernel panic", "[    1.234567] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)"},
		{"kernel panic", "\x1b[31m[   12.000000] Kernel panic - not syncing: sysrq triggered crash\x1b[0m\r"},
		{"kernel oops", "[    5.0] BUG: kernel NULL pointer dereference, address: 0000000000000000"},
		{"kernel oops", "[    5.0] Oops: 0002 [#1] PREEMPT SMP NOPTI"},
		{"kernel oops", "[    5.0] Oops: general protection fault, probably for non-canonical address 0x1: 0000 [#1]"},
		{"kernel oops", "Nov 30 16:50:46 one kernel: BUG: unable to handle page fault for address: ffff"},
		{"kernel oops", "[    5.0] kernel BUG at mm/slub.c:123!"},
		{"no root file system", "[    2.0] VFS: Cannot open root device \"vda\" or unknown-block(0,0): error -6"},
		{"no root file system", "ALERT!  /dev/vdb does not exist.  Dropping to a shell!"},
		{"emergency shell", "You are in emergency mode. After logging in, type \"journalctl -xb\" to view"},
		{"emergency shell", "You are in rescue mode. After logging in, type \"journalctl -xb\" to view"},
		{"emergency shell", "[\x1b[0;32m  OK  \x1b[0m] Started \x1b[0;1;39memergency.service\x1b[0m - Emergency Shell."},
		{"emergency shell", "[\x1b[0;32m  OK  \x1b[0m] Reached target \x1b[0;1;39memergency.target\x1b[0m - Emergency Mode."},
		{"emergency shell", "(initramfs) "},
		{"init died", "[    3.0] Kernel panic? no: Attempted to kill init! exitcode=0x0000000b"},
		{"init died", "[    3.1] systemd[1]: Caught <SEGV>, from our own process."},
		{"init died", "[!!!!!!] Failed to mount API filesystems."},
		{"out of memory", "[  100.0] Out of memory: Killed process 321 (mesh-plane) total-vm:1234kB"},
		{"out of memory", "[  100.0] Memory cgroup out of memory: Killed process 321 (apt-get) total-vm:1234kB"},
		{"segmentation fault", "[  100.0] mesh-host[321]: segfault at 0 ip 000000000046 sp 00007ffd error 4 in mesh-host[400000+200000]"},
		{"file system error", "[   10.0] EXT4-fs error (device vda): ext4_lookup:1785: inode #2: comm bash: deleted inode referenced: 12"},
		{"file system error", "[   10.0] EXT4-fs (vda): Remounting filesystem read-only"},
		{"file system error", "[   10.0] Buffer I/O error on dev vda, logical block 5, async page read"},
		{"Go panic", "panic: runtime error: invalid memory address or nil pointer dereference"},
		{"Go panic", "Nov 30 16:50:46 one mesh-host[321]: panic: assignment to entry in nil map"},
		{"Go panic", "Nov 30 16:50:46 one mesh-plane[321]: fatal error: concurrent map writes"},
		{"Go panic", "Nov 30 16:50:46 one mesh-plane[321]: goroutine 1 [running]:"},
		{"Go panic", "fatal error: all goroutines are asleep - deadlock!"},
		{"Go panic", "WARNING: DATA RACE"},
	}
	for _, tt := range tests {
		found := guest.Scan(strings.NewReader("a good line\n" + tt.line + "\nanother\n"))
		if len(found) != 1 || found[0].Kind != tt.kind || found[0].Line != 2 {
			t.Errorf("%q: %v, want %s at line 2", tt.line, found, tt.kind)
		}
	}
}

func TestScanLetsPassWhatIsNot(t *testing.T) {
	for _, line := range []string{
		"[    0.000000] Command line: root=/dev/vda rw panic=10 systemd.unit=multi-user.target rescue emergency oops=panic",
		"[    0.1] Kernel command line: panic=-1",
		"[    1.0] systemd[1]: Listening on systemd-oomd.socket - Userspace Out-Of-Memory (OOM) Killer Socket.",
		"[    1.0] EXT4-fs (vda): mounted filesystem 0000 r/w with ordered data mode. Quota mode: none.",
		"[    1.0] EXT4-fs (vda): re-mounted 0000 r/w.",
		"[    1.0] input: AT Translated Set 2 keyboard",
		"[    1.0] x86/fpu: x87 FPU will use FXSR",
		"[    1.0] ERST DBG: ERST support is disabled.",
		"[    1.0] clocksource: timekeeping watchdog on CPU0: Marking clocksource 'tsc' as unstable",
		"[   65.1] watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [swapper/0:1]", // a starved lab, not a broken machine
		"[   65.1] rcu: INFO: rcu_preempt self-detected stall on CPU",
		"[  245.1] INFO: task systemd:1 blocked for more than 120 seconds.",
		"         Starting systemd-bsod.service - Displays emergency message in full screen...",
		"[  OK  ] Reached target network.target - Network.",
		"Nov 30 16:50:46 one mesh-host[321]: level=INFO msg=\"no panic: all is well\"",
		"Nov 30 16:50:46 one mesh-host[321]: level=ERROR msg=failed err=\"goroutine 7 is late\"",
		"Nov 30 16:50:46 one kernel: traps and more",
		"Nov 30 16:50:46 one mesh-host[321]: level=WARN msg=restarted err=\"it ended: panic: of old\"",
		"fatal error: cannot open file", // a compiler's
		"BUGS: see the manual",
	} {
		if found := guest.Scan(strings.NewReader(line + "\n")); len(found) != 0 {
			t.Errorf("%q: %v", line, found)
		}
	}
}

// Consoles of real boots; a console that is whole and good has nothing fatal.
func TestScanOfRealBoots(t *testing.T) {
	logs, err := filepath.Glob("testdata/good-*.log")
	if err != nil || len(logs) == 0 {
		t.Fatal("no recorded boots", err)
	}
	for _, file := range logs {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if found := guest.Scan(strings.NewReader(string(text))); len(found) != 0 {
			t.Errorf("%s: %v", file, found)
		}
	}
}

func TestScanIsBounded(t *testing.T) {
	many := strings.Repeat("Kernel panic - not syncing: "+strings.Repeat("x", 10_000)+"\n", 120)
	found := guest.Scan(strings.NewReader(many))
	if len(found) != 100 || found[99].Line != 100 {
		t.Fatalf("%d findings, the last %.80v", len(found), found[len(found)-1])
	}
	for _, f := range found {
		if len(f.Text) > 400 {
			t.Fatalf("%d bytes of a line", len(f.Text))
		}
	}
}

func TestTail(t *testing.T) {
	tests := []struct {
		name, console string
		lines         int
		want          string
	}{
		{"nothing", "", 5, ""},
		{"all of it", "one\r\ntwo\r\n", 5, "one\ntwo"},
		{"the end", "one\ntwo\nthree\n", 2, "two\nthree"},
		{"half a line", "one\ntwo\nthr", 2, "two\nthr"},
		{"colours", "[\x1b[0;32m  OK  \x1b[0m] Started \x1b[0;1;39mx\x1b[0m\r\n", 1, "[  OK  ] Started x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := guest.Tail(strings.NewReader(tt.console), tt.lines)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzScan(f *testing.F) {
	f.Add("a\nKernel panic - not syncing\r\n\x1b[31mb")
	f.Add(strings.Repeat("x", 70_000) + "\n(initramfs)\n")
	f.Add("\x1b[\x1b[0;1;39m\x00\n")
	f.Fuzz(func(t *testing.T, console string) {
		last := 0
		for _, found := range guest.Scan(strings.NewReader(console)) {
			if found.Line <= last || found.Line > strings.Count(console, "\n")+1 || len(found.Text) > 400 {
				t.Errorf("line %d after %d: %q", found.Line, last, found.Text)
			}
			last = found.Line
		}
		if tail, err := guest.Tail(strings.NewReader(console), 3); err != nil || strings.Count(tail, "\n") > 2 || strings.ContainsAny(tail, "\r\x1b\x00") {
			t.Errorf("tail %q, %v", tail, err)
		}
	})
}
