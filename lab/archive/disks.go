package archive

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"mesh/lab/machine/qcow2"
)

// Disks looks at and changes what a disk says it stands on.
type Disks interface {
	// Backing is the name of what a disk stands on, as written in it; empty:
	// nothing. What is no disk, or keeps its data elsewhere, is an error.
	Backing(path string) (string, error)
	// Rebase writes another name there, and nothing else; what it names is not
	// looked at.
	Rebase(ctx context.Context, path, name string) error
}

// Qcow2 is Disks of qcow2 files.
type Qcow2 struct{}

// Backing is Disks'.
func (Qcow2) Backing(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return qcow2.Backing(f)
}

// Rebase is Disks'.
func (Qcow2) Rebase(ctx context.Context, path, name string) error {
	cmd := exec.CommandContext(ctx, "qemu-img", "rebase", "-q", "-u", "-f", "qcow2", "-F", "qcow2", "-b", name, path)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("qemu-img rebase: %v: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
