package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/scenario"
)

func newCheck(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "check SCENARIO...",
		Short: "Say everything that is wrong with scenarios",
		Long: `Say everything that is wrong with scenarios, without raising them.

SCENARIO is the name of one that ships with the lab, or the path of a file. Each
problem is one line: file, line, column, what is wrong, and what to do.`,
		Example:           "  lab check first-node\n  lab check ./mine.yaml ./yours.yaml --json",
		Args:              cli.UsageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: completeShipped(-1),
		RunE: func(_ *cobra.Command, sources []string) error {
			var all []checked
			for _, source := range sources {
				all = append(all, a.check(source))
			}
			return a.showChecked(all, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// checked is what came of checking one scenario; `lab check --json` prints one
// for each.
type checked struct {
	Source   string            `json:"source"` // as the operator said it
	OK       bool              `json:"ok"`
	Name     string            `json:"name,omitempty"`
	Summary  string            `json:"summary,omitempty"`
	Problems scenario.Problems `json:"problems,omitempty"`
	Error    string            `json:"error,omitempty"` // why it could not be read at all
}

// check holds a scenario to all that a raise would, but for what stands here.
func (a *app) check(source string) checked {
	result := checked{Source: source}
	doc, err := openScenario(source)
	if err == nil {
		result.Name, result.Summary = doc.scenario.Name, summary(doc.scenario)
		err = append(doc.scenario.CheckImages(a.images(a).Names()), doc.scenario.CheckFiles(doc.files)...).Err()
	}
	if err != nil && !errors.As(err, &result.Problems) {
		result.Error = err.Error()
	}
	result.OK = err == nil
	return result
}

// showChecked prints what came of checking; its error has exit code 2.
func (a *app) showChecked(all []checked, asJSON bool) error {
	var text strings.Builder
	problems, wrong := 0, 0
	for _, c := range all {
		switch {
		case c.OK:
			fmt.Fprintf(&text, "%s: ok: %s\n", c.Source, c.Summary)
			continue
		case c.Error != "":
			fmt.Fprintf(&text, "%s\n", c.Error)
			problems++
		default:
			fmt.Fprintf(&text, "%v\n", c.Problems)
			problems += len(c.Problems)
		}
		wrong++
	}
	err := error(nil)
	if asJSON {
		err = cli.JSON(a.Out, all)
	} else {
		_, err = fmt.Fprint(a.Out, text.String())
	}
	if err == nil && wrong > 0 {
		err = cli.WithCode(cli.Usage, fmt.Errorf("%s in %d of %s",
			cli.Count(problems, "problem"), wrong, cli.Count(len(all), "scenario")))
	}
	return err
}

// summary says how large a scenario is.
func summary(s *scenario.Scenario) string {
	parts := []string{cli.Count(len(s.Machines), "machine"), cli.Count(len(s.Segments), "segment")}
	if len(s.Routers) > 0 {
		parts = append(parts, cli.Count(len(s.Routers), "router"))
	}
	if len(s.Place) > 0 {
		parts = append(parts, cli.Count(len(s.Place), "step")+" to place")
	}
	return strings.Join(parts, ", ")
}
