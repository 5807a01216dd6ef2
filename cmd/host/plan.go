package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/host/apply"
	"mesh/host/bundle"
	"mesh/host/store"
)

func (h *host) newPlan() *cobra.Command {
	var asJSON, check bool
	c := &cobra.Command{
		Use:   "plan [BUNDLE]",
		Short: "Say what the next pass would do and why, and do nothing, offline",
		Long: `Look at this machine and say what the next pass of "mesh-host run" would do, in
its order, with a reason for each act: what it would make, change, restart,
remove, leave, or cannot do. It decides from the declaration held, as a pass
does, asks nobody, changes nothing and holds nobody up.

With a bundle (the file BUNDLE, or standard input for "-") it says what
"mesh-host reconcile BUNDLE" would do. A machine that is a member of a mesh takes
no bundle.

A plan ends where the machine decides: that a package cannot be fetched, or a
unit does not start, is seen only by trying.`,
		Example: `  mesh-host plan                   what the next pass would do
  mesh-host plan bundle.json       what this bundle would do
  mesh-host plan --check           exit with 3 if there is something to do
  mesh-host plan --json | jq -r '.steps[] | select(.verb != "none") | .where'`,
		Args:              cli.UsageArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: completeBundle,
		RunE: func(c *cobra.Command, args []string) error {
			var text []byte
			if len(args) > 0 {
				var err error
				if text, err = readDocument(h.In, args[0]); err != nil {
					return cli.WithCode(cli.Usage, err)
				}
			}
			return h.plan(c.Context(), text, asJSON, check)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "answer with one JSON document")
	c.Flags().BoolVar(&check, "check", false, "exit with 3 if the pass would do something, or could not do what is declared")
	return c
}

// completeBundle completes the one argument of commands that take a bundle.
func completeBundle(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []string{"json"}, cobra.ShellCompDirectiveFilterFileExt
}

// plan says what a pass would do: over the bundle in text, or with nil over what
// is held.
func (h *host) plan(ctx context.Context, text []byte, asJSON, check bool) error {
	s := h.system()
	var accept *store.Accepted
	if text != nil {
		cfg, unread := h.bundling(s)
		admitted, err := bundle.Admit(cfg, text)
		if err != nil {
			return err
		}
		if unread != nil {
			return readable(unread)
		}
		accept = &admitted
	}
	follows, plan, err := h.inspection().Plan(ctx, h.machine(s), accept)
	if err != nil {
		return readable(err)
	}
	answer := newPlanned(follows, plan)
	if asJSON {
		err = cli.JSON(h.Out, answer)
	} else {
		err = writePlan(h.Out, answer)
	}
	if err == nil && check && !plan.Quiet() {
		return cli.WithCode(cli.Differs, errors.New("there is something to do on this machine"))
	}
	return err
}

// planned is a plan as it is answered. Fields may be added and never change
// meaning.
type planned struct {
	Source     store.Source `json:"source,omitempty"` // absent: nothing is declared
	Mesh       string       `json:"mesh,omitempty"`
	Epoch      uint64       `json:"epoch"`
	Generation uint64       `json:"generation"`
	Digest     string       `json:"digest,omitempty"`
	Changes    int          `json:"changes"` // steps that touch the machine
	Quiet      bool         `json:"quiet"`   // nothing is to be done, and nothing cannot be done
	Steps      []apply.Step `json:"steps"`   // in the order of the pass
}

func newPlanned(follows *store.Accepted, plan apply.Plan) planned {
	p := planned{Changes: plan.Changes(), Quiet: plan.Quiet(), Steps: append([]apply.Step{}, plan.Steps...)}
	if follows != nil {
		p.Source, p.Mesh, p.Digest = follows.Source, follows.Mesh, follows.Digest
		p.Epoch, p.Generation = follows.Epoch, follows.Generation
	}
	return p
}

// writePlan says a plan in plain words.
func writePlan(w io.Writer, p planned) error {
	if p.Source == "" {
		_, err := fmt.Fprintln(w, "nothing is declared for this machine: the next pass does nothing")
		return err
	}
	_, err := fmt.Fprintf(w, "a pass over %s:\n%s", named(p.Source, p.Epoch, p.Generation, p.Digest), apply.Plan{Steps: p.Steps})
	return err
}
