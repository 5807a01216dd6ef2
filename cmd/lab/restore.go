package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/snapshot"
)

// clocks are what guests' wall clocks can be after a restore.
var clocks = []string{"host", "frozen"}

// clockFlag adds the flag for it, and gives what tells whether it says frozen.
func clockFlag(c *cobra.Command) func() (bool, error) {
	clock := c.Flags().String("clock", clocks[0], `host: set to this machine's clock before a machine meets anybody; frozen: left as it was`)
	_ = c.RegisterFlagCompletionFunc("clock", cobra.FixedCompletions(clocks, cobra.ShellCompDirectiveNoFileComp))
	return func() (bool, error) {
		if *clock != "host" && *clock != "frozen" {
			return false, cli.WithCode(cli.Usage, fmt.Errorf("--clock %s: it is %s", *clock, strings.Join(clocks, " or ")))
		}
		return *clock == "frozen", nil
	}
}

func newRestore(a *app) *cobra.Command {
	var o snapshot.RestoreOptions
	var asJSON bool
	c := &cobra.Command{
		Use:   "restore NAME SNAPSHOT",
		Short: "Go back to a snapshot, or raise another scenario from it",
		Long: `Go back to a snapshot: memory, disks, world and faults are as they were, and the
machines run on from there. What ran in its place is ended, and what it wrote
since is lost unless it is in another snapshot. A scenario that was destroyed is
raised again.

The first thing that happens in each machine is that its clock is set (--clock)
and its random numbers become its own; until then it is joined to no network.
Time that only counts up goes on from where it was.

With --as it is another scenario beside the first, with the same addresses
inside. Its world is a new one, whose issuer has a new root: machines are made
to trust it, and certificates that were issued before are not trusted any more.`,
		Example: `  lab restore trio enrolled
  lab restore trio enrolled --as try   beside it
  lab restore trio enrolled --machine two
  lab restore trio enrolled --clock frozen`,
		Args:              cli.UsageArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: a.completeSnapshot(2),
	}
	frozen := clockFlag(c)
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		o.Scenario, o.Snapshot = args[0], args[1]
		if o.Frozen, err = frozen(); err != nil {
			return err
		}
		r, err := a.snapshots().Restore(c.Context(), o)
		return a.showRestored(r, err, asJSON)
	}
	c.Flags().StringVar(&o.As, "as", "", "restore as another scenario, beside the first")
	c.Flags().StringVar(&o.Machine, "machine", "", "restore this machine only, in its place")
	c.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	return c
}

func (a *app) showRestored(r snapshot.Restored, err error, asJSON bool) error {
	if err != nil {
		return err
	}
	if asJSON {
		return cli.JSON(a.Out, r)
	}
	_, err = fmt.Fprintf(a.Out, "scenario %s runs on from the snapshot: %s, in %.1f s\n", r.Scenario, strings.Join(r.Machines, " "), r.Seconds)
	return err
}
