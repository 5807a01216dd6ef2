package libvirt

import (
	"io"

	"mesh/lab/machine"
)

// DomainXML renders with the lab machine's part given.
func DomainXML(s machine.Spec, emulator, machineType string) (string, error) {
	return domainXML(s, host{emulator, machineType})
}

// ParseLog is parseLog.
func ParseLog(r io.Reader) (command, stderr string, cause machine.Cause, err error) {
	l, err := parseLog(r)
	return l.command, l.stderr, l.cause, err
}

// StderrTail is stderrTail.
const StderrTail = stderrTail
