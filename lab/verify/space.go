package verify

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	gib = 1 << 30
	// imageSpace is what the build of an image takes while it goes on, and
	// raiseSpace what two machines write.
	imageSpace = 5 * gib
	raiseSpace = 2 * gib
	// raiseMemory is what two machines of 512 MiB take, emulated.
	raiseMemory = 3 * gib / 2
)

// memory reads how much can be had without swapping.
var memory = check{
	name: "memory",
	do: func(context.Context) (string, error) {
		f, err := os.Open("/proc/meminfo")
		if err != nil {
			return "", err
		}
		defer f.Close()
		free, err := available(f)
		if err != nil {
			return "", err
		}
		if free < raiseMemory {
			return "", fmt.Errorf("%s can be had, two machines take %s", human(free), human(raiseMemory))
		}
		return human(free) + " can be had", nil
	},
	remedy: "end something large, destroy a scenario (lab list), or declare machines with less memory",
}

// available finds MemAvailable, proc_meminfo(5), in bytes.
func available(meminfo io.Reader) (int64, error) {
	for lines := bufio.NewScanner(meminfo); lines.Scan(); {
		word := strings.Fields(lines.Text())
		if len(word) == 3 && word[0] == "MemAvailable:" && word[2] == "kB" {
			kib, err := strconv.ParseInt(word[1], 10, 53)
			return kib << 10, err
		}
	}
	return 0, errors.New("/proc/meminfo does not say what memory is available")
}

// storeSpace writes a little where the store is, or is to be, and reads what is left.
func storeSpace(cfg Config) check {
	return check{
		name: "disk space",
		do: func(context.Context) (string, error) {
			dir, err := nearest(cfg.Store)
			if err != nil {
				return "", err
			}
			if err := writable(dir); err != nil {
				return "", err
			}
			var s unix.Statfs_t
			if err := unix.Statfs(dir, &s); err != nil {
				return "", fmt.Errorf("look at the file system of %s: %w", dir, err)
			}
			free := int64(s.Bavail) * s.Bsize
			switch {
			case free < raiseSpace:
				return "", fmt.Errorf("%s free for %s: raising takes %s, building an image %s", human(free), cfg.Store, human(raiseSpace), human(imageSpace))
			case free < imageSpace:
				return fmt.Sprintf("%s free for %s: enough to raise, not to build an image (%s)", human(free), cfg.Store, human(imageSpace)), nil
			}
			return fmt.Sprintf("%s free for %s", human(free), cfg.Store), nil
		},
		remedy: "make room there (lab image list, lab list), or keep the store elsewhere: --store DIR",
	}
}

// nearest is dir, or of its parents the first that exists.
func nearest(dir string) (string, error) {
	for {
		info, err := os.Stat(dir)
		switch {
		case err == nil && info.IsDir():
			return dir, nil
		case err == nil:
			return "", fmt.Errorf("%s is not a directory", dir)
		case !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir):
			return "", err
		}
		dir = filepath.Dir(dir)
	}
}

// writable writes a file in dir down to the disk, and removes it.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".mesh-lab-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(make([]byte, 64<<10))
	return errors.Join(err, f.Sync(), f.Close())
}

func human(bytes int64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/gib) }
