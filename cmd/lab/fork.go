package main

import (
	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/snapshot"
)

func newFork(a *app) *cobra.Command {
	var o snapshot.ForkOptions
	var asJSON bool
	c := &cobra.Command{
		Use:   "fork NAME [SNAPSHOT]",
		Short: "Make a second running copy of a scenario, beside it",
		Long: `Make a second running copy of a scenario, beside it, with the same addresses
inside: from a snapshot, or from how the scenario is now. In the latter case it
pauses for as long as a snapshot takes and runs on; no snapshot stays. Take one
first to be able to come back (lab snapshot take).

The copy is called NAME-2, NAME-3, … unless told otherwise, has a world of its
own (see lab restore --as), and is destroyed like any other.`,
		Example: `  lab fork trio                        trio-2, from now
  lab fork trio enrolled --as try      from a snapshot`,
		Args:              cli.UsageArgs(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: a.completeSnapshot(2),
	}
	frozen := clockFlag(c)
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		o.Scenario, o.Snapshot = args[0], append(args, "")[1]
		if o.Frozen, err = frozen(); err != nil {
			return err
		}
		r, err := a.snapshots().Fork(c.Context(), o)
		return a.showRestored(r, err, asJSON)
	}
	c.Flags().StringVar(&o.As, "as", "", "the copy's name (default: NAME with a number)")
	c.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	return c
}
