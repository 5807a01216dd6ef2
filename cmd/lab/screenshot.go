package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"mesh/cmd/internal/cli"
	"mesh/lab/lifecycle"
)

func newScreenshot(a *app) *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:   "screenshot NAME MACHINE",
		Short: "Keep what a machine's display shows, as a PNG picture",
		Long: `Keep what a machine's display shows now, as a PNG picture. A machine has a
display where its scenario says "display: true"; all others have their console,
which "lab console" shows.`,
		Example: `  lab screenshot kiosk one                into kiosk-one.png
  lab screenshot kiosk one -o - | file -`,
		Args:              cli.UsageArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: a.completeMachine,
		RunE: func(c *cobra.Command, args []string) error {
			if f, ok := a.Out.(*os.File); ok && out == "-" && term.IsTerminal(int(f.Fd())) {
				return cli.WithCode(cli.Usage, fmt.Errorf("a picture is nothing for a terminal; name a file with -o"))
			}
			cfg, lab := a.lab()
			_, m, err := lab.Find(args[0], args[1])
			if err != nil {
				return err
			}
			if !m.Spec.Display {
				return &lifecycle.Error{
					What: fmt.Sprintf("machine %s of %s has no display", m.Name, args[0]),
					Next: fmt.Sprintf("`display: true` beside it in the scenario gives it one; `lab console %s %s` shows what it writes", args[0], m.Name),
					Code: cli.Usage,
				}
			}
			picture, err := cfg.Abuse.Screenshot(c.Context(), m.Spec.Name)
			if err != nil {
				return silent(args[0], m.Name, err)
			}
			if out == "-" {
				_, err := a.Out.Write(picture)
				return err
			}
			if out == "" {
				out = args[0] + "-" + m.Name + ".png"
			}
			err = writeFile(out, 0o644, func(w io.Writer) error {
				_, err := w.Write(picture)
				return err
			})
			if err != nil {
				return err
			}
			fmt.Fprintln(a.Out, out)
			return nil
		},
	}
	c.Flags().StringVarP(&out, "output", "o", "", "the picture's file; - is stdout (default NAME-MACHINE.png)")
	return c
}
