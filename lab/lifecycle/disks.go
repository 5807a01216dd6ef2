package lifecycle

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"mesh/lab/images"
)

// LocalDisks makes disks with qemu-img and repositories with apt's tools.
type LocalDisks struct{}

// Overlay is Disks'.
func (LocalDisks) Overlay(ctx context.Context, base, path string) error {
	from, err := filepath.Rel(filepath.Dir(path), base)
	if err != nil {
		return fmt.Errorf("make disk %s over %s: %v", path, base, err)
	}
	unfinished := path + ".new"
	cmd := exec.CommandContext(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", from, unfinished)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make disk %s over %s: %v: %s", path, base, err, strings.TrimSpace(string(out)))
	}
	return os.Rename(unfinished, path)
}

// Repository is Disks'.
func (LocalDisks) Repository(ctx context.Context, debs, dir string) error {
	files, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil {
		return fmt.Errorf("list packages of %s: %v", debs, err)
	}
	return images.Repository(ctx, files, dir)
}
