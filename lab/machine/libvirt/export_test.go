package libvirt

import (
	"context"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	rpc "github.com/digitalocean/go-libvirt"

	"mesh/lab/machine"
)

// DomainXML renders with the lab machine's part given.
func DomainXML(s machine.Spec, emulator, machineType string, backing ...string) (string, error) {
	return domainXML(s, host{emulator, machineType, backing, "6ba7b811-9dad-41d1-80b4-00c04fd430c8"})
}

// CloneXML makes an image's document another machine's.
func CloneXML(saved string, s machine.Spec, emulator string, backing ...string) (string, error) {
	return cloneXML(saved, s, host{emulator, "", backing, "6ba7b812-9dad-41d1-80b4-00c04fd430c8"})
}

// SpecOf is what an image's document tells of its machine.
func SpecOf(saved string) (machine.Spec, error) {
	d, err := parseDomain(saved)
	if err != nil {
		return machine.Spec{}, err
	}
	return specOf(d)
}

// SaveImage is what stands before the state of a memory image.
type SaveImage struct {
	Running     bool
	XML, Cookie string
}

// Header is i as bytes.
func (i SaveImage) Header() []byte {
	return saveImage{running: i.Running, xml: i.XML, cookie: i.Cookie}.header()
}

// ReadSaveImage reads the beginning of a memory image; state is where what
// follows begins.
func ReadSaveImage(r io.ReaderAt) (i SaveImage, state int64, err error) {
	s, err := readSaveImage(r)
	return SaveImage{s.running, s.xml, s.cookie}, s.state, err
}

// AddSeal seals a file.
func AddSeal(f *os.File, p machine.Platform) error { return seal{Platform: p}.add(f) }

// ReadSeal tells how long the image before the seal is.
func ReadSeal(r io.ReaderAt, size int64) (bytes int64, p machine.Platform, err error) {
	s, err := readSeal(r, size)
	return s.Bytes, s.Platform, err
}

// Parts of memory and abuse that need no daemon.
var (
	Restorable  = restorable
	Refused     = refused
	SnapshotXML = snapshotXML
	DecodePPM   = decodePPM
	LoadOf      = loadOf
)

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
	BackingChain = backingChain
)

// Open opens a session with whoever listens on a socket, and hangs up.
func Open(ctx context.Context, socket string, limit time.Duration) error {
	_, hangUp, err := connect(ctx, []string{socket}, limit)
	if err == nil {
		hangUp()
	}
	return err
}

// Loan is what is done to /dev/kvm, for any file.
func Loan(device, record string) (open func(who *syscall.Credential, gid int) (bool, error), put func() error) {
	l := loan{device, record}
	return l.open, l.close
}

// At is the hypervisor behind one socket.
func At(socket string) *Hypervisor { return &Hypervisor{sockets: []string{socket}} }

// Streams is a connection on which nothing comes of a stream after its end.
func Streams(conn net.Conn) net.Conn { return &streams{Conn: conn} }
