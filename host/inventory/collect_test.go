package inventory_test

import (
	"net/netip"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"mesh/host/inventory"
)

func machine(files map[string]string) fstest.MapFS {
	all := map[string]string{
		"etc/os-release":                "PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nVERSION_ID=\"13\"\nID=debian\n",
		"etc/machine-id":                "0123456789abcdef0123456789abcdef\n",
		"proc/sys/kernel/osrelease":     "6.12.48+deb13-cloud-amd64\n",
		"proc/sys/kernel/hostname":      "one\n",
		"proc/meminfo":                  "MemTotal:        2018156 kB\nMemFree:          100000 kB\n",
		"sys/devices/system/cpu/online": "0-1\n",
		"run/systemd/system/.keep":      "",
	}
	fsys := fstest.MapFS{}
	for name, content := range files {
		all[name] = content
	}
	for name, content := range all {
		if content != "absent" {
			fsys[name] = &fstest.MapFile{Data: []byte(content)}
		}
	}
	return fsys
}

var prefixes = cmpopts.EquateComparable(netip.Prefix{})

func TestCollectProfile(t *testing.T) {
	debian := inventory.Profile{
		HostVersion: "1.2.3", Formats: []int{1, 2, 3}, Kinds: []string{"directory", "file", "package", "service", "container"},
		OS: "debian", OSVersion: "13", Architecture: "arm64", Kernel: "6.12.48+deb13-cloud-amd64", Systemd: true,
	}
	podman := debian
	podman.Capabilities = []string{"containers"}
	bare := debian
	bare.OS, bare.OSVersion, bare.Systemd = "", "", false
	vendor := debian
	vendor.OS, vendor.OSVersion = "alpine", "3.22.0"
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  inventory.Profile
	}{
		{"debian", nil, debian},
		{"with podman that makes services", map[string]string{"usr/lib/systemd/system-generators/podman-system-generator": ""}, podman},
		{"with podman that does not", map[string]string{"usr/bin/podman": ""}, debian},
		{"with podman and without systemd", map[string]string{"usr/lib/systemd/system-generators/podman-system-generator": "", "etc/os-release": "absent", "run/systemd/system/.keep": "absent"}, bare},
		{"neither os-release nor systemd", map[string]string{"etc/os-release": "absent", "run/systemd/system/.keep": "absent"}, bare},
		{"os-release of the vendor", map[string]string{"etc/os-release": "absent", "usr/lib/os-release": "ID='alpine'\nVERSION_ID=3.22.0"}, vendor},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := inventory.CollectProfile(machine(tc.files), "1.2.3", "arm64")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, err := inventory.CollectProfile(machine(map[string]string{"proc/sys/kernel/osrelease": "absent"}), "1", "arm64"); err == nil {
		t.Error("no kernel was reported as a profile")
	}
}

func TestCollect(t *testing.T) {
	p := netip.MustParsePrefix
	given := []inventory.Interface{
		{Name: "lo", Addresses: []netip.Prefix{p("127.0.0.1/8"), p("::1/128")}},
		{Name: "ens4", MAC: "52:54:00:00:00:02"},
		{Name: "ens3", MAC: "52:54:00:00:00:01", Addresses: []netip.Prefix{p("2001:db8::2/64"), p("fe80::1/64"), p("198.51.100.7/24"), p("169.254.1.1/16"), p("192.0.2.7/24")}},
	}
	want := inventory.Inventory{
		MachineID: "0123456789abcdef0123456789abcdef", Hostname: "one", CPUs: 2, MemoryBytes: 2018156 << 10,
		Interfaces: []inventory.Interface{
			{Name: "ens3", MAC: "52:54:00:00:00:01", Addresses: []netip.Prefix{p("192.0.2.7/24"), p("198.51.100.7/24"), p("2001:db8::2/64")}},
			{Name: "ens4", MAC: "52:54:00:00:00:02"},
		},
	}
	got, err := inventory.Collect(machine(nil), given)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, prefixes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if given[0].Name != "lo" || len(given[2].Addresses) != 5 || given[2].Addresses[0] != p("2001:db8::2/64") {
		t.Error("the caller's interfaces were changed")
	}
	if got, err := inventory.Collect(machine(map[string]string{"sys/devices/system/cpu/online": "0,2-4,7\n"}), nil); err != nil || got.CPUs != 5 || got.Interfaces == nil {
		t.Errorf("%+v, %v: want 5 processors and an empty list", got, err)
	}
}

func TestCollectRefuses(t *testing.T) {
	for _, tc := range []struct{ file, content, want string }{
		{"etc/machine-id", "absent", "machine-id"},
		{"etc/machine-id", "uninitialized\n", "systemd-machine-id-setup"},
		{"etc/machine-id", "", "systemd-machine-id-setup"},
		{"proc/meminfo", "MemFree: 1 kB\n", "it has no line MemTotal"},
		{"proc/meminfo", "MemTotal: many kB\n", "it has no line MemTotal"},
		{"sys/devices/system/cpu/online", "", "is not a list of processors"},
		{"sys/devices/system/cpu/online", "3-1", "is not a list of processors"},
		{"proc/sys/kernel/hostname", "absent", "hostname"},
	} {
		_, err := inventory.Collect(machine(map[string]string{tc.file: tc.content}), nil)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s = %q: %v, want …%s…", tc.file, tc.content, err, tc.want)
		}
	}
}
