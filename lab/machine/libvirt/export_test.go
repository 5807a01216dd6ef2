package libvirt

import (
	"io"
	"syscall"

	rpc "github.com/digitalocean/go-libvirt"

	"mesh/lab/machine"
)

// DomainXML renders with the lab machine's part given.
func DomainXML(s machine.Spec, emulator, machineType string, backing ...string) (string, error) {
	return domainXML(s, host{emulator, machineType, backing, "6ba7b811-9dad-41d1-80b4-00c04fd430c8"})
}

// ParseLog reads a log as Wait does when the daemon announced nothing.
func ParseLog(r io.Reader) (machine.Death, error) {
	l, err := parseLog(r)
	return machine.Death{Cause: cause(machine.Unknown, l), Stderr: l.stderr, Command: l.command}, err
}

// Explained is what Create makes of an error and of the log in text.
func Explained(err error, path string, log io.Reader) (error, error) {
	l, failed := parseLog(log)
	return explained(err, path, l), failed
}

// Heard is the cause that the daemon's events tell, each a type and a detail,
// and whether the last of them was the end.
func Heard(events ...[2]int32) (seen machine.Cause, end bool) {
	seen = machine.Unknown
	for _, e := range events {
		end = heard(rpc.DomainEventLifecycleMsg{Event: e[0], Detail: e[1]}, rpc.Domain{}, &seen)
	}
	return seen, end
}

// StderrTail is stderrTail.
const StderrTail = stderrTail

// Internals whose behaviour towards processes and files is tested alone.
var (
	Terminate    = terminate
	LockHolder   = lockHolder
	Try          = try
	BackingFile  = backingFile
	BackingChain = backingChain
)

// Loan is what is done to /dev/kvm, for any file.
func Loan(device, record string) (open func(who *syscall.Credential, gid int) (bool, error), put func() error) {
	l := loan{device, record}
	return l.open, l.close
}
