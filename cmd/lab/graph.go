package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/lab/fault"
	"mesh/lab/graph"
	"mesh/lab/lifecycle"
	"mesh/lab/scenario"
	"mesh/lab/underlay"
	"mesh/scenarios"
)

// graphFormats are how a graph can be written; the first is the default.
var graphFormats = []string{"mermaid", "dot", "svg"}

func newGraph(a *app) *cobra.Command {
	format := graphFormats[0]
	c := &cobra.Command{
		Use:   "graph SCENARIO|NAME",
		Short: "Draw a scenario: segments, routers, machines, addresses",
		Long: `Draw a scenario: its segments, routers and machines, and every address that they
get. Dashed lines lead to where somebody can be moved (lab roam). Nothing is
raised or changed. What is raised is drawn as it is now: everybody where they
stand, with the faults that strike them.

SCENARIO is the name of one that ships with the lab, or the path of a file. NAME
is what a scenario is raised as, and shows what is raised; where both
have one name, it is the raised one.

Mermaid is what Markdown pages show, DOT what Graphviz reads, SVG a picture.`,
		Example: `  lab graph first-node                          Mermaid, to paste into a page
  lab graph ./mine.yaml --format svg > mine.svg a picture, for a browser
  lab graph first-node --format dot | dot -Tpdf > first-node.pdf`,
		Args:              cli.UsageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeDrawn,
		RunE: func(_ *cobra.Command, args []string) error {
			if !slices.Contains(graphFormats, format) {
				return cli.WithCode(cli.Usage, fmt.Errorf("%q is no format of a graph; choose one of %s", format, strings.Join(graphFormats, ", ")))
			}
			g, err := a.graph(args[0])
			if err != nil {
				return err
			}
			text := map[string]func() string{"mermaid": g.Mermaid, "dot": g.DOT, "svg": g.SVG}[format]()
			_, err = fmt.Fprint(a.Out, text)
			return err
		},
	}
	c.Flags().StringVar(&format, "format", format, strings.Join(graphFormats, ", "))
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(graphFormats, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	return c
}

// graph finds what is raised under a name, or the scenario that source names.
func (a *app) graph(source string) (graph.Graph, error) {
	if !isPath(source) {
		_, lab := a.lab()
		record, err := lab.Record(source)
		if err == nil {
			return graphOf(record), nil
		}
		if !errors.Is(err, lifecycle.ErrAbsent) {
			return graph.Graph{}, err
		}
		if !slices.Contains(scenarios.Names(), source) {
			return graph.Graph{}, cli.WithCode(cli.Usage, fmt.Errorf("nothing is raised as %q, and no scenario of that name ships with the lab; these do: %s (a file is named by its path: ./%s.yaml)",
				source, strings.Join(scenarios.Names(), ", "), source))
		}
	}
	doc, err := openScenario(source)
	if err != nil {
		return graph.Graph{}, err
	}
	u, err := underlay.Plan(doc.scenario, "00000000") // nothing that is drawn depends on the run
	if err != nil {
		return graph.Graph{}, err
	}
	return graph.New(doc.scenario.Name, doc.scenario.About, *u, doc.scenario.Machines), nil
}

// graphOf is the graph of what is raised.
func graphOf(r lifecycle.Record) graph.Graph {
	p := r.Plan
	var machines []scenario.Machine
	for _, m := range p.Machines {
		machines = append(machines, scenario.Machine{
			Name: m.Name, Image: m.Image, MemoryBytes: m.Spec.MemoryBytes, CPUs: m.Spec.CPUs,
		})
	}
	var faults []fault.Fault
	for _, f := range r.Faults {
		faults = append(faults, f.Fault)
	}
	return graph.New(p.Name, "raised from "+p.Source, p.World.Underlay, machines).Struck(faults)
}

// completeDrawn offers what is raised, what ships with the lab, and files.
func (a *app) completeDrawn(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	words := append(a.raisedNames(), scenarios.Names()...)
	slices.Sort(words)
	return slices.Compact(words), cobra.ShellCompDirectiveDefault
}
