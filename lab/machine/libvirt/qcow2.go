package libvirt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"mesh/lab/machine/qcow2"
)

// maxChain bounds how many files a disk may stand on.
const maxChain = 64

// backingChain lists the files that a disk stands on, the nearest first.
func backingChain(disk string) ([]string, error) {
	var chain []string
	for file := disk; ; {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		next, err := qcow2.Backing(f)
		_ = f.Close()
		if err != nil && !errors.Is(err, qcow2.ErrFormat) { // QEMU will say that, with more reason
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
