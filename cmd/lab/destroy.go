package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"mesh/cmd/internal/cli"
	"mesh/lab/lifecycle"
	"mesh/lab/verify"
)

func newDestroy(a *app) *cobra.Command {
	var all, snapshots bool
	c := &cobra.Command{
		Use:   "destroy NAME... | --all",
		Short: "Destroy scenarios, and all that they made on this machine",
		Long: `Destroy scenarios: machines, disks, network, processes, logs. Nothing else is
needed for it, not the scenario's file and not that anything still works; what
is gone already is no failure. Several are destroyed at once.

Snapshots stay, and "lab restore" raises a scenario from one again; --snapshots
removes them too.`,
		Example: `  lab destroy first-node
  lab destroy first-node --snapshots
  lab destroy --all`,
		ValidArgsFunction: a.completeRaised(-1),
		Args: func(c *cobra.Command, names []string) error {
			if all == (len(names) == 0) {
				return nil
			}
			return cli.WithCode(cli.Usage, errors.New("say which scenarios to destroy, or --all of them (`lab list` shows them)"))
		},
		RunE: func(c *cobra.Command, names []string) error {
			cfg, lab := a.lab()
			if all {
				var err error
				if names, err = lab.Names(); err != nil {
					return err
				}
			}
			if all && snapshots {
				more, err := a.snapshots().Store().Scenarios()
				if err != nil {
					return err
				}
				names = append(names, more...)
			}
			var problems []error
			for _, one := range a.destroyEach(c.Context(), cfg, names) {
				if one.err != nil {
					problems = append(problems, one.err)
					continue
				}
				if !one.found && !snapshots {
					fmt.Fprintf(a.Err, "nothing is raised as %s; nothing to destroy\n", one.name)
				}
				problems = append(problems, a.destroySnapshots(one.name, snapshots))
			}
			return errors.Join(problems...)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "destroy every scenario of the store")
	c.Flags().BoolVar(&snapshots, "snapshots", false, "remove their snapshots too")
	return c
}

// destroyAtOnce bounds how many scenarios are destroyed side by side: most of it
// is waiting for processes to end.
const destroyAtOnce = 4

// destroyed is what came of a scenario that was to be destroyed.
type destroyed struct {
	name  string
	found bool
	err   error
}

// destroyEach destroys scenarios, several at once, and tells what came of each,
// each once, in their order. One that fails does not keep it from the others; once
// ctx is done no other is begun.
func (a *app) destroyEach(ctx context.Context, cfg lifecycle.Config, names []string) []destroyed {
	var all []destroyed
	for _, name := range names {
		if !slices.ContainsFunc(all, func(d destroyed) bool { return d.name == name }) {
			all = append(all, destroyed{name: name})
		}
	}
	var group errgroup.Group
	group.SetLimit(destroyAtOnce)
	for i := range all {
		one := &all[i]
		group.Go(func() error {
			if ctx.Err() != nil {
				one.err = fmt.Errorf("destroy %s: not begun: %w", one.name, context.Cause(ctx))
				return nil
			}
			own := cfg
			own.Daemon = a.ports(a).Daemon // each holds it for itself
			one.found, one.err = lifecycle.New(own).Destroy(ctx, one.name)
			return nil
		})
	}
	_ = group.Wait() // each error is its scenario's
	return all
}

// destroySnapshots removes the snapshots of a scenario, or tells that they stay.
func (a *app) destroySnapshots(scenario string, remove bool) error {
	s := a.snapshots()
	all, err := s.Store().List(scenario)
	if err != nil {
		return err
	}
	var problems []error
	var bytes int64
	for _, m := range all {
		bytes += m.Bytes()
		if remove {
			problems = append(problems, s.Remove(scenario, m.Name))
		}
	}
	if len(all) > 0 && !remove {
		last, stay, them := all[len(all)-1].Name, "stay", "them"
		if len(all) == 1 {
			stay, them = "stays", "it"
		}
		fmt.Fprintf(a.Err, "%s of %s %s (%s): `lab restore %s %s` raises it again, `lab destroy %s --snapshots` removes %s\n",
			cli.Count(len(all), "snapshot"), scenario, stay, size(bytes), scenario, last, scenario, them)
	}
	return errors.Join(problems...)
}

func newReap(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "reap",
		Short: "Remove what commands that were killed left behind",
		Long: `Remove what commands that were killed left behind: every scenario whose record
names a process that is gone, every warm image that was left unfinished, what is
left of snapshots that are not whole, and what a verification was at. Exactly
what those records name is removed. A scenario of which a snapshot was being
taken is not: it runs on.`,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, lab := a.lab()
			reaped, err := lab.Reap(c.Context())
			swept, left := verify.Sweep(c.Context(), cfg.Daemon, cfg.Hypervisor)
			err = errors.Join(err, a.snapshots().Sweep(), left)
			for _, one := range reaped {
				fmt.Fprintf(a.Out, "%s %s: %s\n", one.Kind, one.Name, one.Why)
			}
			for _, one := range swept {
				fmt.Fprintf(a.Out, "verification: %s\n", one)
			}
			if err == nil && len(reaped)+len(swept) == 0 {
				fmt.Fprintln(a.Err, "nothing is abandoned; nothing to reap")
			}
			return err
		},
	}
}
