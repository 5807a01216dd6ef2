package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/host/declaration"
	"mesh/plane/api"
)

func (o *operator) hostShow() *cobra.Command {
	return &cobra.Command{
		Use: "show", Short: "Show which version of mesh-host nodes shall have",
		Long: "Show which version of mesh-host nodes shall have. `node list` shows which one runs on each, and\n" +
			"`node show NODE`, at resource host/package, why that is another one.",
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: ask(o, func(ctx context.Context, c *api.Client, _ []string) (*api.HostPackages, error) {
			return c.Host(ctx)
		}, func(all *api.HostPackages) error {
			if len(all.Packages) == 0 {
				_, err := fmt.Fprintln(o.Out, "none is set: each node keeps the version that it has")
				return err
			}
			var rows [][]string
			for _, p := range all.Packages {
				rows = append(rows, []string{p.Architecture, p.Version, stamp(p.Since), strconv.FormatBool(p.Downgrade), strconv.FormatInt(p.Bytes, 10), p.Digest})
			}
			return cli.Table(o.Out, []string{"ARCHITECTURE", "VERSION", "SINCE", "DOWNGRADE", "BYTES", "DIGEST"}, rows)
		}),
	}
}

func (o *operator) hostSet() *cobra.Command {
	var r api.SetHostRequest
	var digest string
	c := &cobra.Command{
		Use: "set FILE", Short: "Give every node another version of mesh-host",
		Long: "Give every node another version of mesh-host: the one in FILE, a .deb, which the plane keeps. It is\n" +
			"declared to every node of its architecture, and to those that are enrolled later. A node on which it\n" +
			"does not become healthy goes back to the version before by itself; see `node show NODE`.\n\n" +
			"One lower than a version that runs on a node is refused, and a node that is enrolled later with a\n" +
			"higher one keeps that. With --downgrade it is for them as well.",
		Args: cli.UsageArgs(cobra.ExactArgs(1)),
		RunE: ask(o, func(ctx context.Context, c *api.Client, args []string) (*api.SetHostResponse, error) {
			var err error
			if r.Deb, err = readDeb(args[0], digest); err != nil {
				return nil, cli.WithCode(cli.Usage, fmt.Errorf("read the package of mesh-host: %w", err))
			}
			return c.SetHost(ctx, r)
		}, func(a *api.SetHostResponse) error {
			o.notes(a.Notes)
			became := "declared to " + cli.Count(len(a.Nodes), "node")
			if !a.Changed {
				became = "is declared already"
			}
			_, err := fmt.Fprintf(o.Out, "mesh-host %s for %s %s\n", a.Package.Version, a.Package.Architecture, became)
			return err
		}),
	}
	c.Flags().StringVar(&digest, "digest", "", "refuse FILE unless this is its SHA-256, in hex")
	c.Flags().BoolVar(&r.Downgrade, "downgrade", false, "declare it also to nodes on which a higher version runs")
	return c
}

func (o *operator) hostUnset() *cobra.Command {
	return &cobra.Command{
		Use: "unset", Short: "Leave every node the version of mesh-host that it has",
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: ask(o, func(ctx context.Context, c *api.Client, _ []string) (*api.UnsetHostResponse, error) {
			return c.UnsetHost(ctx)
		}, func(a *api.UnsetHostResponse) error {
			o.notes(a.Notes)
			if !a.Changed {
				_, err := fmt.Fprintln(o.Out, "none was set")
				return err
			}
			_, err := fmt.Fprintf(o.Out, "mesh-host declared no more to %s: each keeps the version that it has\n", cli.Count(len(a.Nodes), "node"))
			return err
		}),
	}
}

func (o *operator) notes(notes []string) {
	for _, note := range notes {
		fmt.Fprintln(o.Err, note)
	}
}

// readDeb reads a file that may be declared; digest is what it has to have, empty
// for any.
func readDeb(name, digest string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%v; name the .deb of mesh-host that nodes shall have", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, declaration.MaxBlob+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > declaration.MaxBlob:
		return nil, fmt.Errorf("%s has more than the %d bytes that can be declared", name, declaration.MaxBlob)
	case digest != "" && !strings.EqualFold(digest, declaration.Digest(b)):
		return nil, fmt.Errorf("%s has the digest %s, not the one given with --digest: it is another file, or was damaged on its way; get it again", name, declaration.Digest(b))
	}
	return b, nil
}
