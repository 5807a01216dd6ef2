package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/plane/api"
	"mesh/plane/config"
)

// operator is what the commands that ask a running plane share.
type operator struct {
	cli.Streams
	socket string
	json   bool
}

func (o *operator) group(name, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: name, Short: short, Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return cli.WithCode(cli.Usage, fmt.Errorf("%s wants one of its commands (see `%s --help`)", name, c.CommandPath()))
		},
	}
	c.AddCommand(commands...)
	return c
}

// asks gives c, and what is below it, the flags of a command that asks.
func (o *operator) asks(c *cobra.Command) {
	c.PersistentFlags().StringVar(&o.socket, "socket", config.DefaultSocket, "UNIX socket of the running plane")
	c.PersistentFlags().BoolVar(&o.json, "json", false, "answer with one JSON document")
}

// ask runs a command that asks the plane: answer is printed as JSON where that
// is wanted, and by show otherwise.
func ask[T any](o *operator, question func(context.Context, *api.Client, []string) (T, error), show func(T) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		client := api.NewClient(o.socket)
		defer client.Close()
		answer, err := question(c.Context(), client, args)
		switch {
		case err != nil:
			return err
		case o.json:
			return cli.JSON(o.Out, answer)
		}
		return show(answer)
	}
}

func (o *operator) tokenIssue() *cobra.Command {
	var r api.TokenRequest
	var expires time.Duration
	c := &cobra.Command{
		Use: "issue", Short: "Issue a token: it admits one machine, once",
		Long: "Issue a token: it admits one machine, once. The token is the only line on standard output;\n" +
			"run `mesh-host enrol TOKEN` with it on the machine.",
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: ask(o, func(ctx context.Context, c *api.Client, _ []string) (*api.TokenResponse, error) {
			if expires < time.Second || expires%time.Second != 0 {
				return nil, cli.WithCode(cli.Usage, fmt.Errorf("--expires %s: wanted whole seconds, one at least", expires))
			}
			r.LifetimeSeconds = int64(expires / time.Second)
			return c.IssueToken(ctx, r)
		}, func(t *api.TokenResponse) error {
			fmt.Fprintf(o.Err, "admits one machine until %s; run on it: mesh-host enrol TOKEN\n", stamp(t.ExpiresAt))
			_, err := fmt.Fprintln(o.Out, string(t.Token))
			return err
		}),
	}
	c.Flags().StringVar(&r.Node, "name", "", "name of the node (default: the machine's host name)")
	c.Flags().StringArrayVar(&r.Modules, "module", nil, "assign this module at enrolment; may be given more than once")
	c.Flags().DurationVar(&expires, "expires", time.Hour, "how long the token admits")
	return c
}

func (o *operator) assign(use, short string, unassign bool) *cobra.Command {
	return &cobra.Command{
		Use: use + " NODE MODULE", Short: short,
		Args: cli.UsageArgs(cobra.ExactArgs(2)),
		RunE: ask(o, func(ctx context.Context, c *api.Client, args []string) (*api.AssignResponse, error) {
			return c.Assign(ctx, api.AssignRequest{Node: args[0], Module: args[1], Unassign: unassign})
		}, func(a *api.AssignResponse) error {
			what := "assigned to"
			if unassign {
				what = "taken from"
			}
			if !a.Changed {
				what = "already " + what
				if unassign {
					what = "not on"
				}
			}
			_, err := fmt.Fprintf(o.Out, "%s %s %s: generation %d\n", a.Module, what, a.Node, a.Generation)
			return err
		}),
	}
}

func (o *operator) moduleList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the modules and the nodes that have them",
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: ask(o, func(ctx context.Context, c *api.Client, _ []string) (*api.Modules, error) {
			return c.Modules(ctx)
		}, func(all *api.Modules) error {
			var rows [][]string
			for _, m := range all.Modules {
				rows = append(rows, []string{m.Name, m.Presence, m.Instantiation, orDash(join(m.Nodes)), m.Summary})
			}
			return cli.Table(o.Out, []string{"MODULE", "PRESENCE", "INSTANCES", "NODES", "SUMMARY"}, rows)
		}),
	}
}

// stamp writes a time for people: RFC 3339 in UTC, to the second.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
