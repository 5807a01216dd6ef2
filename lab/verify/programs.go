package verify

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// diskImages makes a qcow2 file and reads it back.
var diskImages = check{
	name: "disk images",
	do: func(ctx context.Context) (string, error) {
		return inTemp(func(dir string) (string, error) {
			disk := filepath.Join(dir, "disk.qcow2")
			if _, err := run(ctx, "qemu-img", "create", "-q", "-f", "qcow2", disk, "1M"); err != nil {
				return "", err
			}
			text, err := run(ctx, "qemu-img", "info", "--output=json", disk)
			if err != nil {
				return "", err
			}
			var info struct {
				Format string `json:"format"`
				Size   int64  `json:"virtual-size"`
			}
			if err := json.Unmarshal([]byte(text), &info); err != nil {
				return "", fmt.Errorf("read what qemu-img says of a disk: %w", err)
			}
			if info.Format != "qcow2" || info.Size != 1<<20 {
				return "", fmt.Errorf("qemu-img made a disk of format %q and %d bytes, not qcow2 and 1 MiB", info.Format, info.Size)
			}
			return "qemu-img made a qcow2 disk", nil
		})
	},
	remedy: "apt-get install --no-install-recommends qemu-utils",
}

// fileSystems makes a file system out of a directory.
var fileSystems = check{
	name: "file systems",
	do: func(ctx context.Context) (string, error) {
		return inTemp(func(dir string) (string, error) {
			tree, disk := filepath.Join(dir, "tree"), filepath.Join(dir, "disk")
			if err := errors.Join(os.Mkdir(tree, 0o755), os.WriteFile(filepath.Join(tree, "file"), []byte("x"), 0o644)); err != nil {
				return "", err
			}
			if _, err := run(ctx, "mke2fs", "-q", "-t", "ext4", "-d", tree, disk, "4M"); err != nil {
				return "", err
			}
			made, err := os.ReadFile(disk)
			if err != nil {
				return "", err
			}
			// The superblock's magic: kernel docs filesystems/ext4/super.
			const at, magic = 1024 + 56, 0xef53
			if len(made) < at+2 || binary.LittleEndian.Uint16(made[at:]) != magic {
				return "", errors.New("mke2fs made something that is not ext4")
			}
			return "mke2fs made an ext4 file system of a directory", nil
		})
	},
	remedy: "apt-get install --no-install-recommends e2fsprogs",
}

// bootstrap makes a system out of an empty repository, without any network.
var bootstrap = check{
	name: "image bootstrap",
	do: func(ctx context.Context) (string, error) {
		return inTemp(func(dir string) (string, error) {
			repository, system := filepath.Join(dir, "repository"), filepath.Join(dir, "system")
			if err := errors.Join(os.Mkdir(repository, 0o755), os.WriteFile(filepath.Join(repository, "Packages"), nil, 0o644)); err != nil {
				return "", err
			}
			_, err := run(ctx, "mmdebstrap", "--quiet", "--mode=root", "--format=directory", "--variant=custom",
				"", system, "deb [trusted=yes] copy:"+repository+" ./")
			if err != nil {
				return "", err
			}
			if _, err := os.Stat(filepath.Join(system, "dev")); err != nil {
				return "", fmt.Errorf("mmdebstrap left no system: %w", err)
			}
			return "mmdebstrap made an empty system", nil
		})
	},
	remedy: "apt-get install --no-install-recommends mmdebstrap zstd",
}

// inTemp calls f with a directory that is removed afterwards. Others may enter
// it: apt and QEMU run as users of their own.
func inTemp(f func(dir string) (string, error)) (string, error) {
	name, err := prefix()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", name)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	return f(dir)
}

// run gives what a program prints; its error holds what it complains of.
func run(ctx context.Context, program string, args ...string) (string, error) {
	return runInput(ctx, "", program, args...)
}

func runInput(ctx context.Context, stdin, program string, args ...string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		if path, err = exec.LookPath(filepath.Join("/usr/sbin", program)); err != nil {
			return "", fmt.Errorf("%s is not installed", program)
		}
	}
	var out, complaint strings.Builder
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &complaint
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return "", fmt.Errorf("%s: %w: %s", program, err, oneLine(complaint.String()))
	}
	return out.String(), nil
}

// oneLine is the first lines of a text that fit into one of a table.
func oneLine(text string) string {
	const most = 240
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + " …"
	}
	return text
}
