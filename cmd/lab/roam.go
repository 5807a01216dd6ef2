package main

import (
	"slices"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/underlay"
)

func newRoam(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "roam NAME MACHINE|ROUTER SEGMENT",
		Short: "Move a machine, or a site with its router, to another segment",
		Long: `Move a machine, or a router and with it the site behind it, to another segment
while the scenario runs: a laptop that is taken to a café, a home that gets
another provider. The scenario declares who roams, and where to; every address
is known beforehand (lab graph shows them). Moving it to where it began undoes
it.

A machine sees its cable pulled and put into another socket; the command returns
once it has its addresses there. A router forgets its connections.`,
		Example: `  lab roam sites laptop office
  lab roam sites laptop home           and back`,
		Args:              cli.UsageArgs(cobra.ExactArgs(3)),
		ValidArgsFunction: a.completeRoam,
		RunE: func(c *cobra.Command, args []string) error {
			cfg, lab := a.lab()
			done := cfg.Progress.Step(args[1] + " moves to " + args[2])
			err := lab.Roam(c.Context(), args[0], args[1], args[2])
			done(err)
			return err
		},
	}
}

// completeRoam offers a scenario, who roams in it, and where to.
func (a *app) completeRoam(_ *cobra.Command, args []string, _ string) (words []string, _ cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.raisedNames(), cobra.ShellCompDirectiveNoFileComp
	}
	r, err := a.completing().Record(args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	roamers := r.Plan.World.Underlay.Roamers()
	switch len(args) {
	case 1:
		for _, one := range roamers {
			words = append(words, one.Name)
		}
	case 2:
		i := slices.IndexFunc(roamers, func(one underlay.Roamer) bool { return one.Name == args[1] })
		if i >= 0 {
			words = roamers[i].Segments
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}
