// Package qcow2 reads of a disk image in QEMU's format what the lab has to know
// before anybody opens it: which file it stands on. It is pure.
package qcow2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrFormat means that something is no qcow2 image. Match with errors.Is.
var ErrFormat = errors.New("it is no qcow2 disk image")

// Of the header: qemu docs/interop/qcow2.txt.
const (
	magic        = "QFI\xfb"
	shortest     = 72     // bytes of a header of version 2
	externalData = 1 << 2 // incompatible feature: the guest's data are in another file
	maxBacking   = 1023   // bytes of the name of a backing file
	maxOffset    = 1 << 30
)

// Backing is the name of the file that an image says it stands on, as written
// there; empty for none. An image that keeps its data in another file is refused.
func Backing(disk io.ReaderAt) (string, error) {
	header := make([]byte, shortest+8)
	if n, _ := disk.ReadAt(header, 0); n < shortest {
		return "", ErrFormat
	}
	version := binary.BigEndian.Uint32(header[4:8])
	if string(header[:4]) != magic || version != 2 && version != 3 {
		return "", ErrFormat
	}
	if version == 3 && binary.BigEndian.Uint64(header[shortest:])&externalData != 0 {
		return "", errors.New("it keeps its data in another file")
	}
	offset, size := binary.BigEndian.Uint64(header[8:16]), binary.BigEndian.Uint32(header[16:20])
	if offset == 0 {
		return "", nil
	}
	if size > maxBacking || offset > maxOffset {
		return "", fmt.Errorf("its header puts the name of its backing file, of %d bytes, at byte %d", size, offset)
	}
	name := make([]byte, size)
	if n, err := disk.ReadAt(name, int64(offset)); n < len(name) {
		return "", fmt.Errorf("read the name of its backing file: %v", err)
	}
	return string(name), nil
}
