package libvirt_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/machine"
	"mesh/lab/machine/libvirt"
)

const begin = `2026-11-30 16:50:46.123+0000: starting up libvirt version: 9.0.0, qemu version: 7.2.22, hostname: vm
LC_ALL=C \
PATH=/usr/bin \
/usr/bin/qemu-system-x86_64 \
-name guest=one,debug-threads=on \
-append 'a=b c=d' \
-msg timestamp=on
`

const command = `/usr/bin/qemu-system-x86_64 -name guest=one,debug-threads=on -append 'a=b c=d' -msg timestamp=on`

const (
	byDaemon = "2026-11-30T16:50:50.579648Z qemu-system-x86_64: terminating on signal 15 from pid 6443 (/usr/sbin/libvirtd)\n"
	byOther  = "2026-11-30T16:50:50.579648Z qemu-system-x86_64: terminating on signal 15 from pid 77 (kill)\n"
)

// taint is what libvirt says of a domain with a capability left out.
const taint = "2026-11-30 16:50:46.353+0000: Domain id=74 is tainted: custom-hypervisor-feature\n"

func reason(word string) string {
	return "2026-11-30 16:50:50.626+0000: shutting down, reason=" + word + "\n"
}

// Case L9: what QEMU said is in the error, whether libvirt heard it or not.
func TestCaseL9QEMUsWordsAreInTheErrorOnce(t *testing.T) {
	const place = " (/log holds the command that QEMU was started with)"
	tests := []struct{ name, heard, log, want string }{
		{"heard", "monitor closed: no such disk", begin + "no such disk\n" + reason("failed"), "monitor closed: no such disk" + place},
		{"not heard", "monitor closed", begin + "warning\nno such disk\n" + reason("failed"), "monitor closed: warning\nno such disk" + place},
		{"written late", "monitor closed", begin + reason("failed") + "no such disk\n", "monitor closed: no such disk" + place},
		{"tainted", "monitor closed", begin + taint + "no such disk\n" + reason("failed"), "monitor closed: no such disk" + place},
		{"nothing said", "monitor closed", begin + reason("failed"), "monitor closed" + place},
		{"refused before QEMU was started", "too much memory", reason("failed"), "too much memory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := libvirt.Explained(errors.New(tt.heard), "/log", strings.NewReader(tt.log))
			if err != nil || got.Error() != tt.want {
				t.Errorf("got %v, %v; want %s", got, err, tt.want)
			}
		})
	}
}

func TestLogTellsHowTheLastProcessEnded(t *testing.T) {
	tests := []struct {
		name, log string
		want      machine.Death
	}{
		{"nothing", "", machine.Death{Cause: machine.Unknown}},
		{"tainted only", begin + taint + reason("destroyed"), machine.Death{Cause: machine.Destroyed, Command: command}},
		{"saved", begin + reason("saved"), machine.Death{Cause: machine.Saved, Command: command}},
		{"refused before QEMU was started", reason("failed"), machine.Death{Cause: machine.Failed}},
		{"destroyed", begin + byDaemon + reason("destroyed"), machine.Death{Cause: machine.Destroyed, Stderr: byDaemon, Command: command}},
		{"destroyed, and init has not noticed", begin + byDaemon, machine.Death{Cause: machine.Destroyed, Stderr: byDaemon, Command: command}},
		{"killed", begin + reason("crashed"), machine.Death{Cause: machine.Failed, Command: command}},
		{"killed, and nobody has noticed", begin, machine.Death{Cause: machine.Failed, Command: command}},
		{"asked to end by a stranger", begin + byOther + reason("shutdown"), machine.Death{Cause: machine.Failed, Stderr: byOther, Command: command}},
		{"panicked", begin + byDaemon + reason("crashed"), machine.Death{Cause: machine.Panicked, Stderr: byDaemon, Command: command}},
		{"off", begin + byDaemon + reason("shutdown"), machine.Death{Cause: machine.ShutDown, Stderr: byDaemon, Command: command}},
		{"could not start", begin + "no such disk\n" + reason("failed"), machine.Death{Cause: machine.Failed, Stderr: "no such disk\n", Command: command}},
		{"an unknown word", begin + reason("whim"), machine.Death{Cause: machine.Unknown, Command: command}},
		{"only the last counts", begin + "old trouble\n" + reason("failed") + begin + byDaemon + reason("destroyed"),
			machine.Death{Cause: machine.Destroyed, Stderr: byDaemon, Command: command}},
		{"cut within the command", strings.TrimSuffix(begin, "-msg timestamp=on\n"), machine.Death{Cause: machine.Failed, Command: strings.TrimSuffix(command, " -msg timestamp=on")}},
		{"last line without an end", begin + "half a li", machine.Death{Cause: machine.Failed, Stderr: "half a li\n", Command: command}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := libvirt.ParseLog(strings.NewReader(tt.log))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestLogKeepsTheEndOfLongOutput(t *testing.T) {
	var long strings.Builder
	for range 4 * libvirt.StderrTail {
		long.WriteString("line\n")
	}
	got, err := libvirt.ParseLog(strings.NewReader(begin + long.String() + "the last\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Stderr) > libvirt.StderrTail || !strings.HasPrefix(got.Stderr, "line\n") || !strings.HasSuffix(got.Stderr, "line\nthe last\n") {
		t.Errorf("%d bytes: %.20q … %q", len(got.Stderr), got.Stderr, got.Stderr[len(got.Stderr)-20:])
	}
}

func FuzzLog(f *testing.F) {
	f.Add(begin + byDaemon + reason("crashed"))
	f.Add(begin + byOther)
	f.Add(reason("failed") + begin + begin)
	f.Add("\n \\\n" + strings.Repeat("x", 5000))
	f.Fuzz(func(t *testing.T, log string) {
		d, err := libvirt.ParseLog(strings.NewReader(log))
		if err != nil || len(d.Stderr) > libvirt.StderrTail {
			t.Errorf("%d bytes kept, %v", len(d.Stderr), err)
		}
		again, err := libvirt.ParseLog(strings.NewReader(log + begin))
		if err != nil || (strings.HasSuffix(log, "\n") || log == "") && !cmp.Equal(again, machine.Death{Cause: machine.Failed, Command: command}) {
			t.Errorf("a new start does not begin anew: %+v, %v", again, err)
		}
	})
}
