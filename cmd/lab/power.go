package main

import (
	"context"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/lifecycle"
)

func newPower(a *app) *cobra.Command {
	group := &cobra.Command{
		Use:   "power",
		Short: "Cut, give back, reset, pause or resume a machine",
		Long: `Cut, give back, reset, pause or resume a machine. A machine that is cut or
paused is struck by a fault of that kind: ` + "`lab fault list`" + ` shows it, and undoing
it by its name does the same as giving power back or resuming.`,
	}
	group.AddCommand(
		a.powerCommand("cut", "Cut a machine's power: whatever it was doing ends at once", "", (*lifecycle.Lab).Cut),
		a.powerCommand("on", "Give a machine its power back, and wait until it is ready", "boots and answers", (*lifecycle.Lab).PowerOn),
		a.powerCommand("reset", "Press a machine's reset button, and wait until it has booted", "boots anew and answers", (*lifecycle.Lab).Reset),
		a.powerCommand("pause", "Let a machine's processors stand still", "", (*lifecycle.Lab).Pause),
		a.powerCommand("resume", "Let a paused machine run on", "", (*lifecycle.Lab).Resume),
	)
	return group
}

// powerCommand does one thing to one machine; told, if not empty, narrates it.
func (a *app) powerCommand(word, short, told string, do func(*lifecycle.Lab, context.Context, string, string) error) *cobra.Command {
	return &cobra.Command{
		Use:               word + " NAME MACHINE",
		Short:             short,
		Args:              cli.UsageArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: a.completeMachine,
		RunE: func(c *cobra.Command, args []string) error {
			cfg, lab := a.lab()
			done := func(error) {}
			if told != "" {
				done = cfg.Progress.Step(args[1] + " " + told)
			}
			err := do(lab, c.Context(), args[0], args[1])
			done(err)
			return err
		},
	}
}
