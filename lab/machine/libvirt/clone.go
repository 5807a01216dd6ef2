package libvirt

import (
	"errors"
	"fmt"

	"libvirt.org/go/libvirtxml"

	"mesh/lab/machine"
)

// errNoDisk means that a document names no disk.
var errNoDisk = errors.New("its document has no disk")

// specOf is what can be told of the machine that a document is about: what
// Spec.Fits compares. Errors wrap errNoDisk or nothing; what it returned without
// one has a disk that is a file, and a serial port.
func specOf(d *libvirtxml.Domain) (machine.Spec, error) {
	s := machine.Spec{Name: d.Name, UUID: d.UUID, Accelerator: machine.TCG}
	if d.Type == domainType(machine.KVM) {
		s.Accelerator = machine.KVM
	}
	if d.Memory == nil || d.VCPU == nil || d.OS == nil || d.OS.Type == nil || d.Devices == nil {
		return s, errors.New("its document lacks memory, processors, machine type or devices")
	}
	unit, ok := units[d.Memory.Unit]
	if !ok {
		return s, fmt.Errorf("its document counts memory in %q", d.Memory.Unit)
	}
	s.MemoryBytes = int64(d.Memory.Value) * unit
	s.CPUs = int(d.VCPU.Value)
	s.Kernel = d.OS.Kernel
	for _, v := range d.Devices.Videos {
		s.Display = s.Display || v.Model.Type != "none"
	}
	for _, n := range d.Devices.Interfaces {
		if n.MAC == nil {
			return s, errors.New("its document has a NIC without an address")
		}
		s.NICs = append(s.NICs, machine.NIC{MAC: n.MAC.Address})
	}
	if len(d.Devices.Serials) != 1 {
		return s, fmt.Errorf("its document has %d serial ports, not one", len(d.Devices.Serials))
	}
	switch disks := d.Devices.Disks; {
	case len(disks) == 0:
		return s, errNoDisk
	case len(disks) > 1 || disks[0].Source == nil || disks[0].Source.File == nil:
		return s, errors.New("its document has other disks than one file")
	}
	return s, nil
}

// units are what libvirt counts memory in, in bytes.
var units = map[string]int64{"b": 1, "bytes": 1, "": 1 << 10, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

// parseDomain reads the document of an image. ErrForeign.
func parseDomain(text string) (*libvirtxml.Domain, error) {
	var d libvirtxml.Domain
	if err := d.Unmarshal(text); err != nil {
		return nil, foreign("its document is unreadable: %v", err)
	}
	return &d, nil
}

// cloneXML makes of the document of an image that of the machine s on h. What
// the guest sees stays, but for its generation. s must fit the image.
func cloneXML(text string, s machine.Spec, h host) (string, error) {
	d, err := parseDomain(text)
	if err != nil {
		return "", err
	}
	made := devices(s, h)
	d.Name, d.UUID, d.Metadata = s.Name, s.UUID, metadata(s)
	d.GenID = &libvirtxml.DomainGenID{Value: h.genid}
	d.OS.Kernel, d.OS.Initrd, d.OS.Cmdline = s.Kernel, s.Initrd, s.Cmdline
	d.SecLabel = nil
	d.QEMUCapabilities = withoutProbes()
	d.Devices.Emulator = h.emulator

	disk := &d.Devices.Disks[0]
	disk.Driver, disk.Source, disk.BackingStore = made.Disks[0].Driver, made.Disks[0].Source, made.Disks[0].BackingStore
	disk.Mirror, disk.IOTune = nil, nil
	serial := &d.Devices.Serials[0]
	serial.Source, serial.Log = made.Serials[0].Source, made.Serials[0].Log
	d.Devices.Consoles = nil // the serial port once more
	for i := range d.Devices.Interfaces {
		// Its link stays: whether the cable is pulled is in the guest's device, too.
		d.Devices.Interfaces[i].Source = made.Interfaces[i].Source
		d.Devices.Interfaces[i].Target = made.Interfaces[i].Target
	}
	for i := range d.Devices.Channels {
		d.Devices.Channels[i].Source = unixSocket("") // the guest agent's
	}
	return d.Marshal()
}
