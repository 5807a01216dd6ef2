package systemtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ShutdownFlag says what ext4 still writes when it is cut off its disk.
// https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/fs/ext4/ext4.h, EXT4_GOING_FLAGS
type ShutdownFlag uint32

// The flags: everything, its journal but no data, nothing.
const (
	ShutdownDefault    ShutdownFlag = 0
	ShutdownLogFlush   ShutdownFlag = 1
	ShutdownNoLogFlush ShutdownFlag = 2
)

func (f ShutdownFlag) String() string {
	return map[ShutdownFlag]string{ShutdownDefault: "default", ShutdownLogFlush: "logflush", ShutdownNoLogFlush: "nologflush"}[f]
}

// https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/include/uapi/linux/ext4.h
const ext4Shutdown = 0x8004587d // EXT4_IOC_SHUTDOWN, _IOR('X', 125, __u32)

// SmallExt4 is enough for the state of a host and little else, in bytes.
const SmallExt4 = 6 << 20

// MakeExt4 makes a file with an empty file system in it.
func MakeExt4(image string, size int64) error {
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(image, size); err != nil {
		return err
	}
	out, err := exec.Command("mkfs.ext4", "-q", "-F", "-b", "1024", "-J", fmt.Sprintf("size=%d", max(1, size>>24)), "-O", "^resize_inode", image).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mkfs.ext4: %w: %s", err, out)
	}
	return nil
}

// Ext4 is a file system that is mounted.
type Ext4 struct{ at string }

// MountExt4 mounts what is in image, by a loop device that goes with the mount.
func MountExt4(image, at string) (*Ext4, error) {
	file, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	loop, err := attach(file)
	if err != nil {
		return nil, err
	}
	defer loop.Close()
	if err := unix.Mount(loop.Name(), at, "ext4", unix.MS_NOATIME, ""); err != nil {
		return nil, fmt.Errorf("mount %s: %w", loop.Name(), err)
	}
	if err := os.Remove(at + "/lost+found"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, errors.Join(err, unix.Unmount(at, unix.MNT_DETACH))
	}
	return &Ext4{at: at}, nil
}

// attach finds a loop device for the file; somebody else may take it first.
func attach(file *os.File) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	for range 100 {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		loop, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(file.Fd())}
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &config)
		if err == nil {
			return loop, nil
		}
		_ = loop.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("set up %s: %w", loop.Name(), err)
		}
	}
	return nil, errors.New("every loop device is taken")
}

// Shutdown cuts the file system off its disk: what is not there yet is lost.
func (e *Ext4) Shutdown(flag ShutdownFlag) error {
	dir, err := os.Open(e.at)
	if err != nil {
		return err
	}
	defer dir.Close()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), ext4Shutdown, uintptr(unsafe.Pointer(&flag))); errno != 0 {
		return fmt.Errorf("shut down %s: %w", e.at, errno)
	}
	return nil
}

// unmountLimit is how long something on a file system may still be open that is
// about to be closed.
const unmountLimit = 10 * time.Second

// Unmount ends the mount and its loop device. Nothing on it may be open in this
// process. A process that this one starts has everything open that this one has,
// until its program begins, which the kernel tells nobody of: it lets this one go on
// (execve(2), vfork(2)) before it closes what the program is not to have.
func (e *Ext4) Unmount() error {
	err := unix.Unmount(e.at, 0)
	for begun := time.Now(); errors.Is(err, unix.EBUSY) && time.Since(begun) < unmountLimit; {
		time.Sleep(time.Millisecond)
		err = unix.Unmount(e.at, 0)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("unmount %s: %w", e.at, err), unix.Unmount(e.at, unix.MNT_DETACH))
	}
	return nil
}
