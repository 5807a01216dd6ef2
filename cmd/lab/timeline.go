package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/fault"
)

func newTimeline(a *app) *cobra.Command {
	group := &cobra.Command{
		Use:   "timeline",
		Short: "Do faults to a raised scenario in time, as a file says",
		Long: `Do faults to a raised scenario in time, as a file says. Its steps are faults, as
` + "`lab fault kinds`" + ` lists them with their parameters, and the undoing of faults:

  steps:
    - at: 10s              # after the beginning
      fault: loss
      on: [two]            # one target, or a list of them
      share: 30%
      for: 1m              # then it is undone
    - at: 30s
      fault: partition
      name: split          # by which it is undone
      on: one
      from: [two, world]
    - at: 2m
      undo: split          # or all`,
	}
	group.AddCommand(newTimelineRun(a), newTimelineCheck(a))
	return group
}

// openTimeline reads a timeline from a file; "-" is what is piped in.
func (a *app) openTimeline(path string) (fault.Timeline, error) {
	if path == "-" {
		return fault.ParseTimeline("(input)", a.In)
	}
	f, err := os.Open(path)
	if err != nil {
		return fault.Timeline{}, cli.WithCode(cli.Usage, err)
	}
	defer f.Close()
	if err := noDirectory(f); err != nil {
		return fault.Timeline{}, cli.WithCode(cli.Usage, fmt.Errorf("read timeline %s: %w", path, err))
	}
	return fault.ParseTimeline(path, f)
}

func newTimelineRun(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "run NAME FILE",
		Short: "Do what a timeline says to the scenario that is raised as NAME",
		Long: `Do what a timeline says to the scenario that is raised as NAME, and end with its
last step. Each step is told as it begins. Faults that no step undoes stay in
force. If a step fails, or on Ctrl-C, what the timeline did is undone.`,
		Example: "  lab timeline run first-node ./storm.yaml",
		Args:    cli.UsageArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return a.completeRaised(1)(c, args, word)
		},
		RunE: func(c *cobra.Command, args []string) error {
			t, err := a.openTimeline(args[1])
			if err != nil {
				return err
			}
			_, lab := a.lab()
			return lab.RunTimeline(c.Context(), args[0], t, func(elapsed time.Duration, s fault.Step) {
				fmt.Fprintf(a.Err, "%9.3f s  %s\n", elapsed.Seconds(), s)
			})
		},
	}
}

func newTimelineCheck(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "check FILE",
		Short: "Say everything that is wrong with a timeline, or what it will do",
		Long: `Say everything that is wrong with a timeline, or what it will do, in order.
Whether its targets exist is for the scenario to say that it is run on.`,
		Example: "  lab timeline check ./storm.yaml",
		Args:    cli.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			t, err := a.openTimeline(args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return cli.JSON(a.Out, t)
			}
			var rows [][]string
			for _, s := range t.Steps {
				rows = append(rows, []string{s.At.String(), strconv.Itoa(s.Line), s.String()})
			}
			return cli.Table(a.Out, []string{"AT", "LINE", "WHAT"}, rows)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
