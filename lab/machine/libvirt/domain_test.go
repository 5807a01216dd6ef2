package libvirt_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	rpc "github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"
	"github.com/google/go-cmp/cmp"

	"mesh/lab/machine"
	"mesh/lab/machine/libvirt"
)

var update = flag.Bool("update", false, "write what is rendered over the goldens")

// goldens are the documents that libvirt gets, by file.
var goldens = map[string]func(s *machine.Spec){
	"tcg.xml": func(s *machine.Spec) {},
	"kvm.xml": func(s *machine.Spec) { s.Accelerator = machine.KVM; s.CPUs = 2 },
	"disk-boot.xml": func(s *machine.Spec) {
		s.Kernel, s.Initrd, s.Cmdline, s.NICs = "", "", "", nil
	},
	"display.xml": func(s *machine.Spec) { s.Display, s.Flushes = true, true },
	"awkward.xml": func(s *machine.Spec) {
		s.Disk, s.ConsoleLog = `/var/lib/a & "b" <c>/disk.qcow2`, `/var/lib/a & "b" <c>/console.log`
		s.Cmdline = `root=/dev/vda note="<&>" last`
	},
}

func render(t *testing.T, change func(s *machine.Spec)) string {
	t.Helper()
	s := machine.Spec{
		Name: "mesh-first-node-one", UUID: "6ba7b810-9dad-41d1-80b4-00c04fd430c8", Run: "0badcafe",
		Accelerator: machine.TCG, MemoryBytes: 512 << 20, CPUs: 1,
		Disk:    "/var/lib/mesh-lab/scenarios/first-node/one.qcow2",
		Kernel:  "/var/lib/mesh-lab/images/debian-13/vmlinuz",
		Initrd:  "/var/lib/mesh-lab/images/debian-13/initrd",
		Cmdline: "root=/dev/vda rw console=ttyS0 systemd.hostname=one",
		NICs: []machine.NIC{
			{MAC: "52:54:00:00:00:01", Tap: "ml0badcafe0"},
			{MAC: "52:54:00:00:00:02", Tap: "ml0badcafe1"},
		},
		ConsoleLog:  "/var/lib/mesh-lab/scenarios/first-node/one.console",
		ConsoleSock: "/run/mesh-lab/first-node/one.sock",
	}
	change(&s)
	text, err := libvirt.DomainXML(s, "/usr/bin/qemu-system-x86_64", "pc-q35-7.2",
		"/var/lib/mesh-lab/images/debian-13/disk.qcow2")
	if err != nil {
		t.Fatal(err)
	}
	return text + "\n"
}

func TestDomainGoldens(t *testing.T) {
	for name, change := range goldens {
		t.Run(name, func(t *testing.T) {
			got, file := render(t, change), filepath.Join("testdata", name)
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got; -update accepts):\n%s", diff)
			}
		})
	}
}

// What is rendered must be what libvirt reads: it checks a document against its
// own schema as it defines a domain from it.
func TestDomainGoldensAreAcceptedByLibvirt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	needDaemon(t)
	c := rpc.NewWithDialer(dialers.NewLocal(dialers.WithSocket("/run/libvirt/libvirt-sock"), dialers.WithLocalTimeout(5*time.Second)))
	if err := c.Connect(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Disconnect() }()
	documents := map[string]string{"clone.xml": cloned(t)}
	for name, change := range goldens {
		documents[name] = render(t, change)
	}
	for name, text := range documents {
		t.Run(name, func(t *testing.T) {
			if _, err := os.Stat("/dev/kvm"); name == "kvm.xml" && err != nil {
				t.Skip("libvirt accepts no KVM domain without /dev/kvm")
			}
			d, err := c.DomainDefineXMLFlags(text, rpc.DomainDefineValidate)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.DomainUndefine(d); err != nil {
				t.Error(err)
			}
		})
	}
}
