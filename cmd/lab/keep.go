package main

import (
	"os"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/companion"
)

// newKeep is the process that keeps the hypervisor's daemon, so that machines end
// at once. People have no use for it.
func newKeep() *cobra.Command {
	return &cobra.Command{
		Use:    "keep -- PROGRAM ARGUMENT...",
		Short:  "Start a daemon and reap what it leaves",
		Hidden: true,
		Args:   cli.UsageArgs(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			return companion.Keep(c.Context(), c.OutOrStdout(), os.Stderr, args[0], args[1:]...)
		},
	}
}
