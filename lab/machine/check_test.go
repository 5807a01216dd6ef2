package machine_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mesh/lab/machine"
)

func good() machine.Spec {
	return machine.Spec{
		Name: "mesh-first-node-one", UUID: "6ba7b810-9dad-41d1-80b4-00c04fd430c8", Run: "0badcafe",
		Accelerator: machine.TCG, MemoryBytes: 512 << 20, CPUs: 1,
		Disk: "/d/one.qcow2", Kernel: "/i/vmlinuz", Initrd: "/i/initrd", Cmdline: "root=/dev/vda",
		NICs:       []machine.NIC{{MAC: "52:54:00:00:00:01", Tap: "ml0badcafe0"}, {MAC: "52:54:00:00:00:02", Tap: "ml0badcafe1"}},
		ConsoleLog: "/d/one.log", ConsoleSock: "/r/one.sock",
	}
}

func TestSpecCheck(t *testing.T) {
	tests := []struct {
		name   string
		change func(s *machine.Spec)
		want   []string
	}{
		{"whole", func(*machine.Spec) {}, nil},
		{"without a kernel", func(s *machine.Spec) { s.Kernel, s.Initrd, s.Cmdline = "", "", "" }, nil},
		{"initrd without a kernel", func(s *machine.Spec) { s.Kernel = "" },
			[]string{"kernel: is empty, so initrd and cmdline must be empty too"}},
		{"longest socket", func(s *machine.Spec) { s.ConsoleSock = "/" + strings.Repeat("r", 106) }, nil},
		{"socket too long", func(s *machine.Spec) { s.ConsoleSock = "/" + strings.Repeat("r", 107) },
			[]string{"console_socket: the path has 108 bytes, a UNIX socket's has at most 107; use a shorter runtime directory"}},
		{"tap too long", func(s *machine.Spec) { s.NICs[0].Tap = "m234567890123456" },
			[]string{`nics[0].tap: "m234567890123456" is not a link name of 1 to 15 bytes`}},
		{"one tap twice", func(s *machine.Spec) { s.NICs[1].Tap = s.NICs[0].Tap },
			[]string{`nics[1].tap: "ml0badcafe0" is also the tap of nics[0]`}},
		{"one address twice", func(s *machine.Spec) { s.NICs[1].MAC = s.NICs[0].MAC },
			[]string{`nics[1].mac: "52:54:00:00:00:01" is also the address of nics[0]`}},
		{"group address", func(s *machine.Spec) { s.NICs[0].MAC = "53:54:00:00:00:01" },
			[]string{`nics[0].mac: "53:54:00:00:00:01" is not a machine's Ethernet address in lower case`}},
		{"line end in the command line", func(s *machine.Spec) { s.Cmdline = "a\nb" },
			[]string{"cmdline: holds a NUL or a line end"}},
		{"nothing", func(s *machine.Spec) { *s = machine.Spec{} }, []string{
			`name: "" is not a letter or digit followed by at most 127 of A-Z a-z 0-9 _ . -`,
			`uuid: "" is not a UUID in lower case`,
			`run: "" is not 1 to 64 of A-Z a-z 0-9 -`,
			`accelerator: "" is neither "kvm" nor "tcg"`,
			"memory_bytes: 0 is not a multiple of 1 KiB, 1 MiB or more",
			"cpus: 0 is less than one",
			`disk: "" is not an absolute path`,
			`console_log: "" is not an absolute path`,
			`console_socket: "" is not an absolute path`,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := good()
			tt.change(&s)
			var got []string
			if err := s.Check(); err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOnlyTheSameHardwareFits(t *testing.T) {
	tests := []struct {
		name   string
		change func(s *machine.Spec)
		want   string // empty: it fits
	}{
		{"the same", func(*machine.Spec) {}, ""},
		{"everything that may differ", func(s *machine.Spec) {
			*s = machine.Spec{
				Name: "other", UUID: "6ba7b811-9dad-41d1-80b4-00c04fd430c8", Run: "run", Disk: "/d", Kernel: "/k", Initrd: "/r", Cmdline: "c",
				Accelerator: s.Accelerator, MemoryBytes: s.MemoryBytes, CPUs: s.CPUs, Flushes: true, ConsoleLog: "/l", ConsoleSock: "/s",
				NICs: []machine.NIC{{MAC: s.NICs[0].MAC, Tap: "a"}, {MAC: s.NICs[1].MAC, Tap: "b"}},
			}
		}, ""},
		{"accelerator", func(s *machine.Spec) { s.Accelerator = machine.KVM }, "accelerator is tcg in the image and kvm in the spec"},
		{"memory", func(s *machine.Spec) { s.MemoryBytes = 1 << 30 }, "memory_bytes is 536870912 in the image and 1073741824 in the spec"},
		{"processors", func(s *machine.Spec) { s.CPUs = 2 }, "cpus is 1 in the image and 2 in the spec"},
		{"display", func(s *machine.Spec) { s.Display = true }, "display is false in the image and true in the spec"},
		{"no kernel", func(s *machine.Spec) { s.Kernel = "" }, "boot from a kernel is true in the image and false in the spec"},
		{"no NICs", func(s *machine.Spec) { s.NICs = nil }, "macs is [52:54:00:00:00:01 52:54:00:00:00:02] in the image and [] in the spec"},
		{"NICs swapped", func(s *machine.Spec) { s.NICs[0], s.NICs[1] = s.NICs[1], s.NICs[0] }, "[52:54:00:00:00:02 52:54:00:00:00:01] in the spec"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := good()
			tt.change(&s)
			err := s.Fits(good())
			if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, machine.ErrForeign) || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestNICAndThrottleCheck(t *testing.T) {
	if err := (machine.NIC{MAC: "52:54:00:00:00:01", Tap: "a"}).Check(); err != nil {
		t.Error(err)
	}
	if err := (machine.NIC{}).Check(); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("of nothing: %v, want two problems", err)
	}
	for _, limit := range []machine.Throttle{{BytesPerSecond: -1}, {OperationsPerSecond: -1}} {
		if limit.Check() == nil {
			t.Errorf("%+v was taken", limit)
		}
	}
	if err := (machine.Throttle{}).Check(); err != nil {
		t.Error(err)
	}
}
