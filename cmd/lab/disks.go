package main

import (
	"errors"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/volatile"
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
