package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/plane/api"
)

func (o *operator) nodeList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List every node and what was last heard of it",
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: ask(o, func(ctx context.Context, c *api.Client, _ []string) (*api.Nodes, error) {
			return c.Nodes(ctx)
		}, func(all *api.Nodes) error {
			var rows [][]string
			for _, n := range all.Nodes {
				rows = append(rows, []string{
					n.Name, stateOf(n), orDash(n.HostVersion), strconv.FormatUint(n.Declared.Generation, 10), acknowledged(n),
					orDash(join(n.Addresses)), orDash(join(n.Modules)), lastReport(n),
				})
			}
			return cli.Table(o.Out, []string{"NODE", "STATE", "HOST", "DECLARED", "ACKNOWLEDGED", "ADDRESSES", "MODULES", "LAST REPORT"}, rows)
		}),
	}
}

func (o *operator) nodeShow() *cobra.Command {
	return &cobra.Command{
		Use: "show NODE", Short: "Show everything about one node",
		Args: cli.UsageArgs(cobra.ExactArgs(1)),
		RunE: ask(o, func(ctx context.Context, c *api.Client, args []string) (*api.NodeDetail, error) {
			return c.Node(ctx, args[0])
		}, o.showNode),
	}
}

func (o *operator) showNode(n *api.NodeDetail) error {
	var rows [][]string
	add := func(what, value string) { rows = append(rows, []string{what, value}) }
	add("state", stateOf(n.Node))
	if n.RetiringSince != nil {
		add("retiring", "since "+stamp(*n.RetiringSince)+"; it is removed once it has reported that it owns nothing any more")
	}
	add("enrolled", stamp(n.EnrolledAt))
	add("key", n.Key)
	add("addresses", orDash(join(n.Addresses)))
	add("modules", orDash(join(n.Modules)))
	add("declared", fmt.Sprintf("generation %d, digest %s", n.Declared.Generation, n.Declared.Digest))
	add("acknowledged", acknowledged(n.Node))
	add("last report", lastReport(n.Node))
	if r := n.Refused; r != nil {
		add("refused", fmt.Sprintf("generation %d of epoch %d, by the node's clock at %s: %s", r.Generation, r.Epoch, stamp(r.Time), r.Reason))
	}
	runs := "mesh-host " + n.Profile.HostVersion
	if n.HostAbove != "" {
		runs += ", which is higher than what is set (" + n.HostAbove + ") and is left alone"
	}
	add("host", runs)
	add("system", fmt.Sprintf("%s %s, %s, Linux %s", n.Profile.OS, n.Profile.OSVersion, n.Profile.Architecture, n.Profile.Kernel))
	add("machine", fmt.Sprintf("%s, host name %s, %d CPUs, %d MiB", n.Inventory.MachineID, n.Inventory.Hostname, n.Inventory.CPUs, n.Inventory.MemoryBytes>>20))
	for _, i := range n.Inventory.Interfaces {
		var networks []string
		for _, a := range i.Addresses {
			networks = append(networks, a.String())
		}
		add("interface "+i.Name, orDash(join(networks)))
	}
	if err := cli.Table(o.Out, []string{"node", n.Name}, rows); err != nil || len(n.Results) == 0 {
		return err
	}
	rows = nil
	for _, r := range n.Results {
		rows = append(rows, []string{r.ID, string(r.Kind), r.Where, string(r.Status), r.Reason})
	}
	fmt.Fprintln(o.Out)
	return cli.Table(o.Out, []string{"RESOURCE", "KIND", "WHERE", "STATUS", "REASON"}, rows)
}

func (o *operator) nodeRetire() *cobra.Command {
	return &cobra.Command{
		Use: "retire NODE", Short: "Take everything from a node, then let it go",
		Long: "Take everything from a node, then let it go: its host removes all that it made there, and reports it.\n" +
			"The node is removed then, and its machine is a member of no mesh. One that is away is retired when it\n" +
			"comes back; until then `node list` shows it as retiring. `node remove` does not wait.",
		Args: cli.UsageArgs(cobra.ExactArgs(1)),
		RunE: ask(o, func(ctx context.Context, c *api.Client, args []string) (*api.RetireResponse, error) {
			return c.RetireNode(ctx, args[0])
		}, func(r *api.RetireResponse) error {
			what := "is being retired"
			if !r.Changed {
				what = "is being retired already"
			}
			_, err := fmt.Fprintf(o.Out, "node %s %s: generation %d\n", r.Node, what, r.Generation)
			return err
		}),
	}
}

func (o *operator) nodeRemove() *cobra.Command {
	return &cobra.Command{
		Use: "remove NODE", Short: "Forget a node: its key is refused from now on",
		Long: "Forget a node: its key is refused from now on, and its name and addresses are free.\n" +
			"The machine is not touched: it goes on with its last declaration. `node retire` takes everything from it first.",
		Args: cli.UsageArgs(cobra.ExactArgs(1)),
		RunE: ask(o, func(ctx context.Context, c *api.Client, args []string) (map[string]string, error) {
			return map[string]string{"removed": args[0]}, c.RemoveNode(ctx, args[0])
		}, func(done map[string]string) error {
			_, err := fmt.Fprintf(o.Out, "node %s removed\n", done["removed"])
			return err
		}),
	}
}

func stateOf(n api.Node) string {
	state := n.State
	if n.State != api.Connected {
		state += " since " + stamp(n.StateSince)
	}
	if n.RetiringSince != nil {
		state += ", retiring"
	}
	return state
}

func acknowledged(n api.Node) string {
	if n.Acknowledged == nil {
		return "-"
	}
	return strconv.FormatUint(n.Acknowledged.Generation.Generation, 10)
}

func lastReport(n api.Node) string {
	if n.Acknowledged == nil {
		return "-"
	}
	report := n.Acknowledged.Resources.String() + " at " + stamp(n.Acknowledged.ReportedAt)
	if n.Refused != nil {
		report += fmt.Sprintf(", refuses generation %d", n.Refused.Generation)
	}
	return report
}

func join(all []string) string { return strings.Join(all, ",") }

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
