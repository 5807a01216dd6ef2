package main

import (
	"errors"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/world"
)

// newWorld is the process that a raise leaves behind for each scenario. People
// have no use for it.
func newWorld() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:    "world --config FILE",
		Short:  "Be the outside of one raised scenario",
		Hidden: true,
		Args:   cli.UsageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if path == "" {
				return cli.WithCode(cli.Usage, errors.New("--config is missing; it names the world's configuration"))
			}
			config, err := world.ReadConfig(path)
			if err != nil {
				return cli.WithCode(cli.Usage, err)
			}
			return world.Serve(c.Context(), config, c.OutOrStdout())
		},
	}
	c.Flags().StringVar(&path, "config", "", "configuration, as JSON")
	return c
}
