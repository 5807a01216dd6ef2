package libvirt

import (
	"fmt"

	rpc "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"mesh/lab/machine"
)

const (
	arch = "x86_64"
	// cpuModel is pinned, so that a machine saved here can be restored on another
	// lab machine, and is what Debian and containers of other systems are built
	// for at most (x86-64-v2).
	cpuModel = "Nehalem"
	// translationCache of a machine without KVM; QEMU's own default is 1 GiB.
	translationCache = 128 // MiB
	// spareSlots for devices that are plugged into a running machine.
	spareSlots = 4
	// fixedSlots are used by every machine: disk, serial bus, random numbers.
	fixedSlots = 3
	// diskTarget is the disk's name in the domain.
	diskTarget = "vda"
	// agentPort is where the guest agent listens (qemu-ga(8)).
	agentPort = "org.qemu.guest_agent.0"
	// markSpace is the namespace of the lab's element in a domain's metadata.
	markSpace = "urn:mesh:lab:1"
)

// mark is how the lab knows its own domains: the element in markSpace, which
// libvirt hands out without the declaration of its prefix.
type mark struct {
	Run string `xml:"run,attr"`
}

// host is what a domain has to know of the lab machine.
type host struct {
	emulator string   // path of QEMU
	machine  string   // versioned machine type: "pc-q35-7.2"
	backing  []string // the qcow2 files that the disk stands on, the nearest first
	genid    string   // UUID that tells the guest that it is not who it was
}

// newest is the machine type of new machines, without its version.
const newest = "q35"

// probe asks the daemon for a machine type, and its versioned name.
func probe(c *rpc.Libvirt, a machine.Accelerator, machineType string) (host, error) {
	answer, err := c.ConnectGetDomainCapabilities(nil, rpc.OptString{arch}, rpc.OptString{machineType}, rpc.OptString{domainType(a)}, 0)
	if err != nil {
		return host{}, fmt.Errorf("ask what %s can do: %w", a, err)
	}
	var caps libvirtxml.DomainCaps
	if err := caps.Unmarshal(answer); err != nil {
		return host{}, fmt.Errorf("read what %s can do: %w", a, err)
	}
	return host{emulator: caps.Path, machine: caps.Machine}, nil
}

// domainType is libvirt's word for an accelerator.
func domainType(a machine.Accelerator) string {
	if a == machine.KVM {
		return "kvm"
	}
	return "qemu"
}

// domainXML is the document that libvirt makes a machine from.
func domainXML(s machine.Spec, h host) (string, error) {
	d := libvirtxml.Domain{
		Type:             domainType(s.Accelerator),
		Name:             s.Name,
		UUID:             s.UUID,
		QEMUCapabilities: withoutProbes(),

		GenID:    &libvirtxml.DomainGenID{Value: h.genid},
		Metadata: metadata(s),
		Memory:   &libvirtxml.DomainMemory{Value: uint(s.MemoryBytes >> 10), Unit: "KiB"},
		VCPU:     &libvirtxml.DomainVCPU{Placement: "static", Value: uint(s.CPUs)},
		OS: &libvirtxml.DomainOS{
			Type:    &libvirtxml.DomainOSType{Arch: arch, Machine: h.machine, Type: "hvm"},
			Kernel:  s.Kernel,
			Initrd:  s.Initrd,
			Cmdline: s.Cmdline,
		},
		CPU: &libvirtxml.DomainCPU{
			Mode: "custom", Match: "exact", Check: "none",
			Model: &libvirtxml.DomainCPUModel{Fallback: "forbid", Value: cpuModel},
			// Emulation has no virtual 8086 mode extensions and would say so at each start.
			Features: []libvirtxml.DomainCPUFeature{{Policy: "disable", Name: "vme"}},
		},
		Features:   &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{}, APIC: &libvirtxml.DomainFeatureAPIC{}},
		Clock:      &libvirtxml.DomainClock{Offset: "utc"},
		OnPoweroff: "destroy",
		OnReboot:   "restart",
		OnCrash:    "destroy",
		Devices:    devices(s, h),
	}
	if s.Kernel == "" {
		d.OS.BootDevices = []libvirtxml.DomainBootDevice{{Dev: "hd"}}
	}
	if s.Accelerator == machine.TCG {
		d.Features.TCG = &libvirtxml.DomainFeatureTCG{
			TBCache: &libvirtxml.DomainFeatureTCGTBCache{Unit: "MiB", Size: translationCache},
		}
	}
	return d.Marshal()
}

// withoutProbes keeps libvirt from asking QEMU, one by one, for the four hundred
// properties of the processor: half of the time that a machine takes to start.
// It asks for the two that tell the same instead.
func withoutProbes() *libvirtxml.DomainQEMUCapabilities {
	return &libvirtxml.DomainQEMUCapabilities{
		Del: []libvirtxml.DomainQEMUCapabilitiesEntry{{Name: "cpu-unavailable-features"}},
	}
}

