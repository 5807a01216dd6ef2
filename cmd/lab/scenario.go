package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/scenario"
	"mesh/scenarios"
)

func newSchema(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of scenarios, for editors",
		Example: "  lab schema > scenario.schema.json",
		Args:    cli.UsageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			compact, err := json.Marshal(scenario.Schema())
			if err != nil {
				return fmt.Errorf("write schema: %v", err)
			}
			return cli.JSON(a.Out, json.RawMessage(compact))
		},
	}
}

func newScenario(a *app) *cobra.Command {
	group := &cobra.Command{
		Use:   "scenario",
		Short: "The scenarios that ship with the lab",
	}
	group.AddCommand(newScenarioList(a))
	return group
}

// shipped is a scenario in the answer of `lab scenario list --json`.
type shipped struct {
	Name     string `json:"name"`
	About    string `json:"about"`
	Machines int    `json:"machines"`
	Summary  string `json:"summary"`
}

func newScenarioList(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List the scenarios that ship with the lab",
		Args:  cli.UsageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			all := []shipped{}
			var rows [][]string
			for _, name := range scenarios.Names() {
				doc, err := openScenario(name)
				if err != nil {
					return err
				}
				s := doc.scenario
				all = append(all, shipped{s.Name, s.About, len(s.Machines), summary(s)})
				rows = append(rows, []string{s.Name, cli.Count(len(s.Machines), "machine"), s.About})
			}
			if asJSON {
				return cli.JSON(a.Out, all)
			}
			return cli.Table(a.Out, []string{"NAME", "SIZE", "ABOUT"}, rows)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
