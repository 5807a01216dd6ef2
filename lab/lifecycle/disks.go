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

// Flatten is Disks'. A conversion onto a backing file would leave out what lies
// between top and base; rebasing a copy reads it.
func (LocalDisks) Flatten(ctx context.Context, top, base, path string) error {
	from, err := filepath.Rel(filepath.Dir(path), base)
	if err != nil {
		return fmt.Errorf("make one disk of those between %s and %s: %v", top, base, err)
	}
	unfinished := path + ".new"
	for _, command := range [][]string{
		{"cp", "--sparse=always", "--reflink=auto", top, unfinished},
		{"qemu-img", "rebase", "-q", "-f", "qcow2", "-F", "qcow2", "-b", from, unfinished},
	} {
		if out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("make one disk of those between %s and %s: %s: %v: %s", top, base, command[0], err, strings.TrimSpace(string(out)))
		}
	}
	return os.Rename(unfinished, path)
}

// Repository is Disks'.
func (LocalDisks) Repository(ctx context.Context, packages, dir string) error {
	var files []string
	for _, suffix := range []string{".deb", images.LayoutSuffix} {
		some, err := filepath.Glob(filepath.Join(packages, "*"+suffix))
		if err != nil {
			return fmt.Errorf("list packages of %s: %v", packages, err)
		}
		files = append(files, some...)
	}
	return images.Repository(ctx, files, dir)
}
