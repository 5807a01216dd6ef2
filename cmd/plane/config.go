package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/spf13/cobra"

	"mesh/cmd/internal/cli"
	"mesh/host/declaration"
	"mesh/plane/api"
	"mesh/plane/config"
	"mesh/plane/declare"
	"mesh/plane/module"
)

// loadConfig reads and checks the configuration in file.
func loadConfig(file string) (config.Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return config.Config{}, cli.WithCode(cli.Usage, fmt.Errorf("read configuration: %v; name one with --config", err))
	}
	return config.Parse(file, text)
}

// catalogue is modules, made for the mesh of c.
func catalogue(c config.Config, modules []module.Module) module.Catalogue {
	return module.NewCatalogue(module.Facts{PlaneConfig: c.Render()}, modules...)
}

// bundle is what the first node is raised from: what the module plane declares.
func bundle(c config.Config) ([]byte, error) {
	resources, err := declare.Merge(catalogue(c, module.All()), []string{module.Plane().Name})
	if err != nil {
		return nil, err
	}
	return declaration.Bundle{Format: declaration.FormatFor(resources), Resources: resources}.Encode()
}

func newBundle(s cli.Streams) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "bundle", Short: "Write the bundle that raises a plane on its first node",
		Long: "Write the bundle that raises a plane on its first node, for `mesh-host reconcile BUNDLE` there.\n" +
			"It needs no running plane.",
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			cfg, err := loadConfig(file)
			if err != nil {
				return err
			}
			b, err := bundle(cfg)
			if err != nil {
				return err
			}
			_, err = s.Out.Write(b)
			return err
		},
	}
	c.Flags().StringVar(&file, "config", config.Path, "the configuration the plane shall have")
	return c
}

func (o *operator) config() *cobra.Command {
	return o.group("config", "The plane's configuration", newCheck(o.Streams), o.configApply())
}

func (o *operator) configApply() *cobra.Command {
	c := &cobra.Command{
		Use: "apply FILE", Short: "Give the running plane another configuration",
		Long: "Give the running plane another configuration. It is declared to the node the plane runs on,\n" +
			"whose host writes " + config.Path + " and restarts the plane.\n" +
			"mesh, overlay and store cannot change.",
		Args: cli.UsageArgs(cobra.ExactArgs(1)),
		RunE: ask(o, func(ctx context.Context, c *api.Client, args []string) (*api.ConfigureResponse, error) {
			cfg, err := loadConfig(args[0])
			if err != nil {
				return nil, err
			}
			if err := canListen(cfg.Listen); err != nil {
				return nil, err
			}
			return c.Configure(ctx, api.ConfigureRequest{File: args[0], Text: cfg.Render()})
		}, func(a *api.ConfigureResponse) error {
			o.notes(a.Notes)
			line := "configuration declared to %s: generation %d; its host restarts the plane\n"
			if !a.Changed {
				line = "configuration declared to %s already: generation %d\n"
			}
			_, err := fmt.Fprintf(o.Out, line, a.Node, a.Generation)
			return err
		}),
	}
	o.asks(c)
	return c
}

// canListen refuses an address that is none of this machine, where the plane
// runs too: a plane that does not start could not be given a better one.
func canListen(listen string) error {
	host, _, err := net.SplitHostPort(listen)
	if err == nil && host != "" {
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort(host, "0")); err == nil {
			err = l.Close()
		}
	}
	if err != nil {
		return cli.WithCode(cli.Usage, fmt.Errorf("apply configuration: the plane could not listen on %s: %v; take an address of this machine, or a port alone", listen, err))
	}
	return nil
}

func newCheck(s cli.Streams) *cobra.Command {
	var asJSON bool
	check := &cobra.Command{
		Use: "check FILE", Short: "Check a configuration and say everything that is wrong",
		Args: cli.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			_, err := loadConfig(args[0])
			if asJSON {
				return checkJSON(s, args[0], err)
			}
			if err == nil {
				fmt.Fprintf(s.Out, "%s: no problems\n", args[0])
			}
			return err
		},
	}
	check.Flags().BoolVar(&asJSON, "json", false, "answer with one JSON document")
	return check
}

// checkJSON prints what is wrong as a document, and keeps the exit code.
func checkJSON(s cli.Streams, file string, err error) error {
	type problem struct {
		Line    int    `json:"line"`
		Column  int    `json:"column"`
		Message string `json:"message"`
	}
	answer := struct {
		File     string    `json:"file"`
		Problems []problem `json:"problems"`
	}{file, []problem{}}
	var bad *config.Error
	if err != nil && !errors.As(err, &bad) {
		return err
	}
	if bad != nil {
		for _, p := range bad.Problems {
			answer.Problems = append(answer.Problems, problem{p.Line, p.Column, p.Message})
		}
	}
	if printed := cli.JSON(s.Out, answer); printed != nil {
		return printed
	}
	if err != nil {
		return cli.WithCode(cli.Usage, errors.New("")) // all is said
	}
	return nil
}
