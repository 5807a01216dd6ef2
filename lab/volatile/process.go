package volatile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"mesh/lab/companion"
)

// arguments start the program as the server of a configuration.
func arguments(configPath string) []string { return []string{"disks", "--config", configPath} }

// Start writes c to configPath and starts `exe disks --config configPath`, which
// outlives the caller. It returns when the disks are there. When it fails, nothing
// is left but the log and the configuration.
func Start(ctx context.Context, exe, configPath string, c Config) (companion.Process, error) {
	if err := config.Write(configPath, c); err != nil {
		return companion.Process{}, err
	}
	p, err := companion.Start(ctx, companion.Command{Exe: exe, Args: arguments(configPath), Log: c.Log})
	if err != nil {
		return p, errors.Join(fmt.Errorf("start the server of disks: %w", err), Remove(context.WithoutCancel(ctx), configPath, c))
	}
	return p, nil
}

// Remove ends the server that was started with configPath, whether its process
// is known or not, and takes away its mount, with the mount point, and its control
// socket. The log and the configuration stay. What is missing already is no
// failure, and one failure does not keep it from the rest. Whoever has a disk open
// should have ended before.
func Remove(ctx context.Context, configPath string, c Config) error {
	found, err := companion.Find(arguments(configPath)...)
	errs := []error{err}
	for _, p := range found {
		errs = append(errs, companion.End(ctx, p.PID, p.Alive))
	}
	errs = append(errs, detach(c.Mount))
	for _, path := range []string{c.Mount, c.Control} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove the server of disks: %w", err)
	}
	return nil
}

// Works tells why no server of disks can work here; nil means that the kernel
// has what it takes.
func Works() error {
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return fmt.Errorf("ask the kernel for FUSE: %w", err)
	}
	if !slices.Contains(strings.Fields(string(known)), "fuse") {
		return errors.New("the kernel has no FUSE (/proc/filesystems)")
	}
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("FUSE: %w", err)
	}
	return f.Close()
}
