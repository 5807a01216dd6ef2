package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
)

func newList(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List the scenarios that are raised",
		Args:  cli.UsageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			_, lab := a.lab()
			all, err := lab.List()
			if err != nil {
				return err
			}
			if asJSON {
				return cli.JSON(a.Out, all)
			}
			if len(all) == 0 {
				_, err := fmt.Fprintln(a.Err, "nothing is raised; `lab raise SCENARIO` raises one")
				return err
			}
			var rows [][]string
			for _, s := range all {
				phase := string(s.Phase)
				switch {
				case s.Problem != "":
					phase = "record unreadable"
				case s.Abandoned != "":
					phase += ", abandoned"
				}
				rows = append(rows, []string{s.Name, s.Scenario, phase, s.Since.Format("2006-01-02 15:04 UTC"), strings.Join(s.Machines, " ")})
			}
			return cli.Table(a.Out, []string{"NAME", "SCENARIO", "PHASE", "SINCE", "MACHINES"}, rows)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func newStatus(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "status NAME",
		Short: "Show what stands of a scenario, as it is now",
		Long: `Show what stands of a scenario, as it is now: its machines, their addresses and
whether they answer, the world's services, and what came of each step of raising
it. Nothing is changed.`,
		Example:           "  lab status first-node\n  lab status first-node --json | jq .machines",
		Args:              cli.UsageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeRaised(1),
		RunE: func(c *cobra.Command, args []string) error {
			_, lab := a.lab()
			s, err := lab.Status(c.Context(), args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return cli.JSON(a.Out, s)
			}
			return a.showStatus(s)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
