package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
)

func newDestroy(a *app) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "destroy NAME... | --all",
		Short: "Destroy scenarios, and all that they made on this machine",
		Long: `Destroy scenarios: machines, disks, network, processes, logs. Nothing else is
needed for it, not the scenario's file and not that anything still works; what
is gone already is no failure.`,
		Example:           "  lab destroy first-node\n  lab destroy --all",
		ValidArgsFunction: a.completeRaised(-1),
		Args: func(c *cobra.Command, names []string) error {
			if all == (len(names) == 0) {
				return nil
			}
			return cli.WithCode(cli.Usage, errors.New("say which scenarios to destroy, or --all of them (`lab list` shows them)"))
		},
		RunE: func(c *cobra.Command, names []string) error {
			_, lab := a.lab()
			if all {
				var err error
				if names, err = lab.Names(); err != nil {
					return err
				}
			}
			var problems []error
			for _, name := range names {
				found, err := lab.Destroy(c.Context(), name)
				if err != nil {
					problems = append(problems, err)
				} else if !found {
					fmt.Fprintf(a.Err, "nothing is raised as %s; nothing to destroy\n", name)
				}
			}
			return errors.Join(problems...)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "destroy every scenario of the store")
	return c
}

func newReap(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "reap",
		Short: "Remove what commands that were killed left behind",
		Long: `Remove what commands that were killed left behind: every scenario whose record
names a process that is gone, and every warm image that was left unfinished.
Exactly what those records name is removed.`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			_, lab := a.lab()
			reaped, err := lab.Reap(c.Context())
			for _, one := range reaped {
				fmt.Fprintf(a.Out, "%s %s: %s\n", one.Kind, one.Name, one.Why)
			}
			if err == nil && len(reaped) == 0 {
				fmt.Fprintln(a.Err, "nothing is abandoned; nothing to reap")
			}
			return err
		},
	}
}

func newPower(a *app) *cobra.Command {
	power := &cobra.Command{
		Use:   "power",
		Short: "Cut a machine's power, or give it back",
	}
	power.AddCommand(&cobra.Command{
		Use:               "cut NAME MACHINE",
		Short:             "Cut a machine's power: whatever it was doing ends at once",
		Args:              cli.UsageArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: a.completeMachine,
		RunE: func(c *cobra.Command, args []string) error {
			_, lab := a.lab()
			return lab.Cut(c.Context(), args[0], args[1])
		},
	}, &cobra.Command{
		Use:               "on NAME MACHINE",
		Short:             "Give a machine its power back, and wait until it is ready",
		Args:              cli.UsageArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: a.completeMachine,
		RunE: func(c *cobra.Command, args []string) error {
			cfg, lab := a.lab()
			done := cfg.Progress.Step(args[1] + " boots and answers")
			err := lab.PowerOn(c.Context(), args[0], args[1])
			done(err)
			return err
		},
	})
	return power
}
