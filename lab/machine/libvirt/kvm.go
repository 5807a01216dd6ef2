package libvirt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strconv"
	"syscall"
)

// The device for KVM, and how udev makes it: without udev (in a container) it
// often belongs to root alone. Then no machine can use it, since libvirt runs
// them as qemuUser; worse, libvirt itself, which looks at what QEMU can do as
// root and at the device as that user, distrusts what it found each time anew
// and takes half a minute for every question. So the lab gives the device its
// usual group and mode while its own daemon runs, and its old ones afterwards.
const (
	kvmDev   = "/dev/kvm"
	kvmGroup = "kvm"
	kvmMode  = 0o660
)

// owner is what is put back.
type owner struct {
	Mode fs.FileMode `json:"mode"` // permissions only
	UID  int         `json:"uid"`
	GID  int         `json:"gid"`
}

// openKVM lets machines use the device; it does nothing where they can, where
// there is none, and where its group is unknown.
func (d *Daemon) openKVM() error {
	group, err := user.LookupGroup(kvmGroup)
	if err != nil {
		return nil
	}
	gid, err := strconv.Atoi(group.Gid)
	if err != nil {
		return fmt.Errorf("group %s: %w", kvmGroup, err)
	}
	changed, err := d.kvm().open(machineUser(), gid)
	if changed {
		d.log.Info("opened to machines while the daemon runs", "device", kvmDev, "group", kvmGroup)
	}
	return err
}

// closeKVM puts back what openKVM changed, if anything.
func (d *Daemon) closeKVM() error { return d.kvm().close() }

func (d *Daemon) kvm() loan { return loan{kvmDev, d.path("kvm.json")} }

// loan is a device whose owner is changed for a while; record is the file that
// says what it was.
type loan struct{ device, record string }

// open gives the device a group and kvmMode, unless who can use it already.
func (l loan) open(who *syscall.Credential, gid int) (changed bool, err error) {
	is, err := ownerOf(l.device)
	if errors.Is(err, fs.ErrNotExist) || err == nil && is.lets(who) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	text, err := json.Marshal(is)
	if err != nil {
		return false, err
	}
	if err := writeFile(l.record, text); err != nil {
		return false, err
	}
	return true, setOwner(l.device, owner{kvmMode, is.UID, gid})
}

// close puts back what a record says; no record is success.
func (l loan) close() error {
	text, err := os.ReadFile(l.record)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var was owner
	if err := json.Unmarshal(text, &was); err != nil {
		return fmt.Errorf("read %s, which says how %s was: %w; put it right by hand and remove the file", l.record, l.device, err)
	}
	if err := setOwner(l.device, was); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Remove(l.record)
}

// lets tells whether that user may read and write; nil is the caller, who may.
func (o owner) lets(c *syscall.Credential) bool {
	switch {
	case c == nil:
		return true
	case int(c.Uid) == o.UID:
		return o.Mode&0o600 == 0o600
	case int(c.Gid) == o.GID || slices.Contains(c.Groups, uint32(o.GID)):
		return o.Mode&0o060 == 0o060
	}
	return o.Mode&0o006 == 0o006
}

func ownerOf(path string) (owner, error) {
	info, err := os.Stat(path)
	if err != nil {
		return owner{}, err
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return owner{}, fmt.Errorf("%s: its owner is unknown", path)
	}
	return owner{info.Mode().Perm(), int(s.Uid), int(s.Gid)}, nil
}

func setOwner(path string, o owner) error {
	return errors.Join(os.Chown(path, o.UID, o.GID), os.Chmod(path, o.Mode))
}
