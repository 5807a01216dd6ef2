package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/volatile"
	"mesh/lab/world"
)

// newDisks is the process that serves the disks of one scenario, so that a power
// cut loses what a machine did not flush. People have no use for it.
func newDisks() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:    "disks --config FILE",
		Short:  "Serve the disks of one raised scenario",
		Hidden: true,
		Args:   cli.UsageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if path == "" {
				return cli.WithCode(cli.Usage, errors.New("--config is missing; it names the configuration of the disks"))
			}
			config, err := volatile.ReadConfig(path)
			if err != nil {
				return cli.WithCode(cli.Usage, err)
			}
			return volatile.Serve(c.Context(), config, c.OutOrStdout())
		},
	}
	c.Flags().StringVar(&path, "config", "", "configuration, as JSON")
	return c
}

// realVolatile serves disks by a process of this very program.
type realVolatile struct{}

// disksConfig is where the configuration of such a process is: beside its log.
func disksConfig(c volatile.Config) string { return filepath.Join(filepath.Dir(c.Log), "disks.json") }

func (realVolatile) Start(ctx context.Context, c volatile.Config) (world.Process, error) {
	if err := volatile.Works(); err != nil {
		return world.Process{}, err
	}
	exe, err := os.Executable()
	if err != nil {
		return world.Process{}, fmt.Errorf("find this program: %w", err)
	}
	return volatile.Start(ctx, exe, disksConfig(c), c)
}

func (realVolatile) Remove(ctx context.Context, c volatile.Config) error {
	return volatile.Remove(ctx, disksConfig(c), c)
}

func (realVolatile) Status(ctx context.Context, c volatile.Config) (volatile.Status, error) {
	return volatile.NewClient(c.Control).Status(ctx)
}
