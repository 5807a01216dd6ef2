package libvirt

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const (
	// maxBacking is the longest name of a backing file (qemu docs/interop/qcow2).
	maxBacking = 1023
	// maxChain bounds how many files a disk may stand on.
	maxChain = 64
)

// backingFile is the name of the file that a qcow2 file says it stands on, as
// written there; empty for none.
func backingFile(disk io.ReaderAt) (string, error) {
	var header [20]byte
	if _, err := disk.ReadAt(header[:], 0); err != nil || string(header[:4]) != "QFI\xfb" {
		return "", nil // QEMU will say so, with more reason
	}
	offset, size := binary.BigEndian.Uint64(header[8:16]), binary.BigEndian.Uint32(header[16:20])
	if offset == 0 {
		return "", nil
	}
	if size > maxBacking || offset > 1<<30 {
		return "", fmt.Errorf("its header puts the name of its backing file, of %d bytes, at byte %d", size, offset)
	}
	name := make([]byte, size)
	if _, err := disk.ReadAt(name, int64(offset)); err != nil && err != io.EOF {
		return "", fmt.Errorf("read the name of its backing file: %w", err)
	}
	return string(name), nil
}

// backingChain lists the files that a disk stands on, the nearest first.
func backingChain(disk string) ([]string, error) {
	var chain []string
	for file := disk; ; {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		next, err := backingFile(f)
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("disk %s: %w", file, err)
		}
		if next == "" {
			return chain, nil
		}
		if !filepath.IsAbs(next) {
			next = filepath.Join(filepath.Dir(file), next)
		}
		if chain = append(chain, next); len(chain) > maxChain {
			return nil, fmt.Errorf("disk %s stands on more than %d files", disk, maxChain)
		}
		file = next
	}
}
