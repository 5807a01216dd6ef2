package libvirt

import (
	"encoding/xml"
	"fmt"

	"libvirt.org/go/libvirtxml"

	"mesh/lab/machine"
)

// specOf is what can be told of the machine that a domain's document is about:
// what Spec.Fits compares.
func specOf(d *libvirtxml.Domain) (machine.Spec, error) {
	s := machine.Spec{Name: d.Name, Accelerator: machine.TCG}
	if d.Type == domainType(machine.KVM) {
		s.Accelerator = machine.KVM
	}
	if d.Memory == nil || d.VCPU == nil || d.OS == nil || d.OS.Type == nil || d.Devices == nil || d.CPU == nil || d.CPU.Model == nil {
		return s, foreign("its document lacks memory, processors, machine type or devices")
	}
	bytes, ok := units[d.Memory.Unit]
	if !ok {
		return s, foreign("its document counts memory in %q", d.Memory.Unit)
	}
	s.MemoryBytes = int64(d.Memory.Value) * bytes
	s.CPUs = int(d.VCPU.Value)
	s.Kernel = d.OS.Kernel
	for _, v := range d.Devices.Videos {
		s.Display = s.Display || v.Model.Type != "none"
	}
	for _, n := range d.Devices.Interfaces {
		if n.MAC == nil {
			return s, foreign("its document has an interface without an address")
		}
		s.NICs = append(s.NICs, machine.NIC{MAC: n.MAC.Address})
	}
	if len(d.Devices.Disks) != 1 || len(d.Devices.Serials) != 1 {
		return s, foreign("its document has %d disks and %d serial ports, not one each", len(d.Devices.Disks), len(d.Devices.Serials))
	}
	return s, nil
}

// units are what libvirt counts memory in, in bytes.
var units = map[string]int64{"": 1 << 10, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "b": 1, "bytes": 1}

// become makes the document of an image that of the machine s, on h. What the
// guest sees stays, but for its generation. s must fit.
func become(d *libvirtxml.Domain, s machine.Spec, h host) {
	d.Name, d.UUID = s.Name, s.UUID
	d.Metadata = metadata(s)
	d.GenID = &libvirtxml.DomainGenID{Value: h.genid}
	d.OS.Kernel, d.OS.Initrd, d.OS.Cmdline = s.Kernel, s.Initrd, s.Cmdline
	d.SecLabel = nil
	d.Devices.Emulator = h.emulator
	made := devices(s, h)
	disk := &d.Devices.Disks[0]
	disk.Driver, disk.Source, disk.BackingStore = made.Disks[0].Driver, made.Disks[0].Source, made.Disks[0].BackingStore
	disk.Mirror, disk.IOTune = nil, nil
	serial := &d.Devices.Serials[0]
	serial.Source, serial.Log = made.Serials[0].Source, made.Serials[0].Log
	d.Devices.Consoles = nil // the serial port again
	for i := range d.Devices.Interfaces {
		n := &d.Devices.Interfaces[i]
		n.Source, n.Target, n.Link = made.Interfaces[i].Source, made.Interfaces[i].Target, nil
	}
	for i := range d.Devices.Channels {
		c := &d.Devices.Channels[i]
		if c.Target != nil && c.Target.VirtIO != nil && c.Target.VirtIO.Name == agentPort {
			c.Source = unixSocket("")
		}
	}
}

// metadata is the lab's mark on a machine.
func metadata(s machine.Spec) *libvirtxml.DomainMetadata {
	return &libvirtxml.DomainMetadata{XML: fmt.Sprintf(`<mesh:machine xmlns:mesh=%q run=%q/>`, markSpace, s.Run)}
}

// parseDomain reads a document of an image.
func parseDomain(text string) (*libvirtxml.Domain, error) {
	var d libvirtxml.Domain
	if err := xml.Unmarshal([]byte(text), &d); err != nil {
		return nil, foreign("its document is unreadable: %v", err)
	}
	return &d, nil
}