// metadata is the lab's mark on a machine.
func metadata(s machine.Spec) *libvirtxml.DomainMetadata {
	return &libvirtxml.DomainMetadata{XML: fmt.Sprintf(`<mesh:machine xmlns:mesh=%q run=%q/>`, markSpace, s.Run)}
}

func devices(s machine.Spec, h host) *libvirtxml.DomainDeviceList {
	list := &libvirtxml.DomainDeviceList{
		Emulator:    h.emulator,
		Controllers: controllers(fixedSlots + len(s.NICs) + spareSlots),
		Disks: []libvirtxml.DomainDisk{{
			Device: "disk",
			Driver: diskDriver(s),
			Source: &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: s.Disk}},

			BackingStore: backingStore(h.backing),
			Target:       &libvirtxml.DomainDiskTarget{Dev: diskTarget, Bus: "virtio"},
		}},
		Serials: []libvirtxml.DomainSerial{{
			Source: unixSocket(s.ConsoleSock),
			Log:    &libvirtxml.DomainChardevLog{File: s.ConsoleLog, Append: "on"},
			Target: &libvirtxml.DomainSerialTarget{Type: "isa-serial", Port: new(uint)},
		}},
		Channels: []libvirtxml.DomainChannel{{
			Source: unixSocket(""), // libvirt chooses the path
			Target: &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: agentPort}},
		}},
		RNGs: []libvirtxml.DomainRNG{{
			Model:   "virtio",
			Backend: &libvirtxml.DomainRNGBackend{Random: &libvirtxml.DomainRNGBackendRandom{Device: "/dev/urandom"}},
		}},
		Panics:     []libvirtxml.DomainPanic{{Model: "isa"}},
		MemBalloon: &libvirtxml.DomainMemBalloon{Model: "none"},
		Videos:     []libvirtxml.DomainVideo{{Model: libvirtxml.DomainVideoModel{Type: "none"}}},
	}
	if s.Display {
		list.Videos[0].Model.Type = "vga" // that every guest can show something on
	}
	for _, n := range s.NICs {
		list.Interfaces = append(list.Interfaces, networkInterface(n))
	}
	return list
}

// diskDriver reports errors to the guest instead of stopping it.
func diskDriver(s machine.Spec) *libvirtxml.DomainDiskDriver {
	d := &libvirtxml.DomainDiskDriver{Name: "qemu", Type: "qcow2", Cache: "unsafe", ErrorPolicy: "report"}
	if s.Flushes {
		d.Cache = "writeback"
	}
	return d
}

func networkInterface(n machine.NIC) libvirtxml.DomainInterface {
	return libvirtxml.DomainInterface{
		MAC:    &libvirtxml.DomainInterfaceMAC{Address: n.MAC},
		Source: &libvirtxml.DomainInterfaceSource{Ethernet: &libvirtxml.DomainInterfaceSourceEthernet{}},
		Target: &libvirtxml.DomainInterfaceTarget{Dev: n.Tap},
		Model:  &libvirtxml.DomainInterfaceModel{Type: "virtio"},
		ROM:    &libvirtxml.DomainROM{Enabled: "no"}, // nothing boots from the network
	}
}

// backingStore names what a disk stands on, so that libvirt leaves the owner of
// those files alone: other machines stand on them too, and nobody writes them.
func backingStore(chain []string) *libvirtxml.DomainDiskBackingStore {
	if len(chain) == 0 {
		return &libvirtxml.DomainDiskBackingStore{} // the end
	}
	return &libvirtxml.DomainDiskBackingStore{
		Format: &libvirtxml.DomainDiskFormat{Type: "qcow2"},
		Source: &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{
			File:     chain[0],
			SecLabel: []libvirtxml.DomainDeviceSecLabel{{Model: "dac", Relabel: "no"}},
		}},
		BackingStore: backingStore(chain[1:]),
	}
}

// controllers are the PCI bus with that many slots for devices, and no USB. The
// root bus of q35 takes no device while the machine runs; a root port does.
func controllers(slots int) []libvirtxml.DomainController {
	index := func(i uint) *uint { return &i }
	list := []libvirtxml.DomainController{
		{Type: "usb", Index: index(0), Model: "none"},
		{Type: "pci", Index: index(0), Model: "pcie-root"},
	}
	for i := range slots {
		list = append(list, libvirtxml.DomainController{Type: "pci", Index: index(uint(i + 1)), Model: "pcie-root-port"})
	}
	return list
}

func unixSocket(path string) *libvirtxml.DomainChardevSource {
	return &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{Mode: "bind", Path: path}}
}
