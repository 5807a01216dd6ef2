package archive

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Of the header of a qcow2 file: qemu docs/interop/qcow2.txt.
const (
	qcow2Magic   = "QFI\xfb"
	externalData = 1 << 2 // incompatible feature: the guest's data are in another file
	maxBacking   = 1023   // bytes of the name of a backing file
)

// backing reads what a disk says it stands on, as written there; empty: nothing.
// What is no qcow2 file, or has its data elsewhere, is refused.
func backing(disk io.ReaderAt) (string, error) {
	var header [80]byte
	if n, err := disk.ReadAt(header[:], 0); n < 72 {
		return "", fmt.Errorf("it is no disk image: %v", err)
	}
	version := binary.BigEndian.Uint32(header[4:8])
	if string(header[:4]) != qcow2Magic || version != 2 && version != 3 {
		return "", fmt.Errorf("it is no qcow2 disk image")
	}
	if version == 3 && binary.BigEndian.Uint64(header[72:80])&externalData != 0 {
		return "", fmt.Errorf("it keeps its data in another file")
	}
	offset, size := binary.BigEndian.Uint64(header[8:16]), binary.BigEndian.Uint32(header[16:20])
	if offset == 0 {
		return "", nil
	}
	if size > maxBacking || offset > 1<<30 {
		return "", fmt.Errorf("the name of what it stands on has %d bytes, at byte %d", size, offset)
	}
	name := make([]byte, size)
	if n, err := disk.ReadAt(name, int64(offset)); n < len(name) {
		return "", fmt.Errorf("read the name of what it stands on: %v", err)
	}
	return string(name), nil
}
