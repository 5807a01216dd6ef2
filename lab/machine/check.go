package machine

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// Limits that the kernel sets.
const (
	maxLink   = 15  // bytes of a link's name: IFNAMSIZ - 1, linux/if.h
	maxSocket = 107 // bytes of a UNIX socket's path: sun_path less its NUL, unix(7)
)

var (
	nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)
	uuidForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	runForm  = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)
	macForm  = regexp.MustCompile(`^[0-9a-f][02468ace](:[0-9a-f]{2}){5}$`)
	linkForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)
)

// Check reports every problem of s that needs no look at the lab machine, one
// a line, or nil.
func (s Spec) Check() error {
	var problems []error
	wrong := func(field, format string, args ...any) {
		problems = append(problems, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
	}
	if !nameForm.MatchString(s.Name) {
		wrong("name", "%q is not a letter or digit followed by at most 127 of A-Z a-z 0-9 _ . -", s.Name)
	}
	if !uuidForm.MatchString(s.UUID) {
		wrong("uuid", "%q is not a UUID in lower case", s.UUID)
	}
	if !runForm.MatchString(s.Run) {
		wrong("run", "%q is not 1 to 64 of A-Z a-z 0-9 -", s.Run)
	}
	if s.Accelerator != KVM && s.Accelerator != TCG {
		wrong("accelerator", "%q is neither %q nor %q", s.Accelerator, KVM, TCG)
	}
	if s.MemoryBytes < 1<<20 || s.MemoryBytes%(1<<10) != 0 {
		wrong("memory_bytes", "%d is not a multiple of 1 KiB, 1 MiB or more", s.MemoryBytes)
	}
	if s.CPUs < 1 {
		wrong("cpus", "%d is less than one", s.CPUs)
	}
	s.checkPaths(wrong)
	s.checkNICs(wrong)
	return errors.Join(problems...)
}

func (s Spec) checkPaths(wrong func(field, format string, args ...any)) {
	paths := []struct {
		field, file string
		optional    bool
	}{
		{"disk", s.Disk, false},
		{"kernel", s.Kernel, true},
		{"initrd", s.Initrd, true},
		{"console_log", s.ConsoleLog, false},
		{"console_socket", s.ConsoleSock, false},
	}
	for _, p := range paths {
		if !path.IsAbs(p.file) && !(p.optional && p.file == "") {
			wrong(p.field, "%q is not an absolute path", p.file)
		}
	}
	if len(s.ConsoleSock) > maxSocket {
		wrong("console_socket", "the path has %d bytes, a UNIX socket's has at most %d; use a shorter runtime directory", len(s.ConsoleSock), maxSocket)
	}
	if s.Kernel == "" && (s.Initrd != "" || s.Cmdline != "") {
		wrong("kernel", "is empty, so initrd and cmdline must be empty too")
	}
	if strings.ContainsAny(s.Cmdline, "\x00\n") {
		wrong("cmdline", "holds a NUL or a line end")
	}
}

func (s Spec) checkNICs(wrong func(field, format string, args ...any)) {
	macs, taps := map[string]int{}, map[string]int{}
	for i, n := range s.NICs {
		field := fmt.Sprintf("nics[%d]", i)
		n.check(field, wrong)
		if other, taken := macs[n.MAC]; taken {
			wrong(field+".mac", "%q is also the address of nics[%d]", n.MAC, other)
		}
		if other, taken := taps[n.Tap]; taken {
			wrong(field+".tap", "%q is also the tap of nics[%d]", n.Tap, other)
		}
		macs[n.MAC], taps[n.Tap] = i, i
	}
}

// Check reports every problem of n, one a line, or nil.
func (n NIC) Check() error {
	var problems []error
	n.check("nic", func(field, format string, args ...any) {
		problems = append(problems, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
	})
	return errors.Join(problems...)
}

func (n NIC) check(field string, wrong func(field, format string, args ...any)) {
	if !macForm.MatchString(n.MAC) {
		wrong(field+".mac", "%q is not a machine's Ethernet address in lower case", n.MAC)
	}
	if len(n.Tap) > maxLink || !linkForm.MatchString(n.Tap) {
		wrong(field+".tap", "%q is not a link name of 1 to %d bytes", n.Tap, maxLink)
	}
}
