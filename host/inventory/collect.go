package inventory

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mesh/host/declaration"
)

// CollectProfile reads what the machine below fsys (rooted at "/") can run.
// What is not there is left empty, but for the kernel's release, without which
// /proc is not what it should be.
func CollectProfile(fsys fs.FS, hostVersion, goarch string) (Profile, error) {
	kernel, err := word(fsys, "proc/sys/kernel/osrelease")
	if err != nil {
		return Profile{}, fmt.Errorf("collect profile: %v", err)
	}
	p := Profile{
		HostVersion:  hostVersion,
		Formats:      declaration.Formats(),
		Architecture: goarch,
		Kernel:       kernel,
	}
	for _, k := range declaration.Kinds() {
		p.Kinds = append(p.Kinds, string(k))
	}
	p.OS, p.OSVersion, err = osRelease(fsys)
	if err != nil {
		return Profile{}, fmt.Errorf("collect profile: %v", err)
	}
	// https://www.freedesktop.org/software/systemd/man/sd_booted.html
	if info, err := fs.Stat(fsys, "run/systemd/system"); err == nil {
		p.Systemd = info.IsDir()
	}
	if p.Systemd && slices.ContainsFunc(generators, func(name string) bool {
		_, err := fs.Stat(fsys, name)
		return err == nil
	}) {
		p.Capabilities = []string{CapabilityContainers}
	}
	return p, nil
}

// generators are where podman's generator of units can be.
// https://www.freedesktop.org/software/systemd/man/systemd.generator.html
var generators = []string{
	"etc/systemd/system-generators/podman-system-generator",
	"usr/local/lib/systemd/system-generators/podman-system-generator",
	"usr/lib/systemd/system-generators/podman-system-generator",
}

var machineID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// Collect reads what the machine below fsys (rooted at "/") has. The interfaces
// are copied, sorted and stripped of loopback and link-local addresses.
func Collect(fsys fs.FS, interfaces []Interface) (Inventory, error) {
	var inv Inventory
	var err error
	if inv.MachineID, err = word(fsys, "etc/machine-id"); err != nil {
		return Inventory{}, fmt.Errorf("collect inventory: %v", err)
	}
	if !machineID.MatchString(inv.MachineID) {
		return Inventory{}, errors.New("collect inventory: /etc/machine-id does not hold 32 hex digits; make one with `systemd-machine-id-setup`")
	}
	if inv.Hostname, err = word(fsys, "proc/sys/kernel/hostname"); err != nil {
		return Inventory{}, fmt.Errorf("collect inventory: %v", err)
	}
	if inv.CPUs, err = cpus(fsys); err != nil {
		return Inventory{}, fmt.Errorf("collect inventory: %v", err)
	}
	if inv.MemoryBytes, err = memory(fsys); err != nil {
		return Inventory{}, fmt.Errorf("collect inventory: %v", err)
	}
	inv.Interfaces = tidy(interfaces)
	return inv, nil
}

// word is a file's content without the white space around it.
func word(fsys fs.FS, name string) (string, error) {
	b, err := fs.ReadFile(fsys, name)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(b)), nil
}

// osRelease reads os-release(5) from the first place that has one.
func osRelease(fsys fs.FS) (id, version string, err error) {
	for _, name := range []string{"etc/os-release", "usr/lib/os-release"} {
		b, err := fs.ReadFile(fsys, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", "", err
		}
		for line := range bytes.Lines(b) {
			key, value, _ := strings.Cut(strings.TrimSpace(string(line)), "=")
			value = strings.Trim(value, `"'`)
			switch key {
			case "ID":
				id = value
			case "VERSION_ID":
				version = value
			}
		}
		return id, version, nil
	}
	return "", "", nil
}

// cpus counts the processors that are online, from a list like "0-3,5".
// https://docs.kernel.org/admin-guide/cputopology.html
func cpus(fsys fs.FS) (int, error) {
	const name = "sys/devices/system/cpu/online"
	list, err := word(fsys, name)
	if err != nil {
		return 0, err
	}
	total := 0
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, err1 := strconv.ParseUint(low, 10, 16)
		to, err2 := strconv.ParseUint(high, 10, 16)
		if err1 != nil || err2 != nil || to < from {
			return 0, fmt.Errorf("read /%s: %q is not a list of processors", name, list)
		}
		total += int(to-from) + 1
	}
	return total, nil
}

// memory is MemTotal of /proc/meminfo, proc_meminfo(5).
func memory(fsys fs.FS) (int64, error) {
	const name = "proc/meminfo"
	b, err := fs.ReadFile(fsys, name)
	if err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[0] == "MemTotal:" && fields[2] == "kB" {
			if kib, err := strconv.ParseInt(fields[1], 10, 53); err == nil {
				return kib << 10, nil
			}
		}
	}
	return 0, fmt.Errorf("read /%s: it has no line MemTotal", name)
}

// tidy gives the interfaces in the one order of the contract.
func tidy(interfaces []Interface) []Interface {
	out := []Interface{}
	for _, i := range interfaces {
		if i.Name == "lo" {
			continue
		}
		kept := Interface{Name: i.Name, MAC: i.MAC}
		for _, p := range i.Addresses {
			if !p.Addr().IsLinkLocalUnicast() && !p.Addr().IsLoopback() {
				kept.Addresses = append(kept.Addresses, p)
			}
		}
		slices.SortFunc(kept.Addresses, comparePrefix)
		out = append(out, kept)
	}
	slices.SortFunc(out, func(a, b Interface) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// comparePrefix puts IPv4 before IPv6; netip orders families by length.
func comparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}
