package images

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Indexes are the files of a repository that a machine's apt keeps.
var Indexes = []string{"Packages", "Release"}

// repositoryHost is what machines know the world's repositories by; the hook
// apt.sh names it too.
const repositoryHost = "packages.world.test"

// ListFile is where a machine's apt keeps an index of the flat repository
// http://HOST/NAME/ ./ once it has fetched it.
func ListFile(host, name, index string) string {
	return "/var/lib/apt/lists/" + host + "_" + name + "_._" + index
}

// Repository makes dir a flat apt repository of exactly the given .deb files
// (paths), unsigned, for a source line with trusted=yes, with the container images
// among the files (LayoutSuffix) in it by their digests. Those who read the old
// one while it is replaced see the old or the new, never a mixture. A
// repository that already holds exactly these is left alone. Without
// apt-ftparchive the error has exit code 4.
func Repository(ctx context.Context, files []string, dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("make repository %s: %v", dir, err)
	}
	next, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+"-")
	if err != nil {
		return fmt.Errorf("make repository %s: %v", dir, err)
	}
	defer os.RemoveAll(next) // after the exchange this is the old one
	if err := fill(ctx, files, next); err != nil {
		return fmt.Errorf("make repository %s: %w", dir, err)
	}
	if sameRepository(dir, next) {
		return nil
	}
	err = unix.Renameat2(unix.AT_FDCWD, next, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.Rename(next, dir)
	}
	if err != nil {
		return fmt.Errorf("make repository %s: put it in place: %v", dir, err)
	}
	return syncDirectory(filepath.Dir(dir))
}

// fill puts packages, their indexes and images into the empty directory dir.
func fill(ctx context.Context, files []string, dir string) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	for _, file := range files {
		if strings.HasSuffix(file, LayoutSuffix) {
			if err := unpack(file, dir); err != nil {
				return fmt.Errorf("add image: %v", err)
			}
			continue
		}
		if err := place(file, filepath.Join(dir, filepath.Base(file))); err != nil {
			return fmt.Errorf("add package: %v", err)
		}
	}
	packages, err := ftparchive(ctx, dir, "packages", ".")
	if err != nil {
		return err
	}
	var compressed bytes.Buffer
	z := gzip.NewWriter(&compressed)
	if _, err := z.Write(packages); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	if err := writeSynced(filepath.Join(dir, "Packages"), bytes.NewReader(packages)); err != nil {
		return err
	}
	if err := writeSynced(filepath.Join(dir, "Packages.gz"), &compressed); err != nil {
		return err
	}
	release, err := ftparchive(ctx, dir, "release", ".")
	if err != nil {
		return err
	}
	if err := writeSynced(filepath.Join(dir, "Release"), bytes.NewReader(release)); err != nil {
		return err
	}
	return syncDirectory(dir)
}

// ftparchive runs apt-ftparchive in dir and returns what it says.
func ftparchive(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "apt-ftparchive", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, missing("apt-ftparchive")
	}
	if err != nil {
		return nil, fmt.Errorf("apt-ftparchive %s: %v: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

// sameRepository compares packages by the checksums in the indexes.
func sameRepository(a, b string) bool {
	old, err := os.ReadFile(filepath.Join(a, "Packages"))
	if err != nil {
		return false
	}
	other, err := os.ReadFile(filepath.Join(b, "Packages"))
	if err != nil || !bytes.Equal(old, other) {
		return false
	}
	return slices.Equal(names(a), names(b))
}

// names lists a directory; an unreadable one has none.
func names(dir string) []string {
	entries, _ := os.ReadDir(dir)
	all := make([]string, len(entries))
	for i, e := range entries {
		all[i] = e.Name()
	}
	return all
}

// place copies a file as writeSynced does.
func place(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return writeSynced(to, in)
}

// writeSynced writes a new file that is on disk when it returns, and readable
// by everybody whatever the umask: machines run as another user.
func writeSynced(path string, content io.Reader) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, content); err != nil {
		f.Close()
		return err
	}
	return errors.Join(f.Chmod(0o644), f.Sync(), f.Close())
}

// syncDirectory makes the names in a directory survive a power cut.
func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
